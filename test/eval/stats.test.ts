import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { Draw } from '../../src/eval/draw.ts'
import { estimate, mean, median, pairedRatio, quantile, ratio } from '../../src/eval/stats.ts'

describe('a quantile', () => {
  test('is linear between neighbours and does not care for order', () => {
    assert.equal(quantile([4, 1, 3, 2], 0.5), 2.5)
    assert.equal(median([9, 1, 5]), 5)
    assert.equal(quantile([1, 2, 3, 4, 5], 0.95), 4.8)
    assert.equal(quantile([7], 0.95), 7)
  })
  test('of nothing is refused', () => {
    assert.throws(() => quantile([], 0.5), RangeError)
    assert.throws(() => mean([]), RangeError)
  })
})

describe('an interval', () => {
  test('of a constant ratio is that ratio', () => {
    const runs = [{ base: [2, 4, 6], other: [1, 2, 3] }, { base: [8, 10], other: [4, 5] }]
    assert.deepEqual(pairedRatio(runs, mean), { value: 2, low: 2, high: 2 })
  })
  test('is wider where programs differ, holds the value, and is the same again', () => {
    const runs = [{ base: [10, 40, 12, 90], other: [9, 20, 13, 30] }, { base: [14, 60, 11, 70], other: [12, 28, 12, 35] }]
    const found = pairedRatio(runs, mean)
    assert.ok(found.low < found.value && found.value < found.high, JSON.stringify(found))
    assert.deepEqual(pairedRatio(runs, mean), found)
  })
  test('pairs programs: what is slow on both sides does not widen it', () => {
    const base = [1, 2, 4, 8, 16, 32, 64, 128]
    const paired = pairedRatio([{ base, other: base.map((value) => value / 2) }], mean)
    const apart = ratio(base, base.map((value) => value / 2), mean)
    assert.ok(paired.high - paired.low < 1e-9 && apart.high - apart.low > 1)
  })
  test('covers the truth about as often as it says', () => {
    const draw = new Draw(5)
    let covered = 0
    for (let round = 0; round < 60; round += 1) {
      const values = Array.from({ length: 30 }, () => draw.exponential(10))
      const found = estimate(values, mean, round)
      if (found.low <= 10 && 10 <= found.high) covered += 1
    }
    assert.ok(covered >= 48, `${covered} of 60`)
  })
  test('refuses sides of different length', () => {
    assert.throws(() => pairedRatio([{ base: [1, 2], other: [1] }], mean), RangeError)
  })
})

describe('a draw', () => {
  test('is the same for the same seed and name, and another for another', () => {
    const take = (seed: number, name: string): number[] => { const draw = Draw.of(seed, name); return [draw.unit(), draw.unit(), draw.unit()] }
    assert.deepEqual(take(1, 'a'), take(1, 'a'))
    assert.notDeepEqual(take(1, 'a'), take(1, 'b'))
    assert.notDeepEqual(take(1, 'a'), take(2, 'a'))
  })
  test('is even, and shuffling keeps everything', () => {
    const draw = new Draw(3)
    const units = Array.from({ length: 4_000 }, () => draw.unit())
    assert.ok(Math.abs(mean(units) - 0.5) < 0.02 && units.every((unit) => unit >= 0 && unit < 1))
    assert.deepEqual(draw.shuffled([1, 2, 3, 4, 5]).sort(), [1, 2, 3, 4, 5])
    assert.throws(() => draw.pick([]), RangeError)
  })
})
