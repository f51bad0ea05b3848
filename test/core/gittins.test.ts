import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { gittins } from '../../src/core/policy/order/gittins.ts'
import { PPM } from '../../src/core/predict/curve.ts'
import { effectiveSize, levelOfSize } from '../../src/core/predict/effective-size.ts'
import { learnService } from '../../src/core/predict/learn.ts'
import { sizeBucketOf, sizeHazards, sizeStart, toldUpTo } from '../../src/core/predict/work.ts'
import type { Program } from '../../src/core/state.ts'
import { Learned, T } from './learned.ts'

const keyOf = (learned: Learned, program: Program) => gittins.key(learned.core, { program: program.id } as never)
const levelAt = (learned: Learned, sizeMs: number, kind = 'agent'): number => keyOf(learned, learned.open(sizeMs, kind)).level

/** Spent over ended, for every way to go on for a while, in floats and in small steps. */
function naive(hazards: readonly number[], attained: number): number {
  const endsBefore = (size: number): number => {
    let alive = 1
    for (let bucket = 0; bucket < hazards.length && sizeStart(bucket) < size; bucket += 1) {
      const share = Math.min(1, (size - sizeStart(bucket)) / (sizeStart(bucket + 1) - sizeStart(bucket)))
      alive *= 1 - ((hazards[bucket] ?? 0) / PPM) * share
    }
    return 1 - alive
  }
  const gone = endsBefore(attained)
  let best = Infinity
  for (let bucket = sizeBucketOf(attained, hazards.length) + 1; bucket <= hazards.length; bucket += 1) {
    const until = sizeStart(bucket)
    let spent = 0
    for (let step = 0; step < 400; step += 1) spent += ((1 - endsBefore(attained + ((until - attained) * (step + 0.5)) / 400)) * (until - attained)) / 400
    const ends = endsBefore(until) - gone
    if (ends > 0) best = Math.min(best, spent / ends)
  }
  return best
}

test('the effective size is the least spent for each that ends, as reckoned slowly in floats', () => {
  fc.assert(fc.property(fc.array(fc.nat(300_000), { minLength: 24, maxLength: 24 }), fc.nat(100), (hazards, attained) => {
    const slow = naive(hazards, attained)
    const fast = effectiveSize(hazards, attained)
    // Further than that a chance in parts per million is too coarse.
    if (slow > 2e4) return
    assert.ok(Math.abs(fast - slow) <= 1 + slow * 0.03, `${fast} and ${slow}`)
  }), { numRuns: 60 })
})

test('beyond what enough have needed nobody is sent down, until it is far more', () => {
  const learned = new Learned()
  for (let index = 0; index < 10; index += 1) learned.ended(1_000 + 100 * index)
  const levels = [0, 1_500, 2_500, 5_000, 7_000, 14_000, 28_000].map((size) => levelAt(learned, size))
  assert.ok(Math.max(...levels.slice(0, 4)) <= (levels[0] ?? 0), levels.join(' '))
  assert.ok((levels[5] ?? 0) > (levels[3] ?? 0) && (levels[6] ?? 0) > (levels[5] ?? 0), levels.join(' '))
})

test('where few were seen the level stays what it was where enough were', () => {
  const learned = new Learned()
  for (const ms of [1_000, 1_100, 1_200, 1_300, 2_000, 2_100, 2_200, 4_000, 8_000, 16_000]) learned.ended(ms)
  const told = toldUpTo(learned.core.learned.work.service)
  assert.ok(told > 1_500 && told < 3_000, `${told}`)
  assert.equal(levelAt(learned, 3 * told), levelAt(learned, told))
})

test('levels are factors of two', () => {
  assert.deepEqual([0, 1, 2, 3, 4, 1_000, 1_024].map(levelOfSize), [0, 0, 1, 1, 2, 9, 10])
})

