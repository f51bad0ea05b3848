/** Each law is able to fail: a good state is damaged by hand, or a history told wrongly, and its number is what comes. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { InvariantError } from '../../src/core/assert.ts'
import type { Fact, Logged } from '../../src/core/fact.ts'
import { engineId, moveId, programId, sessionId, stateId, tenantId, type CallId } from '../../src/core/ids.ts'
import { allAwake } from '../../src/core/asleep/asleep.ts'
import { digestNumber } from '../../src/core/digests.ts'
import { checkInvariants } from '../../src/core/invariants.ts'
import { checkHistory, noHistory } from '../../src/core/invariants/history.ts'
import { nothingSeen } from '../../src/core/invariants/law.ts'
import { checkPrograms } from '../../src/core/invariants/programs.ts'
import { checkNobodyIsStuck, checkWaiting } from '../../src/core/invariants/waiting.ts'
import { emptyLedger, type Call, type CoreState, type Interrupt, type Program, type State } from '../../src/core/state.ts'
import { E0, Quiet } from './quiet.ts'
import { CLAIMS, LANES } from './world.ts'

/** One of everything: a program that waits, one that runs, one in line, a State on its way to host, one on host, a prefix. */
function rich(): CoreState {
  const at = new Quiet(1, { config: { residency: 'always-offload' }, engines: [{ ...LANES, runningMax: 1 }, LANES] })
  at.waiting('hosted')
  for (const { id, engine } of [...at.core.moves.values()]) at.feed({ kind: 'moveDone', engine, reign: 1, move: id, bytes: 7_000, digest: 'x', copyUs: 5 })
  at.waiting('moving')
  const turn = at.submit({ claims: { ...CLAIMS, session: 's', identity: { source: 'explicit', confidence: 100 } } })
  at.measure(turn)
  at.end(turn)
  for (const program of ['runs', 'runs-2', 'runs-3', 'runs-4', 'runs-5', 'in-line']) at.measure(at.named(program))
  at.named('runs', [], { claims: { ...CLAIMS, program: 'runs', thread: 'main' } })
  at.named('arrived')
  return allAwake(at.core)
}

const pick = <T>(values: Iterable<T>, is: (value: T) => boolean): T => {
  const found = [...values].find(is)
  assert.ok(found !== undefined, 'the state is rich enough')
  return found
}
const call = (core: CoreState, kind: Call['stage']['kind']): Call => pick(core.calls.values(), ({ stage }) => stage.kind === kind)
const wait = (core: CoreState): Interrupt => pick(core.interrupts.values(), ({ stage }) => stage.kind === 'waiting')
const state = (core: CoreState, is: (state: State) => boolean): State => pick(core.states.values(), is)
const active = (core: CoreState): State => state(core, ({ residence }) => residence.kind === 'active')
const hosted = (core: CoreState): State => state(core, ({ host }) => host !== null)
const program = (core: CoreState, raw: string): Program => pick(core.programs.values(), ({ id }) => id === `t/${raw}`)

