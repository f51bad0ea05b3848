import assert from 'node:assert/strict'
import { test } from 'node:test'
import { watchAge } from '../../src/core/queue/aging.ts'
import { deciding } from '../../src/core/deciding.ts'
import type { Logged } from '../../src/core/fact.ts'
import type { CallId } from '../../src/core/ids.ts'
import type { Call } from '../../src/core/state.ts'
import { Quiet, only } from './quiet.ts'
import { LANES, random, type WorldOptions } from './world.ts'

const ONE = { ...LANES, memory: { cells: 262_144, granule: 1_024, sequences: 256 }, runningMax: 1, preempt: false }
const OTHER = { ...ONE, models: ['other'] }
const SECOND = 1_000_000
const AGING = 10 * SECOND
const TIMER = 'age:'

/** One call runs for ever, and all others wait behind it. */
function busy(config: WorldOptions['config'] = {}): Quiet {
  const at = new Quiet(1, { engines: [ONE, OTHER], config: { order: 'gittins', agingUs: AGING, ...config } })
  at.measure(at.named('busy'))
  return at
}

/** A ready call, at the level that its order gives it. */
function waiting(at: Quiet, name: string, level: number): CallId {
  const call = at.named(name)
  at.measure(call)
  const facts: Logged[] = []
  const d = deciding(at.core, at.nowUs, (logged) => facts.push(logged))
  d.emit({ kind: 'call.ready', call, level, tie: at.core.seq })
  watchAge(d, at.core.calls.get(call) as Call)
  at.took(facts)
  return call
}

/** A program that came later than all is served. */
function passAll(at: Quiet, name: string): void {
  const call = at.named(name, [], { model: 'other' })
  at.measure(call)
  at.end(call)
}

/** Time passes, and nothing happens but what the core asked for. */
function pass(at: Quiet, untilUs: number): void {
  for (let dueUs = at.core.timers.get(TIMER); dueUs !== undefined && dueUs <= untilUs; dueUs = at.core.timers.get(TIMER)) {
    at.nowUs = dueUs
    at.feed({ kind: 'due', timer: TIMER })
  }
  at.nowUs = untilUs
}
const levelsOf = (at: Quiet, calls: readonly CallId[]): (number | undefined)[] => calls.map((call) => at.core.calls.get(call)?.level)

test('a waiting call goes up a level for each time it waits, to the top and no further, and one timer serves all', () => {
  const at = busy()
  const calls = [waiting(at, 'three', 3), waiting(at, 'one', 1), waiting(at, 'top', 0)]
  passAll(at, 'later')
  assert.equal([...at.core.timers.keys()].filter((timer) => timer.startsWith(TIMER)).length, 1)
  const seen = [levelsOf(at, calls)]
  for (let turn = 1; turn <= 4; turn += 1) {
    pass(at, SECOND + turn * AGING)
    seen.push(levelsOf(at, calls))
  }
  assert.deepEqual(seen, [[3, 1, 0], [2, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]])
  assert.equal(at.core.timers.has(TIMER), false)
  assert.equal(only(at.log, 'call.aged').length, 4)
})

test('its place in line and its wait are those it had: among equals it goes by its tie', () => {
  const at = busy()
  const old = waiting(at, 'old', 1)
  passAll(at, 'later')
  pass(at, SECOND + AGING / 2)
  const young = waiting(at, 'young', 0)
  const since = at.core.calls.get(old)?.stage
  pass(at, SECOND + AGING)
  assert.deepEqual(at.core.calls.get(old)?.stage, since)
  at.end(at.core.engines.values().next().value?.running.values().next().value as CallId)
  assert.deepEqual([old, young].map((call) => at.core.calls.get(call)?.stage.kind), ['running', 'ready'])
})

test('whatever arrives and when, a call of level n is at the top after n times the time at most', () => {
  for (let seed = 1; seed <= 10; seed += 1) {
    const chance = random(seed)
    const at = busy()
    const due: { call: CallId; topUs: number }[] = []
    for (let index = 0; index < 25; index += 1) {
      pass(at, at.nowUs + Math.floor(chance() * 8 * SECOND))
      const level = Math.floor(chance() * 5)
      due.push({ call: waiting(at, `p${index}`, level), topUs: at.nowUs + level * AGING })
      passAll(at, `later${index}`)
      for (const { call, topUs } of due) if (topUs <= at.nowUs) assert.equal(at.core.calls.get(call)?.level, 0, `seed ${seed}: ${call}`)
    }
    assert.deepEqual(at.replay(), at.core)
  }
})

test('who was passed by nobody stays where it is, however long it waits, and is at the top in time once a later program is served', () => {
  const at = busy()
  const [older, younger] = [waiting(at, 'older', 3), waiting(at, 'younger', 2)]
  pass(at, 10 * AGING)
  assert.deepEqual(levelsOf(at, [older, younger]), [3, 2])
  assert.ok(only(at.log, 'call.aged').every(({ passed }) => !passed))
  passAll(at, 'later')
  pass(at, at.nowUs + 3 * AGING)
  assert.deepEqual(levelsOf(at, [older, younger]), [0, 0])
  assert.deepEqual(at.replay(), at.core)
})

test('who leaves the line ages no more', () => {
  const at = busy()
  const call = waiting(at, 'gone', 4)
  passAll(at, 'later')
  at.feed({ kind: 'hangUp', call })
  assert.equal(at.core.turns.aging.size, 0)
  pass(at, SECOND + 3 * AGING)
  assert.equal(only(at.log, 'call.aged').length, 0)
})

test('an order with a way up of its own does not age, nor one that is told not to', () => {
  for (const at of [busy({ order: 'plas' }), busy({ agingUs: 0 })]) {
    waiting(at, 'low', 4)
    assert.equal(at.core.timers.has(TIMER), false)
  }
})
