import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { imageKey } from '../../src/engine/kv-manifest.ts'
import { hasLoneRow, prefillRowsMin } from '../../src/engine/llama/attention.ts'
import { Llama, LlamaError } from '../../src/engine/llama/llama.ts'
import type { LlamaOptions, Row } from '../../src/engine/llama/llama.ts'
import { chunkTokensMin, Plan } from '../../src/engine/plan.ts'
import type { Run } from '../../src/engine/plan.ts'
import { weigh } from '../../src/engine/weigh.ts'
import { tinyModel } from '../real-model.ts'

const ROWS_MIN = prefillRowsMin('exact')
const row = (lane: number, position: number): Row => ({ token: 65 + position % 100, position, lane, logits: true })

const load = async (change: Partial<LlamaOptions> = {}): Promise<Llama> => Llama.load({
  modelPath: await tinyModel(), lanes: 4, laneTokens: 768, batchTokens: 256, threads: 2, flashAttention: 'exact', extraBuffers: true, libraryDir: null, ...change,
})

/** Batches that a plan makes of what `kept` tokens leave to feed. */
function batches(plan: Plan, chunkTokens: number): { readonly origin: string; readonly begin: number; readonly count: number }[] {
  const made = []
  for (let at = plan.begin; at < plan.tokens.length;) {
    const piece = plan.piece(at, chunkTokens)
    const count = piece.kind === 'prefill' ? piece.count : 1
    made.push({ origin: plan.origin(at), begin: at, count })
    at += count
  }
  return made
}

describe('with exact attention', () => {
  test('each batch has rows enough for one routine or few enough for the other, and each token keeps its origin', () => {
    const run = fc.record<Run>({ tokens: fc.integer({ min: 1, max: 300 }), origin: fc.constantFrom('prefilled', 'decoded') })
    fc.assert(fc.property(
      fc.array(run, { minLength: 1, maxLength: 6 }), fc.integer({ min: 0, max: 90 }), fc.integer({ min: 0, max: 2_000 }), fc.integer({ min: chunkTokensMin(ROWS_MIN), max: 600 }),
      (runs, shown, held, chunkTokens) => {
        const total = runs.reduce((sum, { tokens }) => sum + tokens, 0)
        const forced = Array.from({ length: shown }, (_, i) => i)
        const whole = new Plan(new Int32Array(total), runs, forced, 0, false, ROWS_MIN)
        const plan = new Plan(new Int32Array(total), runs, forced, held, false, ROWS_MIN)
        assert.ok(plan.begin <= held)
        const made = batches(plan, chunkTokens)
        assert.equal(made.reduce((sum, { count }) => sum + count, plan.begin), plan.tokens.length)
        for (const { origin, begin, count } of made) {
          assert.ok(count <= chunkTokens)
          assert.ok(origin === 'prefilled' ? count >= ROWS_MIN : count < ROWS_MIN, `${count} rows of ${origin}`)
          for (let at = begin; at < begin + count; at++) assert.equal(whole.origin(at), origin)
        }
      },
    ))
  })

  test('a row is alone where no neighbouring lane has one, and matters once its lane is long', () => {
    const lone = (...lanes: readonly number[]): boolean => hasLoneRow(lanes.map((lane) => row(lane, 256)))
    assert.deepEqual([lone(0), lone(0, 1), lone(1, 2, 4), lone(0, 1, 3, 4), lone(2, 2, 2)], [true, false, true, false, false])
    assert.equal(hasLoneRow([row(3, 255)]), false)
    assert.equal(hasLoneRow([row(0, 700), row(1, 3), row(3, 12)]), false)
  })

  test('a lone row yields the same by one thread and beside a second row, and the lane holds what it was given', async () => {
    const logits = []
    for (const threads of [1, 2, 3]) {
      const llama = await load({ threads })
      await llama.decode(Array.from({ length: 256 }, (_, at) => row(1, at)))
      await llama.decode(Array.from({ length: 64 }, (_, at) => row(1, 256 + at)))
      const drawn = []
      for (let at = 320; at < 324; at++) {
        await llama.decode([row(1, at)])
        drawn.push(...llama.logits(0))
        assert.equal(llama.laneUsed(1), at + 1)
      }
      logits.push(drawn)
      llama.dispose()
    }
    assert.deepEqual(logits[1], logits[0])
    assert.deepEqual(logits[2], logits[0])
  })

  test('the probe finds a model exact, and flash attention as it comes not', async () => {
    for (const [flashAttention, answer] of [['exact', 'yes'], [true, 'no']] as const) {
      const llama = await load({ flashAttention })
      const { exact } = await weigh(llama, 256, null)
      llama.dispose()
      assert.equal(exact.answer, answer, exact.because)
    }
  })

  test('a State is of a kind of its own, and rows are not padded', async () => {
    const keys = []
    for (const flashAttention of [false, true, 'exact'] as const) {
      const llama = await load({ flashAttention })
      keys.push(imageKey(llama.info, 'digest'))
      llama.dispose()
    }
    assert.equal(new Set(keys).size, 3)
    await assert.rejects(load({ rowUnit: 2 }), LlamaError)
  })
})
