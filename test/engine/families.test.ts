import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import type { Sampling } from '../../src/protocol/chat.ts'
import type { EngineEvent } from '../../src/protocol/engine.ts'
import { capabilitiesOf } from '../../src/engines/embedded-words.ts'
import { Llama, type Row } from '../../src/engine/llama/llama.ts'
import { SHAPES, writeShape, type Shape } from '../models/shapes.ts'
import { EngineUnderTest, PROVEN } from './engine-under-test.ts'
import type { Command } from './played-engine.ts'

const LANES = 3
const folder = mkdtempSync(join(tmpdir(), 'entracte-families-'))
const pathOf = (shape: Shape): string => join(folder, `${shape}.gguf`)
before(() => { for (const shape of SHAPES) writeShape(pathOf(shape), shape) })
after(() => rmSync(folder, { recursive: true, force: true }))

/** What each family can do with a State: cut it at a token, and give its image. All can be copied. */
const CAN: Readonly<Record<Shape, { readonly trims: boolean; readonly images: boolean; readonly memory: string }>> = {
  dense: { trims: true, images: true, memory: 'attention' },
  grouped: { trims: true, images: true, memory: 'attention' },
  window: { trims: true, images: false, memory: 'window' },
  places: { trims: true, images: false, memory: 'attention' },
  recurrent: { trims: false, images: false, memory: 'recurrent' },
  hybrid: { trims: false, images: false, memory: 'hybrid' },
}

const PROMPT = [...Buffer.from('a prompt of some forty tokens, which a window is not')]

describe('a State of each family', () => {
  for (const shape of SHAPES) {
    const loaded = async (use: (llama: Llama) => Promise<void>): Promise<void> => {
      const llama = Llama.load({ modelPath: pathOf(shape), lanes: LANES, laneTokens: 256, batchTokens: 128, threads: 1, flashAttention: false, extraBuffers: true, libraryDir: null })
      try { await use(llama) } finally { llama.dispose() }
    }
    const rows = (lane: number, tokens: readonly number[], from = 0): Row[] =>
      tokens.map((token, index) => ({ token, position: from + index, lane, logits: index === tokens.length - 1 }))
    const fed = async (llama: Llama, lane: number, tokens: readonly number[], from = 0): Promise<Float32Array> => {
      await llama.decode(rows(lane, tokens, from))
      return llama.logits(tokens.length - 1)
    }

    test(`${shape}: what it can do is found out at load`, () => loaded(async ({ info }) => {
      assert.deepEqual({ trims: info.trims, images: info.images, memory: info.memory }, CAN[shape])
      assert.ok(info.copies)
      assert.ok(info.kvBytesPerToken > 0 || info.stateBytes > 0)
    }))

    test(`${shape}: cut and continued it is as if it had never been longer, or it is empty`, () => loaded(async (llama) => {
      const whole = await fed(llama, 0, PROMPT)
      await fed(llama, 0, [1, 2, 3, 4], PROMPT.length)
      const left = llama.cut(0, PROMPT.length)
      assert.equal(left, CAN[shape].trims ? PROMPT.length : 0)
      assert.equal(llama.laneUsed(0), left)
      const again = left === 0 ? await fed(llama, 0, PROMPT) : whole
      assert.deepEqual(again, whole)
      const next = await fed(llama, 0, [7, 8], PROMPT.length)
      await fed(llama, 1, PROMPT)
      assert.deepEqual(next, await fed(llama, 1, [7, 8], PROMPT.length))
    }))

    test(`${shape}: a copy that is cut goes on as if it had never been longer, or it is empty`, () => loaded(async (llama) => {
      const long = Array.from({ length: 120 }, (_, index) => (index * 37 + 11) % 200)
      for (const to of [119, 110, 90, 60]) {
        for (let lane = 0; lane < LANES; lane++) llama.cut(lane, 0)
        await fed(llama, 0, long)
        llama.copyLane(0, 1)
        const left = llama.cut(1, to)
        assert.equal(left, llama.info.cutsCopies ? to : 0)
        assert.equal(llama.laneUsed(1), left)
        if (left === 0) await fed(llama, 1, long.slice(0, to))
        await fed(llama, 2, long.slice(0, to))
        assert.deepEqual(await fed(llama, 1, [7, 8], to), await fed(llama, 2, [7, 8], to))
      }
    }))

    test(`${shape}: a copy goes on as the one it was copied from`, () => loaded(async (llama) => {
      await fed(llama, 0, PROMPT)
      llama.copyLane(0, 2)
      assert.equal(llama.laneUsed(2), PROMPT.length)
      assert.deepEqual(await fed(llama, 2, [7, 8], PROMPT.length), await fed(llama, 0, [7, 8], PROMPT.length))
    }))
  }
})

test('how weights come into memory changes no bit of a logit', async () => {
  const seen: Float32Array[] = []
  for (const load of ['auto', 'map', 'lock', 'read'] as const) {
    const llama = Llama.load({ modelPath: pathOf('grouped'), lanes: 1, laneTokens: 256, batchTokens: 128, threads: 1, flashAttention: false, extraBuffers: true, load, libraryDir: null })
    await llama.decode(PROMPT.map((token, position) => ({ token, position, lane: 0, logits: position === PROMPT.length - 1 })))
    seen.push(llama.logits(PROMPT.length - 1))
    llama.dispose()
  }
  for (const logits of seen) assert.deepEqual(logits, seen[0])
})

