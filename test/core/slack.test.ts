import assert from 'node:assert/strict'
import { test } from 'node:test'
import { deciding } from '../../src/core/deciding.ts'
import { explain } from '../../src/core/explain/explain.ts'
import { explainText } from '../../src/core/explain/explain-text.ts'
import { tenantId, type CallId } from '../../src/core/ids.ts'
import type { Logged } from '../../src/core/fact.ts'
import { urge, type Remaining } from '../../src/core/queue/slack.ts'
import type { Call } from '../../src/core/state.ts'
import { GraphWorld, node } from './graph-world.ts'
import { Quiet, kinds, only } from './quiet.ts'
import { stateText } from './state-text.ts'
import { LANES, random, type WorldOptions } from './world.ts'

const ONE = { ...LANES, memory: { cells: 262_144, granule: 1_024, sequences: 256 }, runningMax: 1 }
const SURE: Remaining = { lowUs: 1_000_000, highUs: 3_000_000, confidencePpm: 900_000, drifting: false }
const TIMER = (call: CallId): string => `slack:${call}`

/** One call runs, so that all others wait. */
function busy(options: WorldOptions = {}): Quiet {
  const at = new Quiet(1, { engines: [ONE], ...options })
  at.measure(at.named('first'))
  return at
}
function waiting(at: Quiet, program: string): CallId {
  const call = at.named(program)
  at.measure(call)
  return call
}
function urged(at: Quiet, call: CallId, dueUs: number, remaining: Remaining = SURE): Logged[] {
  const facts: Logged[] = []
  urge(deciding(at.core, at.nowUs, (logged) => facts.push(logged)), at.core.calls.get(call) as Call, dueUs, remaining)
  return facts.length === 0 ? facts : at.took(facts)
}

test('from the moment at which the long end of what is left no longer fits, a call is in front; the moment is a timer', () => {
  const at = busy()
  const [older, call] = [waiting(at, 'older'), waiting(at, 'late')]
  const dueUs = at.nowUs + 5_000_000
  const early = urged(at, call, dueUs)
  assert.deepEqual(early.map(({ fact }) => fact), [{ kind: 'timer.set', timer: TIMER(call), atUs: dueUs - 3_000_000 }])
  at.nowUs = dueUs - 2_900_000
  assert.deepEqual(kinds(urged(at, call, dueUs)), ['boost.given'])
  assert.ok((at.core.calls.get(call)?.level ?? 0) < (at.core.calls.get(older)?.level ?? 0))
  at.end([...at.core.engines.values()].flatMap(({ running }) => [...running])[0] as CallId)
  assert.equal(at.core.calls.get(call)?.stage.kind, 'running')
  assert.equal(at.core.timers.has(TIMER(call)), false, 'who runs waits for no moment')
})

test('a call that arrived while all was only observed is put in front as a call of its tenant', () => {
  const at = busy({ config: { mode: 'observe' } })
  const call = waiting(at, 'late')
  at.core = { ...at.core, config: { ...at.core.config, mode: 'schedule' } }
  assert.deepEqual(kinds(urged(at, call, at.nowUs + 2_900_000)), ['boost.given'])
})

test('of boosted calls that goes first which must start soonest', () => {
  const at = busy()
  const [one, two] = [waiting(at, 'one'), waiting(at, 'two')]
  urged(at, one, at.nowUs + 2_500_000)
  urged(at, two, at.nowUs + 2_000_000)
  at.end([...at.core.engines.values()].flatMap(({ running }) => [...running])[0] as CallId)
  assert.equal(at.core.calls.get(two)?.stage.kind, 'running')
})

test('what is late whatever is done is put in front of nobody', () => {
  const at = busy()
  const call = waiting(at, 'late')
  const [fact] = urged(at, call, at.nowUs + 900_000)
  assert.deepEqual(fact?.fact, { kind: 'boost.withheld', call, why: 'it is late whatever is done' })
})

test('below the confidence floor, and while the predictor drifts, there is no boost; a fact says so, once for each reason', () => {
  const at = busy()
  const call = waiting(at, 'late')
  const level = at.core.calls.get(call)?.level
  const dueUs = at.nowUs + 2_000_000
  const unsure = { ...SURE, confidencePpm: 100_000 }
  const all = [urged(at, call, dueUs, unsure), urged(at, call, dueUs, unsure), urged(at, call, dueUs, { ...SURE, drifting: true }), urged(at, call, dueUs, unsure)].flat()
  assert.deepEqual(only(all, 'boost.withheld').map(({ why }) => why), ['too little is known of what is left', 'the predictor drifts', 'too little is known of what is left'])
  assert.equal(all.length, 3)
  assert.equal(at.core.calls.get(call)?.level, level)
})

