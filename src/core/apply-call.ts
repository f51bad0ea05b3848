/** Owns the writes of `call.*` facts; part of `apply.ts`. Keeps invariants 1 and 12 by construction. */
import { NO_LEDGER, addLedger, attainedUs, largerLedger, ledgerGrowth, wasted, workOf } from './account.ts'
import { assert, must } from './assert.ts'
import { chargeBoost, endBoost, giveBoost, joinLine, leaveLine, rekey } from './queue/boosts.ts'
import { isOverStage } from './call-read.ts'
import { keepDigest } from './digests.ts'
import type { Fact, Logged } from './fact.ts'
import { freshCall, freshThread } from './fresh.ts'
import type { AttemptReport } from './input.ts'
import type { ProgramId } from './ids.ts'
import { spanTokens } from './kv/kv-read.ts'
import { learnService } from './predict/learn.ts'
import { cutSpans, leaveRecord, reside, takeDevice } from './kv/memory.ts'
import { chargeShares, liftFloors } from './queue/queue.ts'
import { dropReservation } from './queue/reservations.ts'
import { beginService, beginWait, endWait, settle } from './standing.ts'
import type { Call, CallStage, CoreState, Engine, State } from './state.ts'
import type { Us } from './units.ts'

type Of<Kind extends Fact['kind']> = Extract<Fact, { kind: Kind }>

export function applyCall(core: CoreState, fact: Fact, logged: Logged): boolean {
  const { atUs } = logged
  switch (fact.kind) {
    case 'call.arrived':
      arrive(core, fact, logged)
      return true
    case 'call.measured': {
      const call = must(core.calls, fact.call)
      call.promptTokens = fact.promptTokens
      call.measured = true
      call.reusable = fact.reusable
      moveTo(core, call, { kind: 'measured' })
      return true
    }
    case 'call.ready': {
      const call = must(core.calls, fact.call)
      if (call.stage.kind === 'ready') moveTo(core, call, { kind: 'measured' })
      call.level = fact.level
      call.tie = fact.tie
      moveTo(core, call, { kind: 'ready', sinceUs: atUs })
      return true
    }
    case 'call.scheduled':
      schedule(core, fact, atUs)
      return true
    case 'call.progressed':
      charge(core, must(core.calls, fact.call), fact.report)
      return true
    case 'call.granted':
      grant(core, fact)
      return true
    case 'grant.withheld':
      must(core.engines, fact.engine).cramped.add(fact.call)
      return true
    case 'call.promoted': {
      const call = must(core.calls, fact.call)
      rekey(core, call, fact.level, fact.tie)
      call.standing = { ...call.standing, promotedAtUs: attainedUs(call.ledger) }
      return true
    }
    case 'call.demoted': {
      const call = must(core.calls, fact.call)
      call.level = fact.level
      call.tie = fact.tie
      return true
    }
    case 'call.aged':
      rekey(core, must(core.calls, fact.call), fact.level, fact.tie)
      return true
    case 'boost.given':
      giveBoost(core, must(core.calls, fact.call), fact.level, fact.tie)
      return true
    case 'boost.withheld':
      core.turns.boosts.set(fact.call, { kind: 'withheld', why: fact.why })
      return true
    case 'call.reserved':
      core.turns.reservations.set(fact.engine, { call: fact.call, granules: fact.granules })
      return true
    case 'call.preempted':
      rest(core, must(core.calls, fact.call).program, fact.restsUntilUs)
      moveTo(core, must(core.calls, fact.call), { kind: 'pausing', engine: fact.engine, sinceUs: atUs })
      return true
    default:
      return applyEnd(core, fact, atUs)
  }
}

/** Who rests no more is forgotten on the way. */
function rest(core: CoreState, program: ProgramId, untilUs: Us): void {
  for (const [other, atUs] of core.turns.resting) {
    if (atUs > core.nowUs) break
    core.turns.resting.delete(other)
  }
  core.turns.resting.delete(program)
  core.turns.resting.set(program, untilUs)
}

