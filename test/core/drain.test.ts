import assert from 'node:assert/strict'
import { test } from 'node:test'
import { engineId, type CallId } from '../../src/core/ids.ts'
import { restoreSnapshot, takeSnapshot } from '../../src/core/snapshot.ts'
import { E0, Quiet, kinds, only, REPORT } from './quiet.ts'
import { BARE, LANES, SPEEDS } from './world.ts'

const E1 = engineId('e1')
const WITHIN_US = 5_000_000

const stageOf = (at: Quiet, call: CallId) => at.core.calls.get(call)?.stage
const drain = (at: Quiet) => at.feed({ kind: 'drainEngine', engine: E0, withinUs: WITHIN_US })
const undrain = (at: Quiet) => at.feed({ kind: 'undrainEngine', engine: E0 })
const timeIsUp = (at: Quiet) => {
  at.nowUs += WITHIN_US
  return at.feed({ kind: 'due', timer: `drain:${E0}` })
}

function movesDone(at: Quiet): void {
  for (const { id, engine } of [...at.core.moves.values()]) at.feed({ kind: 'moveDone', engine, reign: at.core.reign, move: id, bytes: 7_000, digest: 'x', copyUs: 5 })
}

const paused = (at: Quiet, call: CallId) =>
  at.feed({ kind: 'paused', engine: E0, reign: at.core.reign, call, attempt: 1, run: 0, epoch: 1, report: REPORT })

test('no call is placed on a drained engine, though the other is full; ended, they are', () => {
  const at = new Quiet(1, { engines: [LANES, LANES] })
  drain(at)
  const calls = Array.from({ length: LANES.runningMax + 1 }, (_, index) => {
    const call = at.named(`p${index}`)
    at.measure(call)
    return call
  })
  assert.deepEqual([...at.core.engines.values()].map(({ running }) => running.size), [0, LANES.runningMax])
  assert.equal(stageOf(at, calls.at(-1) as CallId)?.kind, 'ready')
  undrain(at)
  assert.deepEqual(stageOf(at, calls.at(-1) as CallId), { kind: 'running', engine: E0, sinceUs: at.nowUs })
})

test('what is idle there goes to host at once, and its program goes on elsewhere from the image', () => {
  const at = new Quiet(1, { engines: [LANES, LANES], config: { residency: 'always-preserve' } })
  const first = at.waiting('p')
  assert.equal(at.core.engines.get(E0)?.idle.size, 1)
  const facts = drain(at)
  assert.deepEqual(kinds(facts).filter((kind) => !kind.startsWith('timer.')), ['engine.drain.begun', 'kv.offload.begun'])
  movesDone(at)
  assert.deepEqual([at.core.engines.get(E0)?.sequencesUsed, at.core.host.ownedBytes], [0, 7_000])
  const back = at.named('p', [`tool-of-${first}`])
  at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
  movesDone(at)
  const stage = stageOf(at, back)
  assert.ok(stage?.kind === 'running' && stage.engine === E1, JSON.stringify(stage))
})

test('what runs may end; then its State does not stay either', () => {
  const at = new Quiet(1, { engines: [LANES, LANES], config: { residency: 'always-preserve' } })
  const call = at.named('p')
  at.measure(call)
  drain(at)
  assert.equal(stageOf(at, call)?.kind, 'running')
  assert.equal(only(at.endWithTool(call), 'kv.offload.begun').length, 1)
  movesDone(at)
  assert.deepEqual(kinds(timeIsUp(at)), ['timer.cleared'])
})

test('what still runs when its time is up is paused, and goes on elsewhere in the same attempt, its State moved', () => {
  const at = new Quiet(1, { engines: [LANES, LANES] })
  const call = at.named('p')
  at.measure(call)
  drain(at)
  const told = only(timeIsUp(at), 'call.preempted')
  assert.deepEqual(told.map((fact) => [fact.call, fact.engine, fact.by, fact.why]), [[call, E0, null, 'its engine is drained']])
  assert.equal(only(paused(at, call), 'kv.offload.begun').length, 1)
  movesDone(at)
  movesDone(at)
  const stage = stageOf(at, call)
  assert.ok(stage?.kind === 'running' && stage.engine === E1, JSON.stringify(stage))
  assert.equal(at.core.calls.get(call)?.attempt, 1)
  assert.equal(at.core.engines.get(E0)?.sequencesUsed, 0)
})

test('where no other engine is there it waits on host, and goes on when the draining is ended', () => {
  const at = new Quiet(1, { engines: [LANES] })
  const call = at.named('p')
  at.measure(call)
  drain(at)
  timeIsUp(at)
  paused(at, call)
  movesDone(at)
  assert.equal(stageOf(at, call)?.kind, 'ready')
  assert.deepEqual([at.core.engines.get(E0)?.sequencesUsed, at.core.host.ownedBytes], [0, 7_000])
  undrain(at)
  movesDone(at)
  assert.equal(stageOf(at, call)?.kind, 'running')
})

