/**
 * Owns every write to the state: `apply(core, fact)` is the only writer, and it decides nothing. Replaying a log through
 * it gives the state back. Facts of calls and of KV have files of their own beside this one.
 */
import { NO_LEDGER } from './account.ts'
import { applyCall } from './apply-call.ts'
import { applyGraph, applyToNodes } from './graph/apply-graph.ts'
import { applyKv } from './kv/apply-kv.ts'
import { must } from './assert.ts'
import type { CoreConfig } from './config.ts'
import { dropDigest } from './digests.ts'
import type { Fact, Logged } from './fact.ts'
import { freshProgram } from './fresh.ts'
import { interruptId, type InterruptId, type ProgramId, type SessionId, type TenantId } from './ids.ts'
import { dropEmptySession, sessionOf } from './kv/memory.ts'
import { learnProgram, learnProgramBegun, learnReopened, learnWait, learnWaitBegun } from './predict/learn.ts'
import { emptyWork } from './predict/work.ts'
import { joinRoot } from './standing.ts'
import { emptyRecords } from './asleep/asleep.ts'
import type { CoreState, Interrupt, Prices, Program, Tenant } from './state.ts'
import { noTurns } from './queue/turn-state.ts'
import type { Us } from './units.ts'

export function emptyCore(config: CoreConfig): CoreState {
  return {
    config, seq: 0, reign: 0, nowUs: 0, wallOffsetUs: 0,
    tenants: new Map(), sessions: new Map(), ...emptyRecords(), graphs: new Map(),
    interrupts: new Map(), states: new Map(), segments: new Map(), sharedRecords: new Map(), moves: new Map(), engines: new Map(),
    host: { totalBytes: config.hostBytesMax, ownedBytes: 0, reservedBytes: 0 },
    queues: new Map(), turns: noTurns(), prices: UNPRICED, over: new Set(), provisional: new Set(), detached: new Set(), hosted: new Set(), openCalls: 0, digests: new Map(), timers: new Map(), toolCalls: new Map(),
    learned: { waitsOfKind: new Map(), waitsOfClass: new Map(), work: emptyWork(), unitMs: 0 },
  }
}

/** Until a reign says otherwise: all alike, and memory free. */
const UNPRICED: Prices = { bands: { interactive: 1, default: 1, batch: 1 }, deviceSecondMicro: 0, hostMebibyteSecondMicro: 0 }

export function apply(core: CoreState, logged: Logged): void {
  core.seq = logged.seq
  core.nowUs = logged.atUs
  const { fact } = logged
  applyToNodes(core, fact, logged.atUs)
  if (applyGraph(core, fact, logged.atUs)) return
  if (applyProgram(core, fact, logged) || applyInterrupt(core, fact, logged.atUs) || applyEngine(core, fact)) return
  if (applyCall(core, fact, logged) || applyKv(core, fact, logged.atUs)) return
  applyRest(core, fact)
}

/** Reign, timers, and facts that only say something: they change no other state. */
function applyRest(core: CoreState, fact: Fact): void {
  switch (fact.kind) {
    case 'reign.begun':
      core.reign = fact.reign
      core.wallOffsetUs = fact.wallOffsetUs
      return
    case 'shares.priced':
      core.prices = fact.prices
      return
    case 'tenant.weighed':
      core.tenants.set(fact.tenant, { ...core.tenants.get(fact.tenant) ?? newTenant(fact.tenant), weight: fact.weight })
      return
    case 'timer.set':
      core.timers.set(fact.timer, fact.atUs)
      return
    case 'timer.cleared':
      core.timers.delete(fact.timer)
      return
    default:
  }
}

