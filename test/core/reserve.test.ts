import assert from 'node:assert/strict'
import { test } from 'node:test'
import { engineId, type CallId } from '../../src/core/ids.ts'
import { Quiet, only } from './quiet.ts'
import { BLOCKS, LANES, World } from './world.ts'

const E0 = engineId('e0')
const SECOND = 1_000_000
/** Each small call runs for so long. */
const STAY_US = 2 * SECOND
/** 64 blocks, and nobody gives way while it runs. */
const SMALL = { ...BLOCKS, memory: { cells: 1_024, granule: 16, sequences: 16 }, preempt: false }

const done = (at: World): void => {
  for (const { id, engine } of [...at.core.moves.values()]) at.feed({ kind: 'moveDone', engine, reign: at.core.reign, move: id, bytes: 7_000, digest: 'x', copyUs: 5 })
}

/**
 * A large call waits while small ones come for ever, each of a new program, each better by the order: one every second,
 * so that two run at any time and none waits. Returns how long the large one waited, null where it never started.
 */
function flood(reserveAfterUs: number, seconds: number): { waitedUs: number | null; at: Quiet; large: CallId } {
  const at = new Quiet(1, { config: { order: 'plas', levelQuantumUs: 100, reserveAfterUs, promoteRatio: 1_000_000, agingUs: 0 }, engines: [SMALL] })
  const first = at.waiting('large')
  const ends = new Map<CallId, number>()
  let large: CallId | null = null
  let sinceUs = 0
  for (let half = 0; half < 2 * seconds; half += 1) {
    at.nowUs += SECOND / 2
    for (const id of at.core.engines.get(E0)?.running ?? []) {
      if (!ends.has(id)) ends.set(id, at.nowUs + STAY_US)
      if ((ends.get(id) ?? 0) <= at.nowUs) at.end(id)
    }
    if (half % 2 === 0) at.measure(at.submit(), 240)
    done(at)
    if (half === 6) {
      large = at.named('large', [`tool-of-${first}`])
      at.feed({ kind: 'measured', call: large, promptTokens: 700, matched: { record: first, tokens: 69 }, renderingWon: null })
      sinceUs = at.nowUs
    }
    for (const [timer, atUs] of [...at.core.timers]) if (timer.startsWith('dispatch:') && atUs <= at.nowUs) at.feed({ kind: 'due', timer })
    if (large !== null && at.core.calls.get(large)?.stage.kind === 'running') return { waitedUs: at.nowUs - sinceUs, at, large }
  }
  return { waitedUs: null, at, large: large as CallId }
}

test('without a reservation a large call starves behind small ones that are better and never stop coming', () => {
  assert.equal(flood(1_000 * SECOND, 120).waitedUs, null)
})

test('with one it starts no later than who ran there when it was made have ended', () => {
  for (const afterUs of [2 * SECOND, 5 * SECOND, 20 * SECOND]) {
    const { waitedUs, at, large } = flood(afterUs, 120)
    // Arrivals and ends are looked at every half second.
    assert.ok(waitedUs !== null && waitedUs >= afterUs && waitedUs <= afterUs + STAY_US + SECOND, `${afterUs}: ${waitedUs}`)
    const [reserved] = only(at.log, 'call.reserved')
    assert.equal(reserved?.call, large)
    assert.ok((reserved?.waitedUs ?? 0) >= afterUs)
    assert.equal(at.core.turns.reservations.size, 0, 'it goes with the start')
  }
})

test('who has its memory there already still runs, and others go to another engine', () => {
  const at = new Quiet(1, { config: { reserveAfterUs: 0, order: 'fcfs' }, engines: [SMALL, { ...SMALL, memory: { cells: 512, granule: 16, sequences: 16 } }] })
  const first = at.waiting('kept')
  for (const program of ['a', 'b']) at.measure(at.named(program), 240)
  assert.deepEqual([...at.core.engines.values()].map(({ running }) => running.size), [1, 1])
  const large = at.named('large')
  at.measure(large, 960)
  assert.equal(at.core.turns.reservations.get(E0)?.call, large)
  done(at)
  const back = at.named('kept', [`tool-of-${first}`])
  at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
  const other = at.submit()
  at.measure(other, 60)
  done(at)
  const where = [back, other].map((call) => at.core.calls.get(call)?.stage)
  assert.deepEqual(where.map((stage) => stage?.kind === 'running' ? stage.engine : null), ['e1', 'e1'])
  assert.equal(at.core.calls.get(large)?.stage.kind, 'ready')
})

test('a State that takes one granule is never large: nothing is kept for it', () => {
  const at = new Quiet(1, { config: { reserveAfterUs: 0 }, engines: [{ ...LANES, memory: { cells: 1_024, granule: 1_024, sequences: 1 } }] })
  for (const program of ['a', 'b', 'c']) at.measure(at.named(program))
  at.nowUs += 100 * SECOND
  at.end(at.core.engines.get(E0)?.running.values().next().value as CallId)
  assert.equal(only(at.log, 'call.reserved').length, 0)
})

test('what is kept goes when its call is given up, and when its engine is lost or drained', () => {
  for (const how of ['hangUp', 'lost', 'drained'] as const) {
    const at = new Quiet(1, { config: { reserveAfterUs: 0, residency: 'lru-host' }, engines: [SMALL] })
    for (const program of ['a', 'b', 'c']) at.measure(at.named(program), 240)
    const large = at.named('large')
    at.measure(large, 700)
    assert.equal(at.core.turns.reservations.get(E0)?.call, large)
    if (how === 'hangUp') at.feed({ kind: 'hangUp', call: large })
    else if (how === 'drained') at.feed({ kind: 'drainEngine', engine: E0, withinUs: SECOND })
    else at.feed({ kind: 'engineLost', engine: E0, reign: 1, why: 'killed' })
    assert.equal(at.core.turns.reservations.size, 0, how)
  }
})

test('in a random world with reservations at once the invariants hold, and nothing is kept in the end', () => {
  let reserved = 0
  for (let seed = 1; seed <= 5; seed += 1) {
    const world = new World(seed, { engines: [SMALL, SMALL], config: { reserveAfterUs: 100_000, order: 'plas' }, faults: seed % 2 === 0 ? 0.4 : 0 })
    world.agents(24)
    for (let second = 2; second < 40; second += 1) {
      world.run(second * SECOND)
      world.disturb()
    }
    world.heal()
    world.run(world.nowUs + 8_000 * SECOND)
    assert.equal(world.core.openCalls, 0, `seed ${seed}`)
    assert.equal(world.core.turns.reservations.size, 0, `seed ${seed}`)
    assert.deepEqual(world.replay(), world.core)
    reserved += only(world.log, 'call.reserved').length
  }
  assert.ok(reserved > 0)
})
