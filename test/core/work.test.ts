import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { must } from '../../src/core/assert.ts'
import { rawOf } from '../../src/core/ids.ts'
import { UNIT } from '../../src/core/predict/curve.ts'
import { confidenceOf, isDrifting } from '../../src/core/predict/trust.ts'
import { kindOf, knownOf, meanOf, remainingOf, sizeBucketOf, sizeInterval, sizeStart } from '../../src/core/predict/work.ts'
import { Learned, T, U } from './learned.ts'
import { only, Quiet } from './quiet.ts'
import { CLAIMS } from './world.ts'

const SECOND_US = 1_000_000
const draws = (): (() => number) => {
  let state = 11
  return () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647
}
const workOf = (learned: Learned, kind = 'agent') => must(must(learned.core.tenants, T).learned.kinds, kind)

test('every size has one bucket, which starts at or below it and ends above it, four to a doubling', () => {
  fc.assert(fc.property(fc.nat(100_000_000), (size) => {
    const bucket = sizeBucketOf(size, 108)
    assert.ok(sizeStart(bucket) <= size && size < sizeStart(bucket + 1), `${size} in bucket ${bucket}`)
  }))
  assert.equal(sizeBucketOf(2 ** 40, 108), 107)
  for (let bucket = 8; bucket < 100; bucket += 1) assert.ok(sizeStart(bucket + 1) / sizeStart(bucket) <= 1.25)
})

test('of a program that has just begun, what remains is the size of its kind; of one that is nearly done, little', () => {
  const learned = new Learned()
  for (let index = 0; index < 40; index += 1) learned.ended(9_000 + 50 * index, 'agent', T, 'ended', 10)
  const fresh = remainingOf(learned.core, learned.program())
  assert.ok(fresh.lowUs >= 7 * SECOND_US && fresh.lowUs <= 9 * SECOND_US && fresh.highUs >= 10 * SECOND_US && fresh.highUs <= 13 * SECOND_US, JSON.stringify(fresh))
  assert.deepEqual([fresh.callsLow, fresh.callsHigh, fresh.from], [10, 12, 'kind'])
  const near = remainingOf(learned.core, learned.open(9_900))
  assert.ok(near.highUs < 3 * SECOND_US, JSON.stringify(near))
})

test('beyond the largest seen it is expected to need a part more: a small one where sizes are alike, a large one where they are not', () => {
  const [alike, unlike] = [new Learned(), new Learned()]
  for (let index = 0; index < 100; index += 1) {
    alike.ended(1_000)
    unlike.ended(Math.round(10 / ((index + 0.5) / 100)))
  }
  const [near, far] = [alike, unlike].map((learned) => remainingOf(learned.core, learned.open(100_000)).highUs)
  assert.ok((near ?? 0) > 10 * SECOND_US && (near ?? 0) < 100 * SECOND_US, `${near}`)
  assert.ok((far ?? 0) > 200 * SECOND_US, `${far}`)
})

test('a kind with little data gives way to its tenant, the tenant to all, and where nobody knows it says so', () => {
  const learned = new Learned()
  const nobody = remainingOf(learned.core, learned.program(T, 'new'))
  assert.deepEqual([nobody.from, nobody.confidencePpm, nobody.lowUs, nobody.highUs], [null, 0, 0, Number.MAX_SAFE_INTEGER])
  for (let index = 0; index < 8; index += 1) learned.ended(1_000, 'other', U)
  assert.equal(knownOf(learned.core, learned.program(T, 'new'))?.from, 'all')
  for (let index = 0; index < 8; index += 1) learned.ended(2_000, 'old', T)
  assert.equal(knownOf(learned.core, learned.program(T, 'new'))?.from, 'tenant')
  for (let index = 0; index < 8; index += 1) learned.ended(4_000, 'new', T)
  assert.equal(knownOf(learned.core, learned.program(T, 'new'))?.from, 'kind')
})

test('open programs count as cut off at what they have received: many that went on make going on likelier', () => {
  const learned = new Learned()
  for (let index = 0; index < 20; index += 1) learned.ended(1_000)
  const before = sizeInterval(learned.core, { tenant: T, kind: 'agent' })
  for (let index = 0; index < 20; index += 1) learned.open(30_000)
  const after = sizeInterval(learned.core, { tenant: T, kind: 'agent' })
  assert.ok((before?.highUs ?? 0) < 2 * SECOND_US && (after?.highUs ?? 0) > 30 * SECOND_US, `${before?.highUs} and ${after?.highUs}`)
})

test('open programs leave their buckets as they are served and as they end: none is counted twice or left behind', () => {
  fc.assert(fc.property(fc.array(fc.nat(20_000), { maxLength: 20 }), (sizes) => {
    const learned = new Learned()
    for (const size of sizes) learned.open(size)
    const { open } = workOf(learned.program() && learned).service
    assert.equal(open.reduce((sum, count) => sum + count, 0), sizes.length + 1)
    for (const size of sizes) assert.ok((open[sizeBucketOf(size, open.length)] ?? 0) > 0)
  }))
})

