/**
 * Whether calls leave anything behind in the engine. ENTRACTE_GROWTH_CALLS sets how many are made after the warm-up:
 * some hundred by default, so that the test is quick, and 10,000 for the full measure.
 */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { writeTinyGguf } from '../../src/models/tiny-gguf.ts'
import { EngineUnderTest, PROVEN } from './engine-under-test.ts'

const CALLS = Number(process.env['ENTRACTE_GROWTH_CALLS'] ?? 300)
const WARM_UP_CALLS = 100
const AT_ONCE = 3
/** Beyond what a call could leave, over all of them: the allocator's and the collector's own breathing. */
const BREATHING_BYTES = 24 * 1024 * 1024
/** The test keeps some of each call itself. One that leaves a few kilobytes is found at 10,000 calls; the quick run finds one that leaves a tenth of a megabyte. */
const BYTES_PER_CALL_MAX = 1_024

let directory = ''
let engine: EngineUnderTest
setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

before(() => {
  directory = mkdtempSync(join(tmpdir(), 'entracte-growth-'))
  const modelPath = join(directory, 'tiny.gguf')
  writeTinyGguf(modelPath)
  engine = new EngineUnderTest({ modelPath, lanes: 4, laneTokens: 1_024, chunkTokens: 64, threads: 1, flashAttention: false, exact: PROVEN })
})
after(async () => {
  await engine.kill()
  rmSync(directory, { recursive: true, force: true })
})

/** What the collector has set aside for itself and not filled is no growth: `native` is what is resident beside its heap. */
function held(): { readonly native: number; readonly external: number; readonly heap: number } {
  const { rss, heapTotal, heapUsed, external } = process.memoryUsage()
  return { native: rss - heapTotal, external, heap: heapUsed }
}

/** Every third is cancelled half-way, every fourth has a tool it must call, and so a grammar. */
async function one(number: number): Promise<void> {
  const call = `call-${number}`
  const state = `state-${number}`
  const tools = number % 4 === 0 ? [{ name: 'look', description: 'Looks.', parameters: { type: 'object', properties: { at: { type: 'string' } } } }] : []
  const body = JSON.stringify({
    model: 'm', messages: [{ role: 'user', content: `say ${number}`, toolCalls: [], toolCallId: null }], tools, toolChoice: tools.length > 0 ? 'required' : 'none',
    sampling: { temperature: 1, topP: 0.9, topK: 0, minP: 0 }, stop: [], maxTokens: null,
  })
  const sized = engine.next((event) => (event.kind === 'measured' || event.kind === 'unmeasurable') && event.call === call)
  engine.tell({ kind: 'measure', call, body, records: [] })
  const { event, bin } = await sized
  assert.equal(event.kind, 'measured', JSON.stringify(event))
  const isCancelled = number % 3 === 0
  const told = engine.next((event) => (event.kind === 'failed' || event.kind === 'finished' || (isCancelled && event.kind === 'tokens')) && event.call === call)
  engine.tell({
    kind: 'start', call, attempt: 1, epoch: 0, state, body, baseTokens: 0, keepTokens: 0, recomputeTokens: 0, replay: 'exact', forced: [],
    seed: number, maxTokens: 6, rank: number, tenant: 't', grantGranules: 1,
  }, [bin[0] ?? new Uint8Array()])
  const { event: end } = await told
  assert.notEqual(end.kind, 'failed', JSON.stringify(end))
  if (isCancelled) engine.tell({ kind: 'cancel', call, attempt: 1 })
  engine.tell({ kind: 'discard', state })
}

async function calls(from: number, count: number): Promise<void> {
  for (let number = from; number < from + count; number += AT_ONCE) {
    await Promise.all(Array.from({ length: AT_ONCE }, (_, i) => one(number + i)))
    engine.heard.length = 0
  }
  collect()
}

test('calls leave resident memory and native allocations where they were', async () => {
  await calls(0, WARM_UP_CALLS)
  const begun = held()
  await calls(WARM_UP_CALLS + AT_ONCE, CALLS)
  const ended = held()
  const allowed = BREATHING_BYTES + CALLS * BYTES_PER_CALL_MAX
  for (const kind of ['native', 'external', 'heap'] as const) {
    const grown = ended[kind] - begun[kind]
    assert.ok(grown < allowed, `${kind}: ${grown} bytes more over ${CALLS} calls; at most ${allowed} were expected`)
  }
})