const DAMAGES: readonly [number, string, (core: CoreState) => void][] = [
  [1, 'a call runs on two engines', (core) => { for (const engine of core.engines.values()) engine.running.add(call(core, 'running').id) }],
  [1, 'a running call is on no engine', (core) => { for (const engine of core.engines.values()) engine.running.clear() }],
  [1, 'a committed call still runs', (core) => { pick(core.engines.values(), ({ running }) => running.size > 0).running.add(call(core, 'committed').id) }],
  [1, 'the last call of a thread did not commit', (core) => { pick(core.threads.values(), ({ last }) => last !== null).last = call(core, 'running').id }],
  [2, 'a ready call is in no queue', (core) => core.queues.clear()],
  [2, 'a call stands twice in its queue', (core) => {
    const { calls } = pick(pick(core.queues.values(), () => true).bands[1]?.tenants.shares.values() ?? [], () => true)
    calls.ids.push(calls.ids[0] as CallId)
  }],
  [2, 'a running call was not measured', (core) => { call(core, 'running').measured = false }],
  [2, 'a parent of a running call is open', (core) => { Object.assign(call(core, 'running'), { parents: [call(core, 'arrived').id] }) }],
  [2, 'a call runs before its turn', (core) => {
    const thread = pick(core.threads.values(), ({ waiting }) => waiting.length > 0)
    const [first, ...rest] = thread.waiting
    thread.waiting = [...rest, thread.active as CallId]
    thread.active = first as CallId
  }],
  [13, 'memory is kept for a call that runs', (core) => { core.turns.reservations.set(E0, { call: call(core, 'running').id, granules: 2 }) }],
  [13, 'memory is kept on an engine that is lost', (core) => {
    core.turns.reservations.set(engineId('e9'), { call: call(core, 'ready').id, granules: 2 })
    core.engines.set(engineId('e9'), { ...pick(core.engines.values(), () => true), id: engineId('e9'), stage: 'lost', running: new Set(), pausing: new Set(), idle: new Set(), moves: new Set(), ownedGranules: 0, reservedGranules: 0, sequencesUsed: 0, resuming: 0, orders: [] })
  }],
  [13, 'a call ages that does not wait', (core) => { core.turns.aging.set(call(core, 'running').id, 0) }],
  [13, 'a boost is kept of a call that is over', (core) => { core.turns.boosts.set(call(core, 'committed').id, { kind: 'withheld', why: 'x' }) }],
  [13, 'boosts are miscounted', (core) => { core.turns.accounts.set(tenantId('t'), { boostedUs: 0, open: 1 }) }],
  [3, 'a call of an epoch that is over runs', (core) => { for (const one of core.programs.values()) one.epoch += 1 }],
  [3, 'a program goes back an epoch', (core) => { for (const one of core.programs.values()) one.epoch = 0 }],
  [5, 'a State is suspended on device and its bytes are on host', (core) => { hosted(core).residence = { kind: 'suspended', tier: 'device' } }],
  [5, 'a State is kept on two tiers at once', (core) => { active(core).host = { ...hosted(core).host as NonNullable<State['host']> } }],
  [5, 'a State was published while its move is under way', (core) => { state(core, ({ residence }) => residence.kind === 'moving').residence = { kind: 'suspended', tier: 'device' } }],
  [5, 'a State is active for a call that is over', (core) => { Object.assign(active(core).residence, { call: call(core, 'committed').id }) }],
  [5, 'an image holds more than its State has', (core) => { Object.assign(hosted(core).host as object, { tokens: 10_000 }) }],
  [6, 'a call runs in a program that was cancelled', (core) => { program(core, 'runs').stage = { kind: 'cancelled', atUs: 1 } }],
  [7, 'a thread waits for tools that were answered', (core) => {
    const interrupt = wait(core)
    core.timers.delete(`expire:${interrupt.id}`)
    interrupt.stage = { kind: 'cancelled', atUs: 1 }
  }],
  [7, 'a tool call was shown by a call that did not commit', (core) => { core.toolCalls.set('t/x', { call: call(core, 'running').id, answeredBy: null }) }],
  [7, 'an interrupt was answered by a call that does not say so', (core) => {
    const interrupt = wait(core)
    const thread = core.threads.get(interrupt.thread)
    if (thread !== undefined) thread.interrupt = null
    core.timers.delete(`expire:${interrupt.id}`)
    core.timers.set(`close:${interrupt.program}`, 1)
    interrupt.stage = { kind: 'completed', atUs: 1, by: call(core, 'running').id }
  }],
  [14, 'nobody asks anything of a program, and no timer closes it', (core) => {
    const interrupt = wait(core)
    const thread = core.threads.get(interrupt.thread)
    if (thread !== undefined) thread.interrupt = null
    core.timers.delete(`expire:${interrupt.id}`)
    interrupt.stage = { kind: 'cancelled', atUs: 1 }
  }],
  [7, 'an effect was committed by a tool that was not called', (core) => { Object.assign(wait(core), { commits: [{ toolCall: 'x', record: null, atUs: 1 }] }) }],
  [7, 'a retry would come under another effect key', (core) => { Object.assign(wait(core), { effectKey: 'other' }) }],
  [8, 'a call runs in a thread of another program', (core) => { Object.assign(pick(core.threads.values(), ({ id }) => id === call(core, 'running').thread), { program: program(core, 'in-line').id }) }],
  [8, 'a State is owned by another tenant\'s program', (core) => { Object.assign(active(core), { tenant: tenantId('u') }) }],
  [8, 'a retry under one key would find another tenant\'s call', (core) => { core.digests.set(digestNumber('u/d1'), call(core, 'running').id) }],
  [8, 'a program is in a session of another tenant', (core) => {
    core.sessions.set(sessionId(tenantId('u'), 's'), { id: sessionId(tenantId('u'), 's'), tenant: tenantId('u'), program: program(core, 'runs').id, states: [] })
  }],
  [9, 'a program that failed holds KV', (core) => {
    program(core, 'moving').stage = { kind: 'failed', atUs: 1, why: '' }
  }],
  [9, 'a State belongs to nobody and is kept', (core) => { hosted(core).owner = { kind: 'nobody' } }],
  [9, 'a session does not know its prefix', (core) => { pick(core.sessions.values(), ({ states }) => states.length > 0).states = [] }],
  [11, 'the ledger of an engine forgets granules', (core) => { pick(core.engines.values(), ({ ownedGranules }) => ownedGranules > 0).ownedGranules -= 1 }],
  [11, 'an engine counts a sequence too many', (core) => { pick(core.engines.values(), () => true).sequencesUsed += 1 }],
  [11, 'an engine gave out more than it has', (core) => { for (const engine of core.engines.values()) engine.capabilities = { ...engine.capabilities, memory: { cells: 1, granule: 1_024, sequences: 4 } } }],
  [11, 'an engine gave out more sequences than it has', (core) => { for (const engine of core.engines.values()) engine.capabilities = { ...engine.capabilities, memory: { cells: 4_096, granule: 1_024, sequences: 0 } } }],
  [11, 'a reservation on host was dropped by half', (core) => { core.host.reservedBytes -= 1 }],
  [11, 'host gave out more than it has', (core) => { Object.assign(core.host, { totalBytes: 1 }) }],
  [11, 'a Segment counts a reference too many', (core) => { pick(core.segments.values(), () => true).refs += 1 }],
  [11, 'a State refers to a Segment that is gone', (core) => { core.segments.clear() }],
  [12, 'a program is served less than before', (core) => { Object.assign(program(core, 'moving').ledger.useful, { residentUs: 0 }) }],
  [12, 'a program was charged what none of its calls received', (core) => { Object.assign(program(core, 'moving').ledger.useful, { workUs: 900_000 }) }],
  [14, 'open calls are miscounted', (core) => { core.openCalls += 1 }],
  [14, 'a session keeps too many prefixes', (core) => {
    const session = pick(core.sessions.values(), () => true)
    for (let count = 0; count < 9; count += 1) session.states.push(stateId(`s${count}`))
  }],
  [14, 'a timer is left of what is gone', (core) => { core.timers.set('reconsider:gone', 1) }],
  [14, 'a wait has no end', (core) => { core.timers.delete(`expire:${wait(core).id}`) }],
  [14, 'an interrupt outlives its call', (core) => { core.interrupts.set('c99.wait' as never, { ...wait(core), id: 'c99.wait' as never, call: 'c99' as never }) }],
  [14, 'the digest of a forgotten call is kept', (core) => { core.digests.set(digestNumber('t/gone'), 'c99' as never) }],
  [15, 'the reign goes back', (core) => { core.reign -= 1 }],
]