describe('a call on each family', () => {
  for (const shape of SHAPES) {
    const shaped = async (use: (engine: EngineUnderTest) => Promise<void>): Promise<void> => {
      const engine = new EngineUnderTest({ modelPath: pathOf(shape), lanes: LANES, laneTokens: 512, chunkTokens: 16, threads: 1, flashAttention: false, exact: PROVEN })
      try { await use(engine) } finally { await engine.kill() }
    }

    test(`${shape}: paused, cancelled, ended by a stop string and gone on with, it has the tokens it would have had`, () => shaped(async (engine) => {
      const alone = await run(engine, 'alone', {})
      // Paused in the middle and resumed with what was shown forced.
      await start(engine, 'paused', {})
      await engine.next((event) => event.kind === 'tokens' && event.call === 'paused')
      engine.tell({ kind: 'pause', call: 'paused', attempt: 1 })
      await engine.next((event) => event.kind === 'paused')
      const shown = tokensOf(engine, 'paused')
      assert.ok(shown.length > 0 && shown.length < alone.length)
      await run(engine, 'paused', { attempt: 2, forced: shown, keepTokens: 1_000 })
      assert.deepEqual(tokensOf(engine, 'paused'), alone)
      // Cancelled in the middle and begun anew on the same State.
      await start(engine, 'first', { state: 's' })
      await engine.next((event) => event.kind === 'tokens' && event.call === 'first')
      engine.tell({ kind: 'cancel', call: 'first', attempt: 1 })
      assert.deepEqual(await run(engine, 'second', { state: 's', keepTokens: 1_000 }), alone)
      // Cut before a stop string, and the same call again on the State that was cut.
      const text = engine.of('tokens').filter(({ call }) => call === 'alone').flatMap(({ parts }) => parts).map((part) => part.kind === 'text' ? part.text : '').join('')
      const stop = text.slice(10, 12)
      const stopped = await run(engine, 'stopped', { body: body([stop]), state: 't' })
      assert.ok(stopped.length < alone.length)
      assert.deepEqual(await run(engine, 'again', { state: 't', keepTokens: 1_000 }), alone)
      // Once more on a State that goes on further than what is asked.
      assert.deepEqual(await run(engine, 'shorter', { state: 't', keepTokens: 1_000 }), alone)
    }))

    test(`${shape}: what the family cannot is not declared, and refused by name where it is asked for all the same`, () => shaped(async (engine) => {
      const { trims, images } = CAN[shape]
      const capabilities = capabilitiesOf(['m'], engine.loop.describe())
      const { trim, copy, offload, onboard, imageKey } = capabilities
      assert.deepEqual({ trim, copy, offload, onboard, hasKey: imageKey !== null }, { trim: trims, copy: true, offload: images, onboard: images, hasKey: images })
      assert.ok(capabilities.kvBytesPerToken > 0)
      if (images) return
      await run(engine, 'a', {})
      const identity = { tenant: 'state-a', state: 'state-a', owner: 'o', epoch: 0, reign: 1 }
      engine.tell({ kind: 'offload', move: 'm', state: 'state-a', path: join(folder, 'image'), spans: [], identity })
      const { event } = await engine.next(({ kind }) => kind === 'moveFailed')
      assert.match(JSON.stringify(event), /a State of this model has no image/)
    }))
  }
})

type Start = Extract<Command, { kind: 'start' }>

const SAMPLING: Sampling = { temperature: 1, topP: 1, topK: 0, minP: 0 }
const body = (stop: readonly string[]): string => JSON.stringify({
  model: 'm', messages: [{ role: 'user', content: 'hello, hello', toolCalls: [], toolCallId: null }], tools: [], toolChoice: 'none', sampling: SAMPLING, stop, maxTokens: null,
})

async function start(engine: EngineUnderTest, call: string, other: Partial<Start>): Promise<void> {
  const said = other.body ?? body([])
  engine.tell({ kind: 'measure', call, body: said, records: [] })
  const { bin } = await engine.next((event) => event.kind === 'measured' && event.call === call)
  engine.tell({
    kind: 'start', call, attempt: 1, epoch: 0, state: `state-${call}`, body: said, baseTokens: 0, keepTokens: 0, recomputeTokens: 0, replay: 'exact',
    forced: [], seed: 11, maxTokens: 40, rank: 0, tenant: other.state ?? `state-${call}`, grantGranules: 1, ...other,
  }, [bin[0] ?? new Uint8Array()])
}

/** Its tokens; the State is let go where it is nobody else's. */
async function run(engine: EngineUnderTest, call: string, other: Partial<Start>): Promise<number[]> {
  await start(engine, call, other)
  const wants = (event: EngineEvent): boolean => (event.kind === 'finished' || event.kind === 'failed') && event.call === call
  const { event } = await engine.next(wants)
  assert.equal(event.kind, 'finished', JSON.stringify(event))
  if (other.state === undefined && call !== 'a') engine.tell({ kind: 'discard', state: `state-${call}` })
  return tokensOf(engine, call)
}

const tokensOf = (engine: EngineUnderTest, call: string): number[] =>
  engine.of('tokens').filter((event) => event.call === call).flatMap((event) => event.tokens)