/** Facts after which the call no longer runs. */
function applyEnd(core: CoreState, fact: Fact, atUs: Us): boolean {
  switch (fact.kind) {
    case 'call.paused': {
      const call = must(core.calls, fact.call)
      charge(core, call, fact.report)
      leaveEngine(core, call, atUs)
      call.preemptions += 1
      idle(core, activeState(core, call), atUs)
      moveTo(core, call, { kind: 'measured' })
      return true
    }
    case 'call.retried': {
      const call = must(core.calls, fact.call)
      waste(core, call)
      leaveEngine(core, call, atUs)
      cutToBase(core, call, atUs)
      call.attempt = fact.attempt
      moveTo(core, call, { kind: call.measured ? 'measured' : 'arrived' })
      return true
    }
    case 'call.detached':
      detach(core, must(core.calls, fact.call), atUs)
      return true
    case 'call.completed':
      complete(core, fact, atUs)
      return true
    case 'call.cancelled': {
      const call = must(core.calls, fact.call)
      waste(core, call)
      end(core, call, { kind: 'cancelled', atUs }, atUs)
      return true
    }
    case 'call.failed': {
      const call = must(core.calls, fact.call)
      waste(core, call)
      end(core, call, { kind: 'failed', atUs, why: fact.why }, atUs)
      return true
    }
    default:
      return false
  }
}

/** Ids are those strings that others have already. */
function arrive(core: CoreState, fact: Of<'call.arrived'>, logged: Logged): void {
  const program = must(core.programs, fact.program)
  const thread = core.threads.get(fact.thread)
  core.calls.set(fact.call, freshCall(fact, {
    id: fact.call, program: program.id, thread: thread?.id ?? fact.thread, seq: logged.seq, arrivedUs: logged.atUs,
    payer: fact.payer === program.tenant ? program.tenant : fact.payer,
  }))
  core.openCalls += 1
  program.openCalls += 1
  must(core.tenants, program.tenant).openCalls += 1
  program.calls = [...program.calls, fact.call]
  program.lastUs = logged.atUs
  keepDigest(core, { id: fact.call, digest: fact.digest })
  if (thread === undefined) {
    core.threads.set(fact.thread, freshThread({ id: fact.thread, program: program.id, forkedFrom: null, active: fact.call, state: null }))
    program.threads = [...program.threads, fact.thread]
  } else if (thread.active === null) thread.active = fact.call
  else thread.waiting = [...thread.waiting, fact.call]
}

const NONE: readonly never[] = []

function schedule(core: CoreState, fact: Of<'call.scheduled'>, atUs: Us): void {
  const call = must(core.calls, fact.call)
  const thread = must(core.threads, call.thread)
  if (thread.state === null) {
    thread.state = fact.state
    core.states.set(fact.state, {
      id: fact.state, tenant: must(core.programs, call.program).tenant, model: call.model,
      owner: { kind: 'thread', thread: thread.id }, residence: { kind: 'gone' }, spans: [], tail: { prefilled: 0, decoded: 0 },
      device: null, host: null, record: null, lastUsedUs: atUs, idleSinceUs: atUs,
    })
  }
  const state = must(core.states, thread.state)
  assert(state.id === fact.state, `${call.id} runs on the State of its thread`)
  if (spanTokens(state) > fact.baseTokens) {
    cutSpans(core, state, fact.baseTokens)
    state.tail = { prefilled: 0, decoded: 0 }
  }
  // What is fed again is reported again, and by the origin it is fed with now.
  if (fact.recomputeTokens > 0) state.tail = { prefilled: 0, decoded: 0 }
  if (fact.keepTokens === 0) delete state.plainFor
  if (fact.replay === 'plain' && fact.recomputeTokens > 0) state.plainFor = call.id
  takeDevice(core, state, { engine: fact.engine, tokens: fact.keepTokens, granules: fact.granules })
  reside(core, state, { kind: 'active', engine: fact.engine, call: call.id })
  state.lastUsedUs = atUs
  must(core.engines, fact.engine).running.add(call.id)
  beginService(core, call)
  call.attempt = fact.attempt
  call.attemptService = NO_LEDGER
  call.startedUs ??= atUs
  call.recomputeDue = fact.recomputeTokens
  call.recomputeDone = 0
  moveTo(core, call, { kind: 'running', engine: fact.engine, sinceUs: atUs })
  prepay(core, call, fact.expectedWorkUs)
}