function applyProgram(core: CoreState, fact: Fact, logged: Logged): boolean {
  switch (fact.kind) {
    case 'program.started':
      startProgram(core, fact, logged)
      return true
    case 'program.linked':
      linkProgram(core, fact)
      return true
    case 'program.reopened':
      core.provisional.delete(fact.program)
      learnReopened(core, must(core.programs, fact.program))
      must(core.programs, fact.program).stage = { kind: 'open' }
      return true
    case 'program.predicted':
      must(core.programs, fact.program).expected = { lowUs: fact.lowUs, highUs: fact.highUs }
      return true
    case 'program.completed':
      stop(core, fact.program, endedStage(core, fact.program, logged.atUs, fact.provisional))
      return true
    case 'program.closed':
      stop(core, fact.program, endedStage(core, fact.program, logged.atUs, false))
      return true
    case 'program.cancelled':
      must(core.programs, fact.program).epoch = fact.epoch
      stop(core, fact.program, { kind: 'cancelled', atUs: logged.atUs })
      return true
    case 'program.failed':
      stop(core, fact.program, { kind: 'failed', atUs: logged.atUs, why: fact.why })
      return true
    case 'program.forgotten':
      forgetProgram(core, fact.program)
      return true
    default:
      return false
  }
}

function endedStage(core: CoreState, id: ProgramId, atUs: Us, provisional: boolean): Program['stage'] {
  const { servedUs, callsDone } = must(core.programs, id).standing
  return { kind: 'ended', atUs, provisional, servedUs, callsDone }
}

function stop(core: CoreState, id: ProgramId, stage: Program['stage']): void {
  const program = must(core.programs, id)
  if (program.stage.kind === 'open') learnProgram(core, program, stage.kind === 'ended' ? 'ended' : 'cut')
  program.stage = stage
  core.provisional.delete(id)
  if (stage.kind === 'ended' && stage.provisional) return void core.provisional.add(id)
  if (core.over.has(id)) return
  core.over.add(id)
  must(core.tenants, program.tenant).livePrograms -= 1
}

function startProgram(core: CoreState, fact: Extract<Fact, { kind: 'program.started' }>, logged: Logged): void {
  if (!core.tenants.has(fact.tenant)) core.tenants.set(fact.tenant, newTenant(fact.tenant))
  core.programs.set(fact.program, freshProgram({
    ...fact, id: fact.program, tenant: must(core.tenants, fact.tenant).id, kind: fact.agent, seq: logged.seq, arrivedUs: logged.atUs,
  }))
  must(core.tenants, fact.tenant).livePrograms += 1
  learnProgramBegun(core, must(core.programs, fact.program))
  if (fact.session !== null) leadSession(core, fact.session, must(core.programs, fact.program))
  if (fact.parent !== null) adopt(core, fact.program, fact.parent)
}

/** The newest program of a session is where its next turn goes on. */
function leadSession(core: CoreState, id: SessionId, program: Program): void {
  sessionOf(core, id, program.tenant).program = program.id
}

const newTenant = (id: TenantId): Tenant =>
  ({ id, weight: 1, service: NO_LEDGER, livePrograms: 0, openCalls: 0, learned: { waits: new Map(), work: emptyWork(), kinds: new Map() } })

function linkProgram(core: CoreState, fact: Extract<Fact, { kind: 'program.linked' }>): void {
  const program = must(core.programs, fact.program)
  if (fact.session !== null) {
    core.programs.set(fact.program, { ...program, session: fact.session })
    leadSession(core, fact.session, program)
  }
  if (fact.parent !== null) adopt(core, fact.program, fact.parent)
}

function adopt(core: CoreState, child: ProgramId, parent: ProgramId): void {
  must(core.programs, child).parent = parent
  const above = must(core.programs, parent)
  above.children = [...above.children, child]
  joinRoot(core, must(core.programs, child))
}

/** Its facts stay in the log; its place in memory goes. */
function forgetProgram(core: CoreState, id: ProgramId): void {
  const program = must(core.programs, id)
  for (const call of program.calls) {
    const { digest, toolCallIds } = must(core.calls, call)
    for (const toolCall of toolCallIds) {
      const key = `${program.tenant}/${toolCall}`
      // An engine may have given the same id to a later call.
      if (core.toolCalls.get(key)?.call === call) core.toolCalls.delete(key)
    }
    core.interrupts.delete(interruptId(call))
    dropDigest(core, { id: call, digest })
    core.calls.delete(call)
  }
  for (const thread of program.threads) core.threads.delete(thread)
  if (program.parent !== null) {
    const above = must(core.programs, program.parent)
    above.children = above.children.filter((child) => child !== id)
  }
  core.programs.delete(id)
  core.over.delete(id)
  core.provisional.delete(id)
  if (program.session !== null) dropEmptySession(core, program.session)
}