test('those who ended are not outweighed by those who are open: what is remembered grows with them', () => {
  const learned = new Learned()
  learned.predicts = false
  for (let index = 0; index < 2_000; index += 1) learned.open(2_000)
  for (let index = 0; index < 2_000; index += 1) learned.ended(1_000)
  const mean = meanOf(workOf(learned).service)
  assert.ok(mean > 1_250 && mean < 1_450, `${mean}`)
})

test('what it says of a program\'s size holds four times out of five, and it says how often', () => {
  const learned = new Learned()
  const draw = draws()
  for (let index = 0; index < 400; index += 1) learned.ended(Math.round(3_000 * Math.exp(2 * (draw() + draw() + draw() - 1.5))))
  const { trust } = workOf(learned)
  assert.ok(confidenceOf(trust) > 600_000, `${confidenceOf(trust)}`)
  assert.equal(remainingOf(learned.core, learned.program()).confidencePpm, confidenceOf(trust))
})

test('nothing is trusted before it was right', () => {
  const learned = new Learned()
  for (let index = 0; index < 10; index += 1) learned.ended(1_000)
  assert.ok(remainingOf(learned.core, learned.program()).confidencePpm < 500_000)
})

test('when a kind changes its curve is off, the tenant\'s takes its place, and it comes back with what is so now', () => {
  const learned = new Learned()
  for (let index = 0; index < 100; index += 1) {
    learned.ended(1_000, 'turning')
    learned.ended(5_000, 'steady')
  }
  const turning = workOf(learned, 'turning')
  let count = 0
  while (!isDrifting(turning.trust)) {
    learned.ended(40_000, 'turning')
    assert.ok((count += 1) < 40, 'it is never turned off')
  }
  assert.equal(knownOf(learned.core, { tenant: T, kind: 'turning' })?.from, 'tenant')
  assert.equal(knownOf(learned.core, { tenant: T, kind: 'steady' })?.from, 'kind')
  while (isDrifting(turning.trust)) {
    learned.ended(40_000, 'turning')
    assert.ok((count += 1) < 120, 'it never comes back')
  }
  for (let index = 0; index < 150; index += 1) learned.ended(40_000, 'turning')
  const { lowUs, from } = remainingOf(learned.core, learned.program(T, 'turning'))
  assert.deepEqual([from, lowUs > 30 * SECOND_US], ['kind', true])
})

test('a declared number of steps is taken at its word once a step is done', () => {
  const learned = new Learned()
  const program = learned.program(T, 'agent', 5)
  assert.equal(remainingOf(learned.core, program).from, null)
  program.standing.servedUs = 4 * SECOND_US
  program.standing.callsDone = 2
  const { lowUs, highUs, callsLow, callsHigh } = remainingOf(learned.core, program)
  assert.deepEqual([lowUs, highUs, callsLow, callsHigh], [3 * SECOND_US, 12 * SECOND_US, 3, 3])
})

test('kinds of a tenant beyond the limit are learned together', () => {
  const learned = new Learned({ kindsPerTenantMax: 2 })
  learned.program(T, 'one')
  learned.program(T, 'two')
  assert.deepEqual(['one', 'two', 'three'].map((kind) => kindOf(learned.core, T, kind)), ['one', 'two', 'other'])
  assert.equal(kindOf(learned.core, U, 'three'), 'three')
})

test('a program that is reopened has not ended', () => {
  const at = new Quiet(1)
  const turn = (toolResults: string[]) => at.submit({ claims: { ...CLAIMS, session: 's', toolResults } })
  const first = turn([])
  at.measure(first)
  at.end(first, { finish: 'length', toolCalls: [{ id: 'cut', name: 'a' }] })
  const work = must(must(at.core.tenants, T).learned.kinds, 'agent')
  const total = (weights: readonly number[]): number => weights.reduce((sum, weight) => sum + weight, 0)
  assert.deepEqual([total(work.service.ended), total(work.service.open)], [UNIT, 0])
  turn(['cut'])
  assert.equal(only(at.log, 'program.reopened').length, 1)
  assert.deepEqual([total(work.service.ended), total(work.service.open)], [0, 1])
})

test('what a sub-agent does between the end of its program and its reopening does not leave the end counted', () => {
  const at = new Quiet(1)
  const turn = (toolResults: string[]) => at.submit({ claims: { ...CLAIMS, session: 's', toolResults } })
  const first = turn([])
  at.measure(first)
  at.end(first, { finish: 'length', toolCalls: [{ id: 'cut', name: 'a' }] })
  const root = must(at.core.programs, must(at.core.calls, first).program)
  for (let count = 0; count < 4; count += 1) {
    const call = at.submit({ claims: { ...CLAIMS, program: 'sub', parent: rawOf(root.id) } })
    at.measure(call)
    at.end(call)
  }
  const { stage, standing } = must(at.core.programs, root.id)
  assert.ok(stage.kind === 'ended' && standing.callsDone > stage.callsDone)
  turn(['cut'])
  const work = must(must(at.core.tenants, T).learned.kinds, 'agent')
  const total = (weights: readonly number[]): number => weights.reduce((sum, weight) => sum + weight, 0)
  for (const sizes of [work.service, work.calls]) assert.deepEqual([total(sizes.ended), total(sizes.open)], [0, 2])
})