function grant(core: CoreState, fact: Of<'call.granted'>): void {
  const state = activeState(core, must(core.calls, fact.call))
  if (state?.device == null) return
  must(core.engines, state.device.engine).cramped.delete(fact.call)
  takeDevice(core, state, { ...state.device, granules: fact.granules })
}

/** Growth since the last report, to the call, its program and its tenant. */
function charge(core: CoreState, call: Call, report: AttemptReport): void {
  const grown = ledgerGrowth(call.attemptService, report.service)
  call.attemptService = largerLedger(call.attemptService, report.service)
  call.ledger = addLedger(call.ledger, grown)
  chargeBoost(core, call, grown)
  const program = must(core.programs, call.program)
  program.ledger = addLedger(program.ledger, grown)
  learnService(core, program, attainedUs(grown), 0)
  const tenant = must(core.tenants, program.tenant)
  tenant.service = addLedger(tenant.service, grown)
  const grownUs = workOf(grown)
  const paidUs = Math.min(grownUs, call.prepaidUs)
  call.prepaidUs -= paidUs
  chargeShares(core, call, grownUs - paidUs)
  call.outputTokens = Math.max(call.outputTokens, report.outputTokens)
  call.recomputeDone = Math.max(call.recomputeDone, report.recomputedTokens)
  const state = activeState(core, call)
  if (state === null) return
  state.tail = {
    prefilled: Math.max(state.tail.prefilled, report.tailPrefilled),
    decoded: Math.max(state.tail.decoded, report.tailDecoded),
  }
}

/** What the call is expected to take is charged as it starts, so that the next to start is somebody else. */
export function prepay(core: CoreState, call: Call, expectedUs: Us): void {
  chargeShares(core, call, expectedUs - call.prepaidUs)
  call.prepaidUs = expectedUs
}

/** A failed attempt's service stays in the ledger, as retried. */
function waste(core: CoreState, call: Call): void {
  const program = must(core.programs, call.program)
  const tenant = must(core.tenants, program.tenant)
  call.ledger = wasted(call.ledger, call.attemptService)
  program.ledger = wasted(program.ledger, call.attemptService)
  tenant.service = wasted(tenant.service, call.attemptService)
  call.attemptService = NO_LEDGER
}

function complete(core: CoreState, fact: Of<'call.completed'>, atUs: Us): void {
  const call = must(core.calls, fact.call)
  assert(call.stage.kind !== 'committed', `invariant 1: ${call.id} commits once`)
  charge(core, call, fact.report)
  call.outputTokens = fact.report.outputTokens
  call.recomputedTokens += fact.report.recomputedTokens
  const state = activeState(core, call)
  leaveEngine(core, call, atUs)
  if (state !== null) {
    for (const span of fact.spans) {
      core.segments.set(span.segment, { id: span.segment, tenant: state.tenant, origin: span.origin, tokens: span.tokens, digest: span.digest, refs: 1 })
      state.spans.push({ segment: span.segment, origin: span.origin, tokens: span.tokens })
    }
    state.tail = { prefilled: 0, decoded: 0 }
    leaveRecord(core, state)
    state.record = call.id
    // Its record says how it was fed.
    delete state.plainFor
    idle(core, state, atUs)
  }
  moveTo(core, call, { kind: 'committed', atUs, finish: fact.finish })
  const program = must(core.programs, call.program)
  program.lastUs = atUs
  if (call.final) program.final = true
  const { tenant } = program
  call.toolCallIds = fact.toolCalls.map(({ id }) => id)
  for (const id of call.toolCallIds) core.toolCalls.set(`${tenant}/${id}`, { call: call.id, answeredBy: null })
  const thread = must(core.threads, call.thread)
  thread.last = call.id
  nextOfThread(core, call)
}

/**
 * What the call fed is cut, wherever its State is: the tail of a call that comes to nothing is nobody's. What an engine
 * holds of it is dropped by the facts that follow, or not used: it keeps no more than it is told to.
 */
