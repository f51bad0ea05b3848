import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { imageKey } from '../../src/engine/kv-manifest.ts'
import { Llama, LlamaError } from '../../src/engine/llama/llama.ts'
import type { LlamaOptions, Row } from '../../src/engine/llama/llama.ts'
import { pad, paddedCount, type RowUnit } from '../../src/engine/llama/padding.ts'
import { quantise } from '../../src/engine/llama/quantise.ts'
import { weigh } from '../../src/engine/weigh.ts'
import { tinyModel } from '../real-model.ts'
import { writeShape } from '../models/shapes.ts'

const folder = mkdtempSync(join(tmpdir(), 'entracte-padding-'))
const f16 = join(folder, 'f16.gguf')
before(async () => quantise(await tinyModel(), f16, 'F16', 1))
after(() => rmSync(folder, { recursive: true, force: true }))

const row = (lane: number, position: number, logits: boolean): Row => ({ token: 65 + position % 100, position, lane, logits })
const load = (rowUnit: RowUnit, change: Partial<LlamaOptions> = {}): Llama => Llama.load({
  modelPath: f16, lanes: 4, laneTokens: 512, batchTokens: 64, threads: 1, flashAttention: false, extraBuffers: true, rowUnit, libraryDir: null, ...change,
})

describe('rows that are padded', () => {
  test('are followed by what continues them, and found where they went', () => {
    const rows = [row(0, 5, true), row(2, 7, false), row(3, 0, false), row(3, 1, false), row(3, 2, true)]
    const { rows: all, places, cuts } = pad(rows, 4)
    assert.deepEqual([...places], [0, 4, 8, 9, 10])
    assert.deepEqual(all.map(({ lane, position }) => [lane, position]), [
      [0, 5], [0, 6], [0, 7], [0, 8], [2, 7], [2, 8], [2, 9], [2, 10], [3, 0], [3, 1], [3, 2], [3, 3],
    ])
    // A lone row has company in the last matrices too; of a prefill one row asks, whatever its length.
    assert.deepEqual(all.map(({ logits }) => logits), [true, true, true, true, false, false, false, false, false, false, true, false])
    assert.deepEqual(cuts, [{ lane: 0, from: 6 }, { lane: 2, from: 8 }, { lane: 3, from: 3 }])
  })

  test('are as many as the unit wants, and no more', () => {
    assert.deepEqual([1, 2, 3, 4, 5].map((rows) => paddedCount(rows, 1)), [1, 2, 3, 4, 5])
    assert.deepEqual([1, 2, 3, 4, 5].map((rows) => paddedCount(rows, 2)), [2, 2, 3, 4, 5])
    assert.deepEqual([1, 2, 3, 4, 5].map((rows) => paddedCount(rows, 4)), [4, 4, 4, 4, 8])
    assert.deepEqual(pad([row(1, 0, false), row(1, 1, true)], 2).cuts, [])
  })

  test('leave nothing in a lane, up to its last token', async () => {
    const llama = load(4)
    const { laneTokens } = llama.info
    for (let done = 0; done < laneTokens;) {
      const count = Math.min(63, laneTokens - done)
      await llama.decode(Array.from({ length: count }, (_, i) => row(1, done + i, i === count - 1)))
      done += count
      assert.equal(llama.laneUsed(1), done)
    }
    await assert.rejects(llama.decode([row(1, laneTokens, true)]), LlamaError)
    await assert.rejects(llama.decode(Array.from({ length: 4 }, (_, lane) => Array.from({ length: 13 }, (_, i) => row(lane === 1 ? 2 : lane, i, false))).flat()), LlamaError)
    llama.dispose()
  })

  test('are a State of their own kind, which no other engine reads', () => {
    const keys = ([1, 2, 4] as const).map((unit) => {
      const llama = load(unit)
      const key = imageKey(llama.info, 'm')
      llama.dispose()
      return key
    })
    assert.equal(new Set(keys).size, 3)
    assert.match(keys[1] ?? '', /\/rows2$/)
  })

  test('are refused by name where what pads a lane could not be cut again', () => {
    const recurrent = join(folder, 'recurrent.gguf')
    writeShape(recurrent, 'recurrent')
    assert.throws(() => load(2, { modelPath: recurrent }), (error) => error instanceof LlamaError && /rowUnit 2.*cannot be cut/.test(error.message))
  })
})

test('weights in F16 are exact with two rows and not with one, and it is said what that costs', async () => {
  for (const [unit, answer] of [[1, 'no'], [2, 'yes'], [4, 'yes']] as const) {
    const llama = load(unit)
    const { exact, prefillTokensPerS, decodeTokensPerS } = await weigh(llama, 64, null)
    assert.equal(exact.answer, answer, `rows ${unit}: ${exact.because}`)
    assert.ok(prefillTokensPerS > 0 && decodeTokensPerS > 0)
    for (let lane = 0; lane < 4; lane++) assert.equal(llama.laneUsed(lane), 0)
    llama.dispose()
  }
})