const numberOf = (run: () => void): number | null => {
  try {
    run()
    return null
  } catch (error) {
    if (error instanceof InvariantError) return error.number
    throw error
  }
}

test('a good state breaks no law', () => {
  assert.equal(numberOf(() => checkInvariants(rich(), nothingSeen())), null)
})

for (const [number, what, damage] of DAMAGES) {
  test(`law ${number} is broken where ${what}`, () => {
    const core = rich()
    const seen = nothingSeen()
    checkInvariants(core, seen)
    damage(core)
    assert.equal(numberOf(() => checkInvariants(core, seen)), number)
  })
}

test('law 13 is broken where a ready call waits past the bound, and where it waits for engines that stand idle', () => {
  const core = rich()
  assert.equal(numberOf(() => checkWaiting(core, core.nowUs + 99, 100)), null)
  assert.equal(numberOf(() => checkWaiting(core, core.nowUs + 101, 100)), 13)
  core.moves.clear()
  assert.equal(numberOf(() => checkNobodyIsStuck(core)), null)
  for (const engine of core.engines.values()) engine.running.clear()
  assert.equal(numberOf(() => checkNobodyIsStuck(core)), null, 'a measurement is under way')
  for (const { stage, thread } of core.calls.values()) if (stage.kind === 'arrived') pick(core.threads.values(), ({ id }) => id === thread).active = null
  assert.equal(numberOf(() => checkNobodyIsStuck(core)), 13)
})

// ---------------------------------------------------------------- histories told wrongly

