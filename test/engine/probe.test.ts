import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { tinyModel } from '../real-model.ts'
import { EngineUnderTest } from './engine-under-test.ts'
import type { EngineShape } from './engine-under-test.ts'

let engine: EngineUnderTest
afterEach(async () => { await engine.kill() })

async function open(shape: Partial<EngineShape> = {}): Promise<void> {
  engine = new EngineUnderTest({
    modelPath: await tinyModel(), lanes: 4, laneTokens: 512, chunkTokens: 64, threads: 1, flashAttention: false, exact: null, ...shape,
  })
}

const BODY = JSON.stringify({
  model: 'm', messages: [{ role: 'user', content: 'hi', toolCalls: [], toolCallId: null }], tools: [], toolChoice: 'none',
  sampling: { temperature: 1, topP: 1, topK: 0, minP: 0 }, stop: [], maxTokens: null,
})

async function call(name: string): Promise<number[]> {
  engine.tell({ kind: 'measure', call: name, body: BODY, records: [] })
  const { bin } = await engine.next((event) => event.kind === 'measured' && event.call === name)
  engine.tell({
    kind: 'start', call: name, attempt: 1, epoch: 0, state: name, body: BODY, baseTokens: 0, keepTokens: 0, recomputeTokens: 0,
    replay: 'exact', forced: [], seed: 4, maxTokens: 20, rank: 0, tenant: 't', grantGranules: 1,
  }, bin)
  await engine.next((event) => event.kind === 'finished' && event.call === name)
  return engine.of('tokens').filter((event) => event.call === name).flatMap((event) => event.tokens)
}

test('lanes without flash attention are exact, and the engine says so', async () => {
  await open()
  assert.equal(engine.of('welcome')[0]?.engine.exact.answer, 'unknown')
  const { event } = await engine.next((each) => each.kind === 'engine')
  assert.ok(event.kind === 'engine')
  assert.equal(event.engine.exact.answer, 'yes', event.engine.exact.because)
  assert.match(event.engine.exact.because, /beside up to 3 other lanes/)
})

test('with flash attention chunks change the logits, and the engine says so', async () => {
  await open({ flashAttention: true })
  const { event } = await engine.next((each) => each.kind === 'engine')
  assert.ok(event.kind === 'engine')
  assert.equal(event.engine.exact.answer, 'no', event.engine.exact.because)
})

test('the probe lets go of its lanes for whoever comes, changes nothing for them, and ends when they are gone', async () => {
  await open({ lanes: 3 })
  const answered = engine.next((each) => each.kind === 'engine')
  const outputs: number[][] = []
  for (let i = 0; i < 12; i++) {
    const names = ['a', 'b', 'c'].map((name) => `${name}${i}`)
    outputs.push(...await Promise.all(names.map(call)))
    for (const state of names) engine.tell({ kind: 'discard', state })
    await sleep(i)
  }
  await answered
  assert.equal(engine.of('failed').length, 0)
  for (const output of outputs) assert.deepEqual(output, outputs[0])
})

test('the probe asks no more of a batch than it holds, however many lanes and however small its chunks', async () => {
  for (const [lanes, chunkTokens] of [[3, 4], [24, 16], [40, 32]] as const) {
    await open({ lanes, chunkTokens })
    const { event } = await engine.next((each) => each.kind === 'engine')
    assert.ok(event.kind === 'engine')
    assert.equal(event.engine.exact.answer, 'yes', event.engine.exact.because)
    assert.match(event.engine.exact.because, new RegExp(`up to ${lanes - 1} other lanes`))
    if (lanes < 40) await engine.kill()
  }
})

test('without two free lanes the probe waits', async () => {
  await open({ lanes: 1 })
  await sleep(100)
  assert.equal(engine.of('engine').length, 0)
  assert.equal((await call('one')).length > 0, true)
})
