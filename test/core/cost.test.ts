import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { bucketOf, borders, emptyCurve, expectedWaitUs, returnsPpm, stillWaitingPpm, survivalOf, WAIT_BUCKETS } from '../../src/core/predict.ts'

const seen = (waitsMs: readonly number[]) => {
  const curve = emptyCurve()
  for (const ms of waitsMs) {
    const bucket = bucketOf(ms * 1_000)
    curve.counts[bucket] = (curve.counts[bucket] ?? 0) + 1
    curve.ended += 1
  }
  return curve
}

test('the chance of still waiting never rises with time and never leaves 0 to 1', () => {
  fc.assert(fc.property(fc.array(fc.nat(1_000_000), { maxLength: 60 }), fc.nat(10_000_000), (waits, elapsedUs) => {
    const survival = survivalOf(seen(waits), 'tool')
    let before = 1_000_000
    for (const aheadUs of borders(elapsedUs, 600_000_000)) {
      const now = stillWaitingPpm(survival, elapsedUs, aheadUs)
      assert.ok(now <= before + 1 && now >= 0, `${now} after ${before}`)
      before = now
    }
    const ppm = returnsPpm(survival, elapsedUs)
    assert.ok(ppm >= 0 && ppm <= 1_000_000)
    assert.ok(expectedWaitUs(survival, elapsedUs, 600_000_000) <= 600_000_000)
  }))
})

test('a wait that has lasted longer than nearly all seen is expected to last longer still', () => {
  const survival = survivalOf(seen(new Array<number>(200).fill(50)), 'tool')
  assert.ok(expectedWaitUs(survival, 0, 60_000_000) < 500_000)
  assert.ok(expectedWaitUs(survival, 2_000_000, 60_000_000) > 2_000_000)
})

test('every wait has one bucket, and longer waits have later ones', () => {
  fc.assert(fc.property(fc.nat(2 ** 40), fc.nat(2 ** 40), (a, b) => {
    assert.ok(bucketOf(a) >= 0 && bucketOf(a) < WAIT_BUCKETS)
    if (a <= b) assert.ok(bucketOf(a) <= bucketOf(b))
  }))
})
