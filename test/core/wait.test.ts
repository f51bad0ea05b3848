import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { must } from '../../src/core/assert.ts'
import { emptyCurve, halve, hazardsOf, PPM, remember, takeBack, UNIT } from '../../src/core/predict/curve.ts'
import { confidenceOf, isDrifting } from '../../src/core/predict/trust.ts'
import { borders, expectedWaitUs, returnsPpm, stillWaitingPpm, survivalOf, waitBucketOf, WAIT_BUCKETS, waitInterval } from '../../src/core/predict/wait.ts'
import { Learned, T, U } from './learned.ts'
import { only, Quiet } from './quiet.ts'

const SECOND_US = 1_000_000
const of = (learned: Learned, toolClass = 'search', tenant = T, nowUs = 0) => survivalOf(learned.core, tenant, toolClass, 'tool', nowUs)
const taught = (waitsMs: readonly number[], toolClass = 'search', tenant = T): Learned => {
  const learned = new Learned()
  for (const ms of waitsMs) learned.waited(ms, toolClass, tenant)
  return learned
}
const many = (ms: number, count = 200): number[] => new Array<number>(count).fill(ms)

test('the chance of still waiting never rises with time and never leaves 0 to 1', () => {
  fc.assert(fc.property(fc.array(fc.nat(1_000_000), { maxLength: 60 }), fc.nat(10_000_000), (waits, elapsedUs) => {
    const survival = of(taught(waits))
    let before = PPM
    for (const aheadUs of borders(elapsedUs, 600 * SECOND_US)) {
      const now = stillWaitingPpm(survival, elapsedUs, aheadUs)
      assert.ok(now <= before + 1 && now >= 0, `${now} after ${before}`)
      before = now
    }
    const ppm = returnsPpm(survival, elapsedUs)
    assert.ok(ppm >= 0 && ppm <= PPM)
    assert.ok(expectedWaitUs(survival, elapsedUs, 600 * SECOND_US) <= 600 * SECOND_US)
  }), { numRuns: 50 })
})

test('a wait that has lasted longer than nearly all seen is expected to last longer still', () => {
  const survival = of(taught(many(50)))
  assert.ok(expectedWaitUs(survival, 0, 60 * SECOND_US) < 500_000)
  assert.ok(expectedWaitUs(survival, 2 * SECOND_US, 60 * SECOND_US) > 2 * SECOND_US)
})

test('every wait has one bucket, and longer waits have later ones', () => {
  fc.assert(fc.property(fc.nat(2 ** 40), fc.nat(2 ** 40), (a, b) => {
    assert.ok(waitBucketOf(a) >= 0 && waitBucketOf(a) < WAIT_BUCKETS)
    if (a <= b) assert.ok(waitBucketOf(a) <= waitBucketOf(b))
  }))
  assert.equal(waitBucketOf(2 ** 50), WAIT_BUCKETS - 1)
})

test('a curve is the product-limit estimate of its observations, as reckoned slowly in floats', () => {
  const observation = fc.record({ bucket: fc.nat(5), how: fc.constantFrom('ended', 'cut', 'running') })
  fc.assert(fc.property(fc.array(observation, { minLength: 1, maxLength: 80 }), (list) => {
    const count = (how: string): number[] => Array.from({ length: 6 }, (_, bucket) => UNIT * list.filter((one) => one.how === how && one.bucket === bucket).length)
    const hazards = hazardsOf({ ended: count('ended'), cut: count('cut') }, count('running'), { hazards: new Array<number>(6).fill(0), weight: () => 0 })
    for (let bucket = 0; bucket < 6; bucket += 1) {
      const ended = list.filter((one) => one.bucket === bucket && one.how === 'ended').length
      const reached = list.filter((one) => one.bucket >= bucket).length
      const stopped = (how: string): number => list.filter((one) => one.bucket === bucket && one.how === how).length
      const naive = ended === 0 ? 0 : ended / (reached - stopped('cut') / 2 - stopped('running'))
      assert.ok(Math.abs((hazards[bucket] ?? 0) / PPM - Math.min(1, naive)) < 1e-5, `bucket ${bucket}: ${hazards[bucket]} and ${naive}`)
    }
  }))
})

test('waits that run now count: ten that have waited ten seconds make long waits likelier', () => {
  const learned = taught(many(50, 20))
  const before = of(learned, 'search', T, 10 * SECOND_US)
  for (let index = 0; index < 10; index += 1) learned.waiting('search', T, 0)
  const after = of(learned, 'search', T, 10 * SECOND_US)
  assert.ok(stillWaitingPpm(after, 0, SECOND_US) > 3 * stillWaitingPpm(before, 0, SECOND_US))
  assert.equal(must(must(learned.core.tenants, T).learned.waits, 'search').curve.cut.every((weight) => weight === 0), true, 'and nothing was learned of them yet')
})

