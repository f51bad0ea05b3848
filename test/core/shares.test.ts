import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { must } from '../../src/core/assert.ts'
import { bandOf, bandsInOrder, chargeBand, count, emptyQueue, liftBandFloor, shareOf } from '../../src/core/queue/bands.ts'
import { callId, tenantId, type CallId } from '../../src/core/ids.ts'
import { compareCalls, compareTurns } from '../../src/core/queue/queue.ts'
import type { Call } from '../../src/core/state.ts'
import { chargeTenant, join, leave, liftFloor, noTenants, weighted, type TenantShares } from '../../src/core/queue/tenants.ts'
import { Quiet } from './quiet.ts'
import { BARE, CLAIMS } from './world.ts'

// ---------------------------------------------------------------- the bound of tenants

const EXPECTED_US_MAX = 1_000
const ERROR_US_MAX = 300
const RUNNING_MAX = 3

const life = fc.record({
  weights: fc.array(fc.integer({ min: 1, max: 8 }), { minLength: 2, maxLength: 5 }),
  /** Who ends next among those that run, what was expected of the next to start, and by how much it will be wrong. */
  events: fc.array(fc.record({
    ends: fc.nat(20), expectedUs: fc.integer({ min: 1, max: EXPECTED_US_MAX }), errorUs: fc.integer({ min: -ERROR_US_MAX, max: ERROR_US_MAX }),
  }), { maxLength: 150 }),
})

/** Tenants that always wait: each that starts is followed by another call of the same tenant. */
class Backlog {
  readonly tenants: TenantShares = noTenants()
  readonly weights: readonly number[]
  readonly running: { tenant: number; expectedUs: number; errorUs: number }[] = []
  readonly started: number[]
  #calls = 0

  constructor(weights: readonly number[]) {
    this.weights = weights
    this.started = weights.map(() => 0)
    for (const index of weights.keys()) this.arrive(index)
  }