function cutToBase(core: CoreState, call: Call, atUs: Us): void {
  const id = must(core.threads, call.thread).state
  const state = id === null ? undefined : core.states.get(id)
  if (state === undefined || call.startedUs === null) return
  const active = state.residence.kind === 'active'
  if (active && activeState(core, call) === null) return
  state.tail = { prefilled: 0, decoded: 0 }
  if (active) idle(core, state, atUs)
  else if (state.device !== null) state.device = { ...state.device, tokens: Math.min(state.device.tokens, spanTokens(state)) }
}

function end(core: CoreState, call: Call, stage: CallStage, atUs: Us): void {
  leaveEngine(core, call, atUs)
  cutToBase(core, call, atUs)
  moveTo(core, call, stage)
  must(core.programs, call.program).lastUs = atUs
  nextOfThread(core, call)
}

function detach(core: CoreState, call: Call, atUs: Us): void {
  waste(core, call)
  leaveEngine(core, call, atUs)
  cutToBase(core, call, atUs)
  moveTo(core, call, { kind: 'detached', sinceUs: atUs })
}

function nextOfThread(core: CoreState, call: Call): void {
  const thread = must(core.threads, call.thread)
  if (thread.active === call.id) {
    thread.active = thread.waiting[0] ?? null
    thread.waiting = thread.waiting.length > 1 ? thread.waiting.slice(1) : NONE
  } else thread.waiting = thread.waiting.filter((other) => other !== call.id)
}

/** The State this call runs on, where it does. */
function activeState(core: CoreState, call: Call): State | null {
  const id = must(core.threads, call.thread).state
  const state = id === null ? undefined : core.states.get(id)
  return state?.residence.kind === 'active' && state.residence.call === call.id ? state : null
}

function idle(core: CoreState, state: State | null, atUs: Us): void {
  if (state === null) return
  if (state.device !== null) state.device = { ...state.device, tokens: spanTokens(state) + state.tail.prefilled + state.tail.decoded }
  reside(core, state, state.device === null ? { kind: 'gone' } : { kind: 'suspended', tier: 'device' })
  state.lastUsedUs = atUs
  state.idleSinceUs = atUs
}

function leaveEngine(core: CoreState, call: Call, atUs: Us): void {
  if (call.stage.kind !== 'running' && call.stage.kind !== 'pausing') return
  const engine = must(core.engines, call.stage.engine)
  engine.running.delete(call.id)
  engine.pausing.delete(call.id)
  engine.cramped.delete(call.id)
  if (call.stage.kind === 'running') learnStay(engine, atUs - call.stage.sinceUs)
}

function learnStay(engine: Engine, stayedUs: Us): void {
  engine.stayUs = engine.stayUs === 0 ? stayedUs : engine.stayUs + Math.trunc((stayedUs - engine.stayUs) / STAYS_WEIGHED)
}
const STAYS_WEIGHED = 8

/** The only way a call changes stage, so that queues, counts and sets always hold just who belongs there. */
export function moveTo(core: CoreState, call: Call, stage: CallStage): void {
  const starts = stage.kind === 'running' || stage.kind === 'resuming'
  if (call.stage.kind === 'ready') {
    if (starts) liftFloors(core, call)
    leaveLine(core, call)
    dropReservation(core, call.id)
    endWait(core, call, call.stage.sinceUs)
  }
  if (call.stage.kind === 'detached') core.detached.delete(call.id)
  if (stage.kind === 'detached') core.detached.add(call.id)
  if (isOverStage(stage)) {
    core.openCalls -= 1
    const program = must(core.programs, call.program)
    program.openCalls -= 1
    must(core.tenants, program.tenant).openCalls -= 1
    settle(core, call)
    endBoost(core, call)
  }
  if (!starts && stage.kind !== 'pausing') prepay(core, call, 0)
  if (stage.kind === 'pausing') must(core.engines, stage.engine).pausing.add(call.id)
  call.stage = stage
  if (stage.kind !== 'ready') return
  beginWait(core, call)
  joinLine(core, call)
}

