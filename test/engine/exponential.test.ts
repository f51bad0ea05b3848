import assert from 'node:assert/strict'
import { test } from 'node:test'
import { exponential } from '../../src/engine/exponential.ts'

test('it is what Math.exp says, to 1e-13', () => {
  for (let x = 0; x > -700; x -= 0.0137) {
    const off = Math.abs(exponential(x) / Math.exp(x) - 1)
    assert.ok(off < 1e-13, `at ${x} it is off by ${off}`)
  }
})

test('of the best token it is 1 exactly, and of a token that is masked 0', () => {
  assert.equal(exponential(0), 1)
  assert.equal(exponential(-Infinity), 0)
  assert.equal(exponential(-701), 0)
  assert.equal(exponential(Number.NaN), Number.NaN)
})

test('what is less likely never weighs more', () => {
  let last = 1
  for (let x = 0; x > -40; x -= 1 / 4_096) {
    const weight = exponential(x)
    assert.ok(weight <= last, `it rises at ${x}`)
    last = weight
  }
})

/** Of the bits of 64 values: another order of operations, or one that is fused, changes it. */
test('it is bit for bit the same on every machine', () => {
  const values = Float64Array.from({ length: 64 }, (_, i) => exponential(-i * 0.7310585786))
  assert.equal(Buffer.from(values.buffer).reduce((sum, byte) => (Math.imul(sum, 31) + byte) | 0, 7), -1_488_409_578)
})