  arrive(tenant: number): void {
    this.#calls += 1
    join(this.tenants, tenantId(`t${tenant}`), { id: callId(`c${this.#calls}`), level: 0, tie: 0, seq: this.#calls, sinceUs: 0 })
  }

  virtual(tenant: number): number {
    return this.tenants.shares.get(tenantId(`t${tenant}`))?.virtual ?? 0
  }

  start(expectedUs: number, errorUs: number): void {
    const id = this.tenants.waiting.ids[0] ?? tenantId('')
    const tenant = Number(id.slice(1))
    if (this.running.filter((one) => one.tenant === tenant).length >= RUNNING_MAX) return
    liftFloor(this.tenants)
    leave(this.tenants, id, this.tenants.shares.get(id)?.calls.ids[0] as CallId)
    this.arrive(tenant)
    this.charge(tenant, expectedUs)
    this.running.push({ tenant, expectedUs, errorUs })
    this.started[tenant] = (this.started[tenant] ?? 0) + 1
  }

  end(index: number): void {
    const [ended] = this.running.splice(index % Math.max(1, this.running.length), 1)
    if (ended !== undefined) this.charge(ended.tenant, Math.max(-ended.expectedUs, ended.errorUs))
  }

  charge(tenant: number, us: number): void {
    chargeTenant(this.tenants, tenantId(`t${tenant}`), us, this.weights[tenant] ?? 1)
  }
}

test('tenants that all wait are never further apart in weighted service than (E + R X)(1/w_f + 1/w_g)', () => {
  fc.assert(fc.property(life, ({ weights, events }) => {
    const backlog = new Backlog(weights)
    for (const { ends, expectedUs, errorUs } of events) {
      backlog.start(expectedUs, errorUs)
      if (ends % 2 === 0) backlog.end(ends)
      for (const [f, wf] of weights.entries()) {
        for (const [g, wg] of weights.entries()) {
          const most = (EXPECTED_US_MAX + RUNNING_MAX * ERROR_US_MAX) * (1 / wf + 1 / wg)
          assert.ok(backlog.virtual(f) - backlog.virtual(g) <= weighted(most, 1) + 2 * events.length)
        }
      }
    }
  }), { numRuns: 200 })
})

test('a tenant that comes back is lifted to those that wait: it earned no credit while it was away, and lost no debt', () => {
  const backlog = new Backlog([1, 1])
  for (let round = 0; round < 40; round += 1) {
    backlog.start(100, 0)
    backlog.end(0)
  }
  const away = tenantId('away')
  join(backlog.tenants, away, { id: callId('x1'), level: 0, tie: 0, seq: 1_000, sinceUs: 0 })
  assert.ok((backlog.tenants.shares.get(away)?.virtual ?? 0) >= Math.min(backlog.virtual(0), backlog.virtual(1)) - weighted(100, 1))
  chargeTenant(backlog.tenants, away, 1_000_000, 1)
  leave(backlog.tenants, away, callId('x1'))
  join(backlog.tenants, away, { id: callId('x2'), level: 0, tie: 0, seq: 1_001, sinceUs: 0 })
  assert.ok((backlog.tenants.shares.get(away)?.virtual ?? 0) > backlog.virtual(0) + weighted(900_000, 1), 'it still owes')
})

// ---------------------------------------------------------------- the bound of bands

test('bands that all wait are started in proportion to their weights within the bound, so none starves', () => {
  const weights = { interactive: 16, default: 4, batch: 1 } as const
  const queue = emptyQueue()
  for (const share of queue.bands) count(queue, share, 1)
  const startedUs = { interactive: 0, default: 0, batch: 0 }
  fc.assert(fc.property(fc.array(fc.integer({ min: 1, max: 1_000 }), { minLength: 100, maxLength: 400 }), (sizes) => {
    for (const us of sizes) {
      liftBandFloor(queue)
      const [next] = bandsInOrder(queue)
      if (next === undefined) return
      chargeBand(next, us, weights[next.band])
      startedUs[next.band] += us
      for (const a of queue.bands) {
        for (const b of queue.bands) {
          const most = 1_000 * (1 / weights[a.band] + 1 / weights[b.band])
          assert.ok(Math.abs(startedUs[a.band] / weights[a.band] - startedUs[b.band] / weights[b.band]) <= most + 1)
        }
      }
    }
  }), { numRuns: 20 })
  assert.ok(startedUs.batch > 0)
})

test('a band that comes back has no credit', () => {
  const queue = emptyQueue()
  const batch = shareOf(queue, 'batch')
  count(queue, batch, 1)
  chargeBand(batch, 1_000_000, 1)
  liftBandFloor(queue)
  count(queue, shareOf(queue, 'default'), 1)
  assert.equal(shareOf(queue, 'default').virtual, batch.virtual)
})

// ---------------------------------------------------------------- through the core

/** One engine that runs one call at a time, and for each name so many calls that wait. */
function lineOf(at: Quiet, names: readonly string[], each: number, priorityClass = 'default'): void {
  for (let i = 0; i < each; i += 1) {
    for (const name of names) {
      const call = at.submit({ tenant: tenantId(name), priorityClass, claims: { ...CLAIMS, program: `p${i}`, identity: { source: 'explicit', confidence: 100 } } })
      at.measure(call)
    }
  }
}

/** Who ran, in order, when one after another was served. */
function serve(at: Quiet, count: number, whoOf: (call: CallId) => string): string[] {
  const order: string[] = []
  for (let i = 0; i < count; i += 1) {
    const [running] = at.core.engines.get(at.core.engines.keys().next().value as never)?.running ?? []
    if (running === undefined) break
    order.push(whoOf(running))
    at.end(running)
  }
  return order
}

const tenantOf = (at: Quiet) => (call: CallId): string => at.core.calls.get(call)?.payer ?? ''
const countOf = (list: readonly string[], what: string): number => list.filter((one) => one === what).length

test('two tenants that wait are served by weight, though one came first with everything', () => {
  const at = new Quiet(1, { engines: [{ ...BARE, runningMax: 1 }], config: { tenantWeights: { heavy: 3 } } })
  lineOf(at, ['light'], 30)
  lineOf(at, ['heavy'], 30)
  const order = serve(at, 24, tenantOf(at))
  assert.ok(Math.abs(countOf(order, 'heavy') - 3 * countOf(order, 'light')) <= 4, order.join(' '))
})

test('a batch call is served while interactive ones wait, and an interactive one is served before a default one', () => {
  const at = new Quiet(1, { engines: [{ ...BARE, runningMax: 1 }] })
  for (const band of ['batch', 'default', 'interactive']) lineOf(at, [`of-${band}`], 40, band)
  const order = serve(at, 60, tenantOf(at))
  assert.ok(countOf(order, 'of-batch') >= 2, order.join(' '))
  assert.ok(countOf(order, 'of-interactive') > countOf(order, 'of-default'))
  assert.ok(countOf(order, 'of-default') > countOf(order, 'of-batch'))
})

test('what an attempt wasted stays charged, and what was paid ahead and not used is given back', () => {
  const at = new Quiet(1, { engines: [{ ...BARE, runningMax: 1 }] })
  const call = at.named('p')
  at.measure(call)
  const virtual = (): number => shareOf(at.core.queues.get('m') ?? emptyQueue(), 'default').tenants.shares.get(tenantId('t'))?.virtual ?? 0
  const engine = at.core.engines.keys().next().value as never
  const ahead = at.core.calls.get(call)?.prepaidUs ?? 0
  assert.ok(ahead > 0)
  assert.equal(virtual(), weighted(ahead, 1))
  const from = { engine, reign: 1, call, attempt: 1, run: 0, epoch: 1 }
  const report = { service: { useful: { residentUs: 900, workUs: 700 }, retried: { residentUs: 0, workUs: 0 }, recomputed: { residentUs: 0, workUs: 50 } }, tailPrefilled: 5, tailDecoded: 0, outputTokens: 1, recomputedTokens: 0 }
  at.feed({ kind: 'progress', engine, reign: 1, speeds: null, calls: [{ ...from, report }] })
  assert.equal(virtual(), weighted(ahead, 1), 'it was paid ahead')
  at.feed({ kind: 'attemptFailed', ...from, retryable: false, why: 'so' })
  assert.equal(virtual(), weighted(750, 1))
})

test('KV held while a tool runs is charged by the share of memory and time, once it is let go', () => {
  const at = new Quiet(1, { config: { deviceSecondMicro: 1_000_000 } })
  const call = at.waiting('p')
  const share = (): number => shareOf(at.core.queues.get('m') ?? emptyQueue(), 'default').tenants.shares.get(tenantId('t'))?.virtual ?? 0
  const before = share()
  at.nowUs += 8_000_000
  at.feed({ kind: 'cancelProgram', tenant: tenantId('t'), program: 'p' })
  assert.equal(at.core.calls.get(call)?.stage.kind, 'committed')
  // One of four lanes for eight seconds.
  assert.equal(share() - before, weighted(2_000_000, 1))
})

test('in observe all wait in one line, whoever they belong to', () => {
  const at = new Quiet(1, { engines: [{ ...BARE, runningMax: 1 }], config: { mode: 'observe' } })
  lineOf(at, ['a'], 3, 'batch')
  lineOf(at, ['b'], 3, 'interactive')
  const order = serve(at, 6, (call) => at.core.programs.get(at.core.calls.get(call)?.program as never)?.tenant ?? '')
  assert.deepEqual(order, ['a', 'a', 'a', 'b', 'b', 'b'])
})

test('a running call gives way to another tenant only once its own is ahead by more than preemptGapUs', () => {
  for (const [aheadUs, taken] of [[9_000_000, false], [30_000_000, true]] as const) {
    const at = new Quiet(1, { engines: [{ ...BARE, runningMax: 1, preempt: true, memory: { cells: 1_024, granule: 1_024, sequences: 1 } }] })
    const hog = at.submit({ tenant: tenantId('hog'), maxTokens: 100_000 })
    at.measure(hog)
    const engine = at.core.engines.keys().next().value as never
    const waits = at.submit({ tenant: tenantId('other') })
    at.measure(waits)
    const report = { service: { useful: { residentUs: aheadUs, workUs: aheadUs }, retried: { residentUs: 0, workUs: 0 }, recomputed: { residentUs: 0, workUs: 0 } }, tailPrefilled: 60, tailDecoded: 5, outputTokens: 6, recomputedTokens: 0 }
    const progress = () => at.feed({ kind: 'progress', engine, reign: 1, speeds: null, calls: [{ call: hog, attempt: 1, run: 0, epoch: 1, report }] })
    const facts = [...progress(), ...progress()]
    assert.equal(facts.some(({ fact }) => fact.kind === 'call.preempted'), taken, `${aheadUs}`)
  }
})

test('a call of a better band takes the place of a worse one at once, as long as its band has had less than its share; never the other way round within the gap', () => {
  const taken = (running: string, ready: string, before = 0): boolean => {
    const at = new Quiet(1, { engines: [{ ...BARE, runningMax: 1, preempt: true, memory: { cells: 1_024, granule: 1_024, sequences: 1 } }] })
    const runs = at.submit({ tenant: tenantId('long'), maxTokens: 100_000, priorityClass: running })
    at.measure(runs)
    if (before > 0) chargeBand(shareOf(must(at.core.queues, 'm'), bandOf(ready)), before, 1)
    const waits = at.submit({ tenant: tenantId('short'), priorityClass: ready })
    return at.measure(waits).some(({ fact }) => fact.kind === 'call.preempted')
  }
  assert.ok(taken('default', 'interactive'))
  assert.ok(taken('batch', 'default'))
  assert.ok(!taken('default', 'interactive', 60_000_000), 'its band is ahead itself')
  assert.ok(!taken('interactive', 'default'))
  assert.ok(!taken('default', 'batch'))
})

test('where the worst has given way as often as it may, the next worst does', () => {
  const at = new Quiet(1, { engines: [{ ...BARE, runningMax: 2, preempt: true, memory: { cells: 2_048, granule: 1_024, sequences: 2 } }] })
  const [first, second] = ['a', 'b'].map((tenant) => {
    const call = at.submit({ tenant: tenantId(tenant), maxTokens: 100_000 })
    at.measure(call)
    return call
  })
  must(at.core.calls, second as CallId).preemptions = at.core.config.preemptionsMax
  const waits = at.submit({ tenant: tenantId('short'), priorityClass: 'interactive' })
  assert.deepEqual(at.measure(waits).flatMap(({ fact }) => (fact.kind === 'call.preempted' ? [fact.call] : [])), [first])
})

test('of two ready calls the one is served before whose tenant has had less; in one tenant, or of two models, arrival says it', () => {
  const at = new Quiet(1, { engines: [{ ...BARE, runningMax: 1, models: ['m', 'n'] }] })
  const ready = (tenant: string, model = 'm') => {
    const call = at.submit({ tenant: tenantId(tenant), model })
    at.measure(call)
    return must(at.core.calls, call)
  }
  ready('hog')
  const [second, third, other, elsewhere] = [ready('hog'), ready('hog'), ready('other'), ready('other', 'n')]
  assert.deepEqual([second, third, other, elsewhere].map(({ stage }) => stage.kind), ['ready', 'ready', 'ready', 'ready'])
  const sign = (a: Call, b: Call): number => Math.sign(compareTurns(at.core, a, b))
  assert.deepEqual([sign(second, third), sign(third, second)], [-1, 1])
  assert.deepEqual([sign(other, second), sign(second, other)], [-1, 1], 'it came later')
  assert.equal(Math.sign(compareCalls(other, second)), 1)
  assert.deepEqual([sign(second, elsewhere), sign(elsewhere, second)], [-1, 1], 'shares are of a model')
  assert.equal(sign(second, second), 0)
})
