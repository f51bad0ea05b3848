import assert from 'node:assert/strict'
import { test } from 'node:test'
import { engineId, type CallId } from '../../src/core/ids.ts'
import { Quiet, REPORT, only } from './quiet.ts'
import { LANES, World, type WorldOptions } from './world.ts'

const E0 = engineId('e0')
const ONE = { ...LANES, memory: { cells: 1_024, granule: 1_024, sequences: 1 }, runningMax: 1 }

const done = (at: World): void => {
  for (const { id, engine } of [...at.core.moves.values()]) at.feed({ kind: 'moveDone', engine, reign: at.core.reign, move: id, bytes: 7_000, digest: 'x', copyUs: 5 })
}

/** A young program runs on the only place, and the next call of an old one comes back from its tool. */
function oldComesBack(config: WorldOptions['config'] = {}, fedTokens = 0): { at: Quiet; young: CallId; back: CallId } {
  const at = new Quiet(1, { engines: [ONE], config: config })
  const old = at.waiting('old')
  const young = at.named('young')
  at.measure(young)
  done(at)
  if (fedTokens > 0) {
    const report = { ...REPORT, tailPrefilled: 60, tailDecoded: fedTokens, outputTokens: fedTokens + 1 }
    at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call: young, attempt: 1, run: 0, epoch: 1, report }] })
  }
  const back = at.named('old', [`tool-of-${old}`])
  at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: old, tokens: 69 }, renderingWon: null })
  return { at, young, back }
}
const paused = (at: Quiet, call: CallId): void => {
  at.feed({ kind: 'paused', engine: E0, reign: 1, call, attempt: at.core.calls.get(call)?.attempt ?? 1, run: 0, epoch: 1, report: REPORT })
}

test('a better call takes the place of a running one, and the fact says what that wins', () => {
  const { at, young } = oldComesBack()
  const [fact] = only(at.log, 'call.preempted')
  assert.equal(fact?.call, young)
  assert.ok((fact?.gainUs ?? 0) >= at.config.preemptGainUs)
})

test('never for less than the stated gain: who is about to end, ends', () => {
  const gain = only(oldComesBack().at.log, 'call.preempted')[0]?.gainUs ?? 0
  assert.equal(only(oldComesBack({ preemptGainUs: gain }).at.log, 'call.preempted').length, 1)
  assert.equal(only(oldComesBack({ preemptGainUs: gain + 1 }).at.log, 'call.preempted').length, 0)
  // All but its last token is generated.
  assert.equal(only(oldComesBack({ preemptGainUs: 100_000 }, 38).at.log, 'call.preempted').length, 0)
})

test('a program of which a call gave way is left alone for the stated time, and may be taken from again when that is over', () => {
  const { at, young, back } = oldComesBack({ preemptionsMax: 9, preemptionRestUs: 60_000_000, residency: 'lru-host' })
  paused(at, young)
  done(at)
  done(at)
  assert.equal(at.core.calls.get(back)?.stage.kind, 'running')
  at.endWithTool(back)
  done(at)
  done(at)
  assert.equal(at.core.calls.get(young)?.stage.kind, 'running')
  const again = at.named('old', [`tool-of-${back}`])
  at.nowUs += 1_000_000
  at.feed({ kind: 'measured', call: again, promptTokens: 80, matched: { record: back, tokens: 69 }, renderingWon: null })
  assert.equal(only(at.log, 'call.preempted').length, 1)
  const timer = [...at.core.timers].find(([name]) => name.startsWith('dispatch:'))
  assert.ok(timer !== undefined, 'the moment is a timer')
  assert.equal(timer[1], only(at.log, 'call.preempted')[0]?.restsUntilUs)
  at.nowUs = timer[1]
  at.feed({ kind: 'due', timer: timer[0] })
  assert.equal(only(at.log, 'call.preempted').length, 2)
})

test('what an earlier run of an attempt said, told again in a later one, neither pauses nor charges it', () => {
  const { at, young, back } = oldComesBack({ preemptionsMax: 9, preemptionRestUs: 0, residency: 'lru-host' })
  paused(at, young)
  done(at)
  done(at)
  at.endWithTool(back)
  done(at)
  done(at)
  const call = at.core.calls.get(young)
  assert.deepEqual([call?.stage.kind, call?.attempt], ['running', 1], 'its second run is the same attempt')
  const again = (run: number) => ({ engine: E0, reign: 1, call: young, attempt: 1, run, epoch: 1, report: { ...REPORT, tailDecoded: 30 } })
  const ledger = call?.ledger
  at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [again(0)] })
  assert.deepEqual(call?.ledger, ledger)
  const returns = at.named('old', [`tool-of-${back}`])
  at.feed({ kind: 'measured', call: returns, promptTokens: 80, matched: { record: back, tokens: 69 }, renderingWon: null })
  assert.equal(call?.stage.kind, 'pausing')
  at.feed({ kind: 'paused', ...again(0) })
  assert.equal(call?.stage.kind, 'pausing', 'it is the engine that says when its second run has stopped')
  assert.deepEqual(only(at.log, 'result.ignored').map(({ why }) => why), ['run 0 of the attempt, now 1', 'run 0 of the attempt, now 1'])
  at.feed({ kind: 'paused', ...again(1) })
  assert.equal(call?.preemptions, 2)
})

test('a call gives way so many times at most, whatever comes', () => {
  const { at, young } = oldComesBack({ preemptionsMax: 0 })
  assert.equal(at.core.calls.get(young)?.stage.kind, 'running')
  assert.equal(only(at.log, 'call.preempted').length, 0)
})

test('programs that were left alone long ago are forgotten', () => {
  const world = new World(4, { engines: [ONE], config: { preemptionRestUs: 1_000_000, preemptionsMax: 50 } })
  world.agents(12)
  world.run(60_000_000)
  const count = only(world.log, 'call.preempted').length
  assert.ok(count > 3, `${count} preempted`)
  const latest = only(world.log, 'call.preempted').at(-1)
  assert.ok([...world.core.turns.resting.values()].every((atUs) => atUs > (latest?.restsUntilUs ?? 0) - 1_000_000))
})

test('no two programs push each other to and fro: between two preemptions of one there is its time of rest', () => {
  for (let seed = 1; seed <= 6; seed += 1) {
    const world = new World(seed, { engines: [ONE], config: { order: 'plas', levelQuantumUs: 20_000, preemptionRestUs: 700_000, preemptionsMax: 50 } })
    world.agents(12)
    world.run(60_000_000)
    const last = new Map<string, number>()
    const programs = new Map(only(world.log, 'call.arrived').map(({ call, program }) => [call, program]))
    for (const { fact, atUs } of world.log) {
      if (fact.kind !== 'call.preempted' || fact.why !== 'a better call has no memory') continue
      const program = programs.get(fact.call) ?? ''
      assert.ok(atUs >= (last.get(program) ?? 0), `seed ${seed}: ${program}`)
      last.set(program, fact.restsUntilUs)
    }
  }
})