const CALL = 'c1' as CallId
const REPORT = { service: null, tailPrefilled: 0, tailDecoded: 0, outputTokens: 0, recomputedTokens: 0 }
const said = (kind: Fact['kind'], more: object): Fact => ({ kind, ...more }) as unknown as Fact
const arrived = said('call.arrived', { call: CALL, program: programId(tenantId('t'), 'p') })
const ready = said('call.ready', { call: CALL })
const scheduled = (attempt = 1): Fact => said('call.scheduled', { call: CALL, attempt, engine: E0 })
const completed = (attempt = 1): Fact => said('call.completed', { call: CALL, attempt, report: REPORT })
const cancelled = said('program.cancelled', { program: programId(tenantId('t'), 'p'), epoch: 2 })
const begun = said('kv.offload.begun', { move: moveId('m1'), state: stateId('s1'), engine: engineId('e0') })
const moved = said('kv.moved', { move: moveId('m1'), state: stateId('s1') })

const HISTORIES: readonly [number | null, string, readonly Fact[]][] = [
  [null, 'a call arrives, is ready, runs and commits', [arrived, ready, scheduled(), completed()]],
  [1, 'a call commits twice', [arrived, ready, scheduled(), completed(), completed()]],
  [1, 'a call arrives twice', [arrived, arrived]],
  [1, 'a committed call is ready again', [arrived, ready, scheduled(), completed(), ready]],
  [2, 'a call runs that was not ready', [arrived, scheduled()]],
  [2, 'a call runs twice for one READY', [arrived, ready, scheduled(), scheduled()]],
  [3, 'an attempt that is over commits', [arrived, ready, scheduled(), ready, scheduled(2), completed(1)]],
  [3, 'an attempt runs again after a later one', [arrived, ready, scheduled(2), ready, scheduled(1)]],
  [5, 'a copy is published that was not begun', [moved]],
  [5, 'a copy is published twice', [begun, moved, moved]],
  [6, 'a call arrives after cancel', [cancelled, arrived]],
  [6, 'a call is ready after cancel', [arrived, cancelled, ready]],
  [6, 'a wait begins after cancel', [cancelled, said('interrupt.started', { interrupt: 'i', program: 't/p' })]],
  [7, 'an interrupt is answered twice', [said('interrupt.completed', { interrupt: 'i' }), said('interrupt.completed', { interrupt: 'i' })]],
  [7, 'a call that did not commit is shown again', [arrived, said('call.replayed', { call: 'c2', as: CALL })]],
  [15, 'a reign follows one that is no lower', [said('reign.begun', { reign: 2 }), said('reign.begun', { reign: 2 })]],
]

for (const [number, what, facts] of HISTORIES) {
  test(`${number === null ? 'no law' : `law ${number}`} is broken where ${what}`, () => {
    const logged: Logged[] = facts.map((fact, index) => ({ seq: index + 1, atUs: index, version: 1, fact }))
    assert.equal(numberOf(() => checkHistory(noHistory(), logged)), number)
  })
}

test('law 2 is broken where a fact is missing from the log, or time goes back in it', () => {
  const gap: Logged[] = [{ seq: 2, atUs: 1, version: 1, fact: ready }]
  assert.equal(numberOf(() => checkHistory(noHistory(), gap)), 2)
  const back: Logged[] = [{ seq: 1, atUs: 9, version: 1, fact: arrived }, { seq: 2, atUs: 8, version: 1, fact: ready }]
  assert.equal(numberOf(() => checkHistory(noHistory(), back)), 2)
})

test('a name that begins anew between two looks begins with nothing: only the same program may not have less', () => {
  const core = rich()
  const seen = nothingSeen()
  checkInvariants(core, seen)
  const served = pick(core.programs.values(), ({ standing }) => standing.servedUs > 0)
  const fresh = (seq: number): CoreState => {
    const later = rich()
    const again = program(later, served.id.slice(2))
    for (const id of again.calls) Object.assign(later.calls.get(id) ?? {}, { ledger: emptyLedger(), attemptService: emptyLedger() })
    Object.assign(again, { seq, ledger: emptyLedger() })
    return later
  }
  const lawOf = (later: CoreState): number | null => numberOf(() => checkPrograms(later, structuredClone(seen)))
  assert.equal(lawOf(fresh(served.seq)), 12)
  assert.equal(lawOf(fresh(served.seq + 1_000_000)), null)
})