function applyInterrupt(core: CoreState, fact: Fact, atUs: Us): boolean {
  switch (fact.kind) {
    case 'interrupt.started': {
      core.interrupts.set(fact.interrupt, {
        id: fact.interrupt, call: fact.call, thread: fact.thread, program: fact.program, epoch: fact.epoch, kind: fact.of,
        toolClass: fact.toolClass, toolCallIds: fact.toolCallIds, effect: fact.effect, effectKey: fact.effectKey,
        commits: [], startedUs: atUs, expected: null, stage: { kind: 'waiting' },
      })
      learnWaitBegun(core, tenantOf(core, fact.program), must(core.interrupts, fact.interrupt))
      must(core.threads, fact.thread).interrupt = fact.interrupt
      return true
    }
    case 'interrupt.completed': {
      const interrupt = must(core.interrupts, fact.interrupt)
      interrupt.stage = { kind: 'completed', atUs, by: fact.by }
      leaveThread(core, interrupt.id)
      const tenant = tenantOf(core, interrupt.program)
      learnWait(core, tenant, interrupt, fact.waitUs, 'ended')
      for (const toolCall of interrupt.toolCallIds) core.toolCalls.set(`${tenant.id}/${toolCall}`, { call: interrupt.call, answeredBy: fact.by })
      return true
    }
    case 'interrupt.expired':
      cutWait(core, fact.interrupt, { kind: 'expired', atUs })
      return true
    case 'effect.committed': {
      const { commits } = must(core.interrupts, fact.interrupt)
      if (!commits.some(({ toolCall }) => toolCall === fact.toolCall)) commits.push({ toolCall: fact.toolCall, record: fact.record, atUs })
      return true
    }
    case 'interrupt.cancelled':
      cutWait(core, fact.interrupt, { kind: 'cancelled', atUs })
      return true
    case 'interrupt.predicted':
      must(core.interrupts, fact.interrupt).expected = { lowUs: fact.lowUs, highUs: fact.highUs }
      return true
    default:
      return false
  }
}

const tenantOf = (core: CoreState, program: ProgramId): Tenant => must(core.tenants, must(core.programs, program).tenant)

/** Nobody knows how long it would have lasted. */
function cutWait(core: CoreState, id: InterruptId, stage: Extract<Interrupt['stage'], { atUs: Us }>): void {
  const interrupt = must(core.interrupts, id)
  interrupt.stage = stage
  leaveThread(core, id)
  learnWait(core, tenantOf(core, interrupt.program), interrupt, stage.atUs - interrupt.startedUs, 'cut')
}

function leaveThread(core: CoreState, id: InterruptId): void {
  const thread = must(core.threads, must(core.interrupts, id).thread)
  if (thread.interrupt === id) thread.interrupt = null
}

function applyEngine(core: CoreState, fact: Fact): boolean {
  switch (fact.kind) {
    case 'engine.joined': {
      const before = core.engines.get(fact.engine)
      core.engines.set(fact.engine, {
        id: fact.engine, stage: 'joined', ...(before?.draining === true ? { draining: true } : {}), capabilities: fact.capabilities, speeds: fact.speeds,
        ownedGranules: before?.ownedGranules ?? 0, reservedGranules: before?.reservedGranules ?? 0,
        sequencesUsed: before?.sequencesUsed ?? 0, running: before?.running ?? new Set(), pausing: before?.pausing ?? new Set(), cramped: before?.cramped ?? new Set(),
        idle: before?.idle ?? new Set(), moves: before?.moves ?? new Set(), resuming: before?.resuming ?? 0, stayUs: before?.stayUs ?? 0, orders: before?.orders ?? [],
      })
      return true
    }
    case 'engine.progress':
      must(core.engines, fact.engine).speeds = fact.speeds
      return true
    case 'engine.ordered':
      must(core.engines, fact.engine).orders = fact.orders
      return true
    case 'engine.drain.begun':
      core.turns.reservations.delete(fact.engine)
      must(core.engines, fact.engine).draining = true
      return true
    case 'engine.drain.ended':
      delete must(core.engines, fact.engine).draining
      return true
    case 'engine.lost':
      core.turns.reservations.delete(fact.engine)
      must(core.engines, fact.engine).stage = 'lost'
      must(core.engines, fact.engine).orders = []
      return true
    default:
      return false
  }
}
