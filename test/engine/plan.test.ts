import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { Plan } from '../../src/engine/plan.ts'
import type { Run } from '../../src/engine/plan.ts'

const prompt = (length: number): Int32Array => Int32Array.from({ length }, (_, i) => i + 100)
const given = (tokens: number): Run => ({ tokens, origin: 'prefilled' })
const generated = (tokens: number): Run => ({ tokens, origin: 'decoded' })

/** Everything a plan feeds, as `p12` and `d`. */
function steps(plan: Plan, chunkTokens: number): string[] {
  const said: string[] = []
  for (let at = plan.begin; at < plan.tokens.length;) {
    const piece = plan.piece(at, chunkTokens)
    const count = piece.kind === 'prefill' ? piece.count : 1
    said.push(piece.kind === 'prefill' ? `p${count}` : 'd')
    at += count
  }
  return said
}

test('a remainder of one token borrows from the chunk before', () => {
  assert.deepEqual(steps(new Plan(prompt(17), [given(17)], [], 0, false), 8), ['p8', 'p7', 'p2'])
  assert.deepEqual(steps(new Plan(prompt(18), [given(18)], [], 0, false), 8), ['p8', 'p8', 'p2'])
})

test('given tokens are prefilled and generated tokens are decoded again', () => {
  const plan = new Plan(prompt(9), [given(4), generated(2), given(3)], [7, 8, 9], 0, false)
  assert.deepEqual(steps(plan, 8), ['p4', 'd', 'd', 'p3', 'd', 'd'])
})

test('a lone given token is decoded', () => {
  assert.deepEqual(steps(new Plan(prompt(5), [generated(2), given(1), generated(2)], [], 0, false), 8), ['d', 'd', 'd', 'd', 'd'])
})

test('a kept prefix that would leave one given token steps back and feeds two', () => {
  const plan = new Plan(prompt(10), [given(10)], [], 9, false)
  assert.equal(plan.begin, 8)
  assert.deepEqual(steps(plan, 8), ['p2'])
})

test('a prompt that is wholly held feeds its end again, for its logits', () => {
  assert.equal(new Plan(prompt(10), [given(10)], [], 10, false).begin, 8)
  assert.equal(new Plan(prompt(10), [given(8), generated(2)], [], 10, false).begin, 9)
})

test('a prompt that is wholly held feeds nothing where its output was shown', () => {
  assert.equal(new Plan(prompt(10), [given(10)], [5], 10, false).begin, 10)
  assert.equal(new Plan(prompt(10), [given(10)], [5, 6], 11, false).begin, 11)
})

test('plain recompute prefills what is not held and says that it deviates', () => {
  const plan = new Plan(prompt(9), [given(4), generated(2), given(3)], [7, 8, 9], 0, true)
  assert.deepEqual(steps(plan, 8), ['p8', 'p3'])
  assert.equal(plan.deviates, true)
  const kept = new Plan(prompt(9), [given(4), generated(2), given(3)], [], 6, true)
  assert.deepEqual(steps(kept, 8), ['p3'])
  assert.equal(kept.deviates, false)
  assert.equal(kept.origin(5), 'decoded')
})

test('whatever is kept and whatever the chunks, every token is fed as planned and none is prefilled alone', () => {
  const runs = fc.array(fc.record({ tokens: fc.integer({ min: 1, max: 20 }), origin: fc.constantFrom('prefilled' as const, 'decoded' as const) }), { minLength: 1, maxLength: 6 })
  fc.assert(fc.property(runs, fc.array(fc.nat(50), { maxLength: 5 }), fc.nat(130), fc.integer({ min: 4, max: 30 }), (planned, forced, held, chunk) => {
    const length = planned.reduce((sum, run) => sum + run.tokens, 0)
    const whole = new Plan(prompt(length), planned, forced, 0, false)
    const plan = new Plan(prompt(length), planned, forced, held, false)
    assert.ok(plan.begin <= Math.max(held, 0) && plan.begin >= Math.min(held, plan.tokens.length) - 2)
    for (let at = plan.begin; at < plan.tokens.length;) {
      const piece = plan.piece(at, chunk)
      const count = piece.kind === 'prefill' ? piece.count : 1
      if (piece.kind === 'prefill') assert.ok(count >= 2 && count <= chunk)
      for (let i = at; i < at + count; i++) assert.equal(whole.origin(i), piece.kind === 'prefill' ? 'prefilled' : 'decoded')
      at += count
      assert.ok(at <= plan.tokens.length)
    }
    if (forced.length === 0) assert.ok(plan.begin < plan.tokens.length)
  }))
})