test('what expires or is abandoned makes return less likely, and the longer it lasted the less', () => {
  const learned = taught(many(50, 60))
  const before = returnsPpm(of(learned), 0)
  for (let index = 0; index < 40; index += 1) learned.waited(3_600_000, 'search', T, 'cut')
  const after = of(learned)
  assert.ok(returnsPpm(after, 0) < 0.75 * before, `${returnsPpm(after, 0)} of ${before}`)
  assert.ok(returnsPpm(after, 60 * SECOND_US) < 0.3 * PPM)
})

test('a class of one tenant leans on the class of all, a class on all tools, and these on the prior', () => {
  const learned = taught(many(30_000), 'build', U)
  learned.program(T)
  const prior = survivalOf(new Learned().core, T, null, 'tool', 0)
  const half = (survival: ReturnType<typeof of>): number => stillWaitingPpm(survival, 0, 10 * SECOND_US)
  assert.ok(half(of(learned, 'build', T)) > 900_000, 'the class, from another tenant')
  assert.ok(half(of(learned, 'new', T)) > 800_000, 'a new tool, from all tools')
  assert.ok(half(of(new Learned(), 'new', T)) === half(prior) && half(prior) < 250_000, 'nothing: the prior')
  assert.ok(half(survivalOf(learned.core, T, 'new', 'human', 0)) > half(prior), 'people have a prior of their own')
  for (const ms of many(100)) learned.waited(ms, 'build', T)
  assert.ok(half(of(learned, 'build', T)) < 100_000, 'its own data in the end')
})

test('what it says holds, and it says how often: waits of one shape are inside four times out of five', () => {
  const learned = new Learned()
  let state = 7
  const draw = (): number => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647
  let inside = 0
  for (let index = 0; index < 600; index += 1) {
    const ms = Math.round(200 * Math.exp(1.2 * (draw() + draw() + draw() + draw() - 2) * 1.7))
    const { lowUs, highUs } = waitInterval(of(learned))
    if (index >= 100 && lowUs <= ms * 1_000 && ms * 1_000 <= highUs) inside += 1
    learned.waited(ms)
  }
  assert.ok(inside / 500 > 0.78, `${inside} of 500`)
  const { trust } = must(must(learned.core.tenants, T).learned.waits, 'search')
  assert.ok(confidenceOf(trust) > 600_000)
  assert.equal(of(learned).drifting, false)
})

test('a wait that was cut off says nothing of what was said, unless it had outlived it', () => {
  const learned = taught(many(50, 40))
  const { trust } = must(must(learned.core.tenants, T).learned.waits, 'search')
  const { asked, right } = trust
  learned.waited(10, 'search', T, 'cut')
  assert.deepEqual([trust.asked, trust.right], [asked, right])
  learned.waited(60_000, 'search', T, 'cut')
  assert.ok(trust.right < right)
})

test('when waits change the predictor is off, forgets, and comes back', () => {
  const learned = taught(many(50, 300))
  const { trust } = must(must(learned.core.tenants, T).learned.waits, 'search')
  assert.equal(isDrifting(trust), false)
  let off = 0
  while (!isDrifting(trust)) {
    learned.waited(60_000)
    off += 1
    assert.ok(off < 40, 'it is never turned off')
  }
  assert.ok(of(learned).drifting)
  let back = 0
  while (isDrifting(trust)) {
    learned.waited(60_000)
    back += 1
    assert.ok(back < 60, 'it never comes back')
  }
  for (let index = 0; index < 20; index += 1) learned.waited(60_000)
  assert.ok(stillWaitingPpm(of(learned), 0, 20 * SECOND_US) > 500_000, 'it has learned what waits are now, out of 300 that were not')
})

test('tool classes of a tenant beyond the limit are learned together, and another tenant has its own', () => {
  const at = new Quiet(1, { config: { toolClassesMax: 2 } })
  for (const [program, tool] of [['a', 'one'], ['b', 'two'], ['c', 'three'], ['d', 'four']] as const) {
    const call = at.named(program)
    at.measure(call)
    at.endWithTool(call, tool)
    at.named(program, [`tool-of-${call}`])
  }
  assert.deepEqual(only(at.log, 'interrupt.started').map(({ toolClass }) => toolClass), ['one', 'two', 'other', 'other'])
})

test('a curve knows how much it holds, whatever was remembered, taken back and forgotten', () => {
  const act = fc.record({ what: fc.constantFrom('ended', 'cut', 'back', 'halve'), bucket: fc.nat(5) })
  fc.assert(fc.property(fc.array(act, { maxLength: 60 }), (acts) => {
    const curve = emptyCurve(6)
    for (const { what, bucket } of acts) {
      if (what === 'halve') halve(curve)
      else if (what === 'back') takeBack(curve, bucket)
      else remember(curve, what as 'ended' | 'cut', bucket, 20)
    }
    const sum = (weights: readonly number[]): number => weights.reduce((total, weight) => total + weight, 0)
    assert.deepEqual(curve.all, { ended: sum(curve.ended), cut: sum(curve.cut) })
  }))
})