test('it holds over a loss of the engine and over a restart, and is ended by name only', () => {
  const at = new Quiet(1, { engines: [LANES] })
  drain(at)
  at.feed({ kind: 'engineLost', engine: E0, reign: at.core.reign, why: 'killed' })
  at.feed({ kind: 'engineJoined', engine: E0, reign: at.core.reign, capabilities: LANES, speeds: SPEEDS })
  assert.deepEqual(restoreSnapshot(at.config, takeSnapshot(at.core)), at.core)
  at.core = at.replay()
  at.feed({ kind: 'restart', reign: at.core.reign + 1, wallOffsetUs: 0, images: [] })
  at.feed({ kind: 'engineJoined', engine: E0, reign: at.core.reign, capabilities: LANES, speeds: SPEEDS })
  const call = at.named('p')
  at.measure(call)
  assert.equal(stageOf(at, call)?.kind, 'ready')
  undrain(at)
  assert.deepEqual([...at.core.timers.keys()].filter((name) => name.startsWith('drain:')), [])
  assert.equal(stageOf(at, call)?.kind, 'running')
  assert.match(only(undrain(at), 'result.ignored')[0]?.why ?? '', /it is not drained/)
})

test('one that has never joined cannot be drained, and one that cannot pause lets its calls end', () => {
  const at = new Quiet(1, { engines: [BARE] })
  assert.match(only(at.feed({ kind: 'drainEngine', engine: engineId('e9'), withinUs: 1 }), 'result.ignored')[0]?.why ?? '', /never joined/)
  const call = at.named('p')
  at.measure(call)
  drain(at)
  assert.deepEqual(kinds(timeIsUp(at)), ['timer.cleared'])
  assert.equal(stageOf(at, call)?.kind, 'running')
})

test('who was on its way in when the drain began is not started there: its image stays on host, and it goes elsewhere', () => {
  const at = new Quiet(1, { engines: [LANES], config: { residency: 'always-offload' } })
  const first = at.waiting('p')
  movesDone(at)
  const back = at.named('p', [`tool-of-${first}`])
  at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
  assert.equal(stageOf(at, back)?.kind, 'resuming')
  drain(at)
  timeIsUp(at)
  movesDone(at)
  const [state] = [...at.core.states.values()]
  assert.deepEqual([stageOf(at, back)?.kind, state?.residence, at.core.engines.get(E0)?.sequencesUsed], ['ready', { kind: 'suspended', tier: 'host' }, 0])
  at.feed({ kind: 'engineJoined', engine: E1, reign: 1, capabilities: LANES, speeds: SPEEDS })
  movesDone(at)
  const stage = stageOf(at, back)
  assert.ok(stage?.kind === 'running' && stage.engine === E1, JSON.stringify(stage))
})

/** A call that feeds again plainly what its engine lost. */
function fedPlainly(at: Quiet): CallId {
  const first = at.waiting('p')
  at.feed({ kind: 'engineLost', engine: E0, reign: 1, why: 'killed' })
  at.feed({ kind: 'engineJoined', engine: E0, reign: 1, capabilities: LANES, speeds: SPEEDS })
  const back = at.named('p', [`tool-of-${first}`], { exactResume: false })
  at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
  const { replay, recomputeTokens } = only(at.log, 'call.scheduled').at(-1) ?? {}
  assert.deepEqual([replay, recomputeTokens], ['plain', 69])
  return back
}

test('what was fed again plainly goes with the call that was allowed to: the next finds what was committed, or nothing', () => {
  for (const when of ['on its way to host', 'on host', 'running again'] as const) {
    const at = new Quiet(1, { engines: [LANES], config: { residency: 'always-preserve' } })
    const back = fedPlainly(at)
    drain(at)
    timeIsUp(at)
    at.feed({ kind: 'paused', engine: E0, reign: 1, call: back, attempt: 1, run: 0, epoch: 1, report: { ...REPORT, tailPrefilled: 0, tailDecoded: 0, outputTokens: 0, recomputedTokens: 69 } })
    const [state] = [...at.core.states.values()]
    assert.equal(state?.plainFor, back)
    if (when !== 'on its way to host') movesDone(at)
    if (when === 'running again') {
      undrain(at)
      movesDone(at)
      assert.deepEqual([stageOf(at, back)?.kind, only(at.log, 'call.scheduled').at(-1)?.keepTokens], ['running', 69])
    }
    at.feed({ kind: 'hangUp', call: back })
    movesDone(at)
    assert.deepEqual([state?.residence, state?.host, state?.device, state?.plainFor], [{ kind: 'gone' }, null, null, undefined], when)
  }
})

test('what was fed again plainly and committed is what was committed', () => {
  const at = new Quiet(1, { engines: [LANES], config: { residency: 'always-preserve' } })
  const back = fedPlainly(at)
  const [state] = [...at.core.states.values()]
  assert.equal(state?.plainFor, back)
  at.end(back)
  assert.deepEqual([state?.residence, state?.plainFor], [{ kind: 'suspended', tier: 'device' }, undefined])
})