test('where sizes are heavy-tailed it is least attained service: who has received more never goes before', () => {
  const learned = new Learned()
  for (let index = 0; index < 400; index += 1) learned.ended(Math.round(100 / ((index + 0.5) / 400)))
  const levels = [200, 400, 800, 1_600, 3_200, 6_400, 12_800].map((size) => levelAt(learned, size))
  assert.deepEqual(levels, [...levels].sort((a, b) => a - b))
  assert.ok(new Set(levels).size >= 6, levels.join(' '))
})

test('where sizes are alike it is oldest first: who has begun goes on, and nobody takes turns', () => {
  const learned = new Learned()
  for (let index = 0; index < 400; index += 1) learned.ended(9_000 + (index % 20) * 100)
  const levels = [0, 1_000, 2_000, 4_000, 8_000, 9_000, 10_000].map((size) => levelAt(learned, size))
  assert.deepEqual(levels, [...levels].sort((a, b) => b - a))
  const [older, younger] = [learned.program(), learned.program()]
  assert.ok(gittins.preempts(keyOf(learned, older), keyOf(learned, younger)))
  assert.equal(gittins.preempts(keyOf(learned, younger), keyOf(learned, older)), false)
})

test('a small kind goes before a large one, and each of them oldest first', () => {
  const learned = new Learned()
  for (let index = 0; index < 50; index += 1) {
    learned.ended(500, 'small')
    learned.ended(60_000, 'large')
  }
  assert.ok(levelAt(learned, 0, 'small') + 5 < levelAt(learned, 0, 'large'))
})

test('without data the oldest goes first, and only who received far more than usual goes down, one level a doubling', () => {
  const learned = new Learned()
  const programs = Array.from({ length: 20 }, () => learned.open(1_000))
  const levels = new Set(programs.map((program) => keyOf(learned, program).level))
  assert.equal(levels.size, 1)
  const ties = programs.map((program) => keyOf(learned, program).tie)
  assert.deepEqual(ties, [...ties].sort((a, b) => a - b))
  const [big] = programs as [Program]
  learnService(learned.core, big, 30_000_000, 0)
  const first = keyOf(learned, big).level
  assert.ok(!levels.has(first) && first > Math.max(...levels))
  learnService(learned.core, big, 80_000_000, 0)
  assert.ok(keyOf(learned, big).level > first)
})

test('who came while nothing was known is no better than who begins once something is, whatever the size of programs', () => {
  for (const sizeMs of [20, 3_000, 10_000, 100_000, 10_000_000]) {
    const learned = new Learned()
    const { level } = keyOf(learned, learned.program())
    for (let index = 0; index < 20; index += 1) learned.ended(sizeMs)
    const later = keyOf(learned, learned.program()).level
    assert.ok(later <= level && later >= level - 1, `${later} and ${level}`)
  }
})

test('who waits goes before nobody who has begun only because sizes were learned a little better since', () => {
  for (const from of [900, 1_900, 3_900, 11_000]) {
    const learned = new Learned()
    learned.predicts = false
    for (let index = 0; index < 50; index += 1) learned.ended(1_000, 'first')
    for (let index = 0; index < 100; index += 1) learned.ended(from)
    const { level } = keyOf(learned, learned.program())
    for (let index = 0; index < 500; index += 1) {
      learned.ended(Math.round(from * (1 + 0.3 * Math.sin(index / 20))))
      assert.equal(keyOf(learned, learned.program()).level, level)
    }
    for (let index = 0; index < 1_000; index += 1) learned.ended(5 * from)
    assert.ok(keyOf(learned, learned.program()).level > level)
  }
})

test('a curve of one size says that size', () => {
  const learned = new Learned()
  for (let index = 0; index < 100; index += 1) learned.ended(10_000)
  const { service } = learned.core.tenants.get(T)?.learned.kinds.get('agent') ?? { service: null }
  assert.ok(service !== null)
  const size = effectiveSize(sizeHazards(service), 0)
  assert.ok(size > 8_000 && size < 13_000, `${size}`)
})