test('a program with a deadline, of which nothing is known, is told so as its call becomes ready', () => {
  const at = busy()
  const call = at.named('p', [], { deadlineUs: at.nowUs + 1_000_000 })
  assert.deepEqual(only(at.measure(call), 'boost.withheld').map(({ why }) => why), ['too little is known of what is left'])
})

test('a deadline and a declared graph are enough: the timer puts the call in front, and it takes the place of another at once', () => {
  const at = new GraphWorld(1, { engines: [ONE] })
  const busy = at.submit()
  at.feed({ kind: 'measured', call: busy, promptTokens: 60, matched: null, renderingWon: null })
  at.begin({ deadlineUs: 61_000_000 })
  at.nodes({ ...node('a'), serviceUs: 2_000_000 }, { ...node('b', ['a']), serviceUs: 9_000_000 })
  const call = at.call('a')
  const facts = at.feed({ kind: 'measured', call, promptTokens: 60, matched: null, renderingWon: null })
  // 61 s less the 9 s that follow it, less its own 2 s.
  assert.deepEqual(only(facts, 'timer.set').filter(({ timer }) => timer === TIMER(call)).map(({ atUs }) => atUs), [50_000_000])
  at.nowUs = 50_000_000
  const due = at.feed({ kind: 'due', timer: TIMER(call) })
  assert.deepEqual(kinds(due).filter((kind) => kind !== 'timer.cleared'), ['boost.given', 'call.preempted'])
  assert.equal(only(due, 'boost.given')[0]?.slackUs, 0)
  const text = explainText(explain(at.log.filter(({ fact }) => 'call' in fact && fact.call === call), { nowUs: at.nowUs, queued: {} }))
  assert.match(text, /boosted +c2 +what is left no longer surely fits before the deadline/)
})

test('a boost is kept by a call that is paused and comes back, and goes with it when it is over', () => {
  const at = busy()
  const call = waiting(at, 'late')
  urged(at, call, at.nowUs + 2_000_000)
  at.end([...at.core.engines.values()].flatMap(({ running }) => [...running])[0] as CallId)
  at.feed({ kind: 'attemptFailed', engine: [...at.core.engines.keys()][0] as never, reign: 1, call, attempt: 1, run: 0, epoch: 1, why: 'broken', retryable: true })
  assert.equal(at.core.calls.get(call)?.level, -1)
  assert.equal(at.core.turns.accounts.get(tenantId('t'))?.open, 1)
  at.end(call)
  assert.equal(at.core.turns.accounts.get(tenantId('t'))?.open, 0)
  assert.equal(at.core.turns.boosts.size, 0)
})

test('so many calls of a tenant have a boost at once as the limit says; the next is told, and thought of again later', () => {
  const at = busy({ config: { boostsOpenMax: 2 } })
  const calls = ['a', 'b', 'c'].map((name) => waiting(at, name))
  const facts = calls.flatMap((call) => urged(at, call, at.nowUs + 2_000_000))
  assert.deepEqual(kinds(facts), ['boost.given', 'boost.given', 'timer.set', 'boost.withheld'])
})

test('whatever asks for boosts, boosted work stays within its share, its burst and the calls that have one', () => {
  const config = { residency: 'lru-host' as const, boostSharePpm: 250_000, boostBurstUs: 2_000, boostsOpenMax: 3 }
  // A report of the quiet world is 400 us of work.
  const LARGEST_US = 400
  for (let seed = 1; seed <= 8; seed += 1) {
    const chance = random(seed)
    const at = busy({ config })
    const line: CallId[] = []
    for (let turn = 0; turn < 60; turn += 1) {
      line.push(waiting(at, `p${turn}`))
      for (const call of line) if (chance() < 0.7 && at.core.calls.get(call)?.stage.kind === 'ready') urged(at, call, at.nowUs + 2_000_000)
      for (const call of [...at.core.engines.values()].flatMap(({ running }) => [...running])) if (chance() < 0.8) at.end(call)
      const { boostedUs, open } = at.core.turns.accounts.get(tenantId('t')) ?? { boostedUs: 0, open: 0 }
      const { useful, retried, recomputed } = at.core.tenants.get(tenantId('t'))?.service ?? { useful: { workUs: 0 }, retried: { workUs: 0 }, recomputed: { workUs: 0 } }
      const allUs = useful.workUs + retried.workUs + recomputed.workUs
      assert.ok(open <= config.boostsOpenMax)
      assert.ok(boostedUs <= allUs * 0.25 + config.boostBurstUs + config.boostsOpenMax * LARGEST_US, `seed ${seed} turn ${turn}: ${boostedUs} of ${allUs}`)
    }
    assert.ok((at.core.turns.accounts.get(tenantId('t'))?.boostedUs ?? 0) > config.boostBurstUs, 'the bound was put to use')
    assert.equal(stateText(at.replay()), stateText(at.core))
  }
})
