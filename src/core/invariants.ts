/**
 * Owns the laws that hold after every step, by the numbers of ARCHITECTURE.md. Tests check them after each step,
 * production samples; a breach stops the process with its number. Laws 4, 7, 8, 10 and 13 concern tokens, effects,
 * credentials and time, and are held by tests of their own.
 */
import { attainedUs } from './account.ts'
import { InvariantError, must } from './assert.ts'
import type { ProgramId } from './ids.ts'
import { granulesTotal, spanTokens } from './kv-read.ts'
import type { Call, CoreState, Program, State } from './state.ts'
import type { Us } from './units.ts'

/** What must be remembered to see that something never decreases. */
interface Seen {
  readonly served: Map<ProgramId, Us>
  reign: number
  /** A limit that was lowered is reached by draining: what is above it must not grow. */
  openCalls: number
  programs: number
}
export const nothingSeen = (): Seen => ({ served: new Map(), reign: 0, openCalls: 0, programs: 0 })

/** Throws InvariantError with the number of the first law that is broken. */
export function checkInvariants(core: Readonly<CoreState>, seen: Seen): void {
  for (const call of core.calls.values()) checkCall(core, call)
  for (const program of core.programs.values()) checkProgram(core, program, seen)
  for (const state of core.states.values()) checkState(core, state)
  checkMemory(core)
  checkSegments(core)
  checkLimits(core, seen)
  for (const id of seen.served.keys()) if (!core.programs.has(id)) seen.served.delete(id)
  law(15, core.reign >= seen.reign, `the reign went from ${seen.reign} to ${core.reign}`)
  seen.reign = core.reign
}

function law(number: number, holds: boolean, what: string): void {
  if (!holds) throw new InvariantError(number, what)
}

function checkCall(core: Readonly<CoreState>, call: Call): void {
  const { kind } = call.stage
  const runs = [...core.engines.values()].filter((engine) => engine.running.has(call.id))
  const onEngine = kind === 'running' || kind === 'pausing'
  law(1, runs.length === (onEngine ? 1 : 0), `${call.id} is ${kind} and runs on ${runs.length} engines`)
  if (kind === 'ready' || kind === 'resuming' || onEngine) {
    const program = must(core.programs, call.program)
    law(2, call.measured && call.parents.every((id) => core.calls.get(id)?.stage.kind === 'committed'), `${call.id} is ${kind} and was not ready`)
    law(2, must(core.threads, call.thread).active === call.id, `${call.id} is ${kind} out of its turn in ${call.thread}`)
    law(3, call.epoch === program.epoch, `${call.id} is ${kind} in epoch ${call.epoch} of ${program.epoch}`)
    law(6, program.stage.kind === 'open', `${call.id} is ${kind} in a program that is ${program.stage.kind}`)
  }
  const queued = core.queues.get(call.model)?.includes(call.id) ?? false
  law(2, queued === (kind === 'ready'), `${call.id} is ${kind} and ${queued ? 'is' : 'is not'} in its queue`)
}

function checkProgram(core: Readonly<CoreState>, program: Program, seen: Seen): void {
  const served = attainedUs(program.ledger)
  law(12, served >= (seen.served.get(program.id) ?? 0), `${program.id} was served ${seen.served.get(program.id) ?? 0} us and now ${served}`)
  seen.served.set(program.id, served)
  if (program.stage.kind === 'open') return
  for (const id of program.calls) {
    const { kind } = must(core.calls, id).stage
    law(6, kind === 'committed' || kind === 'cancelled' || kind === 'failed', `${id} is ${kind} though its program is ${program.stage.kind}`)
  }
  for (const id of program.threads) {
    law(9, must(core.threads, id).state === null, `${id} holds KV though its program is ${program.stage.kind}`)
  }
}

function checkState(core: Readonly<CoreState>, state: State): void {
  const { residence } = state
  const move = residence.kind === 'moving' ? must(core.moves, residence.move) : null
  const there = residence.kind === 'active' ? state.device?.engine === residence.engine
    : residence.kind === 'suspended' ? state[residence.tier] !== null
    : move !== null ? state[move.from] !== null
    : state.device === null && state.host === null
  law(5, there, `${state.id} is ${residence.kind} and its bytes are elsewhere`)
  if (residence.kind === 'active') {
    const call = must(core.calls, residence.call)
    law(5, call.stage.kind === 'running' || call.stage.kind === 'pausing', `${state.id} is active for ${call.id}, which is ${call.stage.kind}`)
  }
  if (state.owner.kind === 'thread') law(9, core.threads.get(state.owner.thread)?.state === state.id, `${state.id} is owned by a thread that does not know it`)
  if (state.owner.kind === 'session') law(9, core.sessions.get(state.owner.session)?.states.includes(state.id) ?? false, `${state.id} is a prefix its session does not know`)
  if (state.owner.kind === 'nobody') law(9, residence.kind === 'moving', `${state.id} belongs to nobody and is kept`)
  if (state.device !== null && residence.kind === 'suspended') law(11, state.device.tokens <= spanTokens(state) + state.tail.prefilled + state.tail.decoded, `${state.id} holds more than it has`)
}

function checkMemory(core: Readonly<CoreState>): void {
  const states = [...core.states.values()]
  const moves = [...core.moves.values()]
  for (const engine of core.engines.values()) {
    const held = states.filter((state) => state.device?.engine === engine.id)
    const coming = moves.filter((move) => move.engine === engine.id && move.to === 'device')
    const owned = held.reduce((sum, state) => sum + (state.device?.granules ?? 0), 0)
    const reserved = coming.reduce((sum, move) => sum + move.reservedGranules, 0)
    law(11, owned === engine.ownedGranules && reserved === engine.reservedGranules, `${engine.id}: ${engine.ownedGranules} owned and ${engine.reservedGranules} reserved in the ledger, ${owned} and ${reserved} in fact`)
    law(11, engine.capabilities.memory === null || owned + reserved <= granulesTotal(engine), `${engine.id} gave out ${owned + reserved} of ${granulesTotal(engine)} granules`)
    law(11, engine.sequencesUsed === held.length + coming.length, `${engine.id}: ${engine.sequencesUsed} sequences in the ledger, ${held.length + coming.length} in fact`)
  }
  const ownedBytes = states.reduce((sum, state) => sum + (state.host?.bytes ?? 0), 0)
  const reservedBytes = moves.reduce((sum, move) => sum + move.reservedBytes, 0)
  law(11, ownedBytes === core.host.ownedBytes && reservedBytes === core.host.reservedBytes, `host: ${core.host.ownedBytes} owned in the ledger, ${ownedBytes} in fact`)
  law(11, ownedBytes + reservedBytes <= core.host.totalBytes, `host gave out ${ownedBytes + reservedBytes} of ${core.host.totalBytes} bytes`)
}

function checkSegments(core: Readonly<CoreState>): void {
  const refs = new Map<string, number>()
  for (const state of core.states.values()) for (const { segment } of state.spans) refs.set(segment, (refs.get(segment) ?? 0) + 1)
  for (const segment of core.segments.values()) law(11, refs.get(segment.id) === segment.refs, `${segment.id} counts ${segment.refs} references`)
  law(11, refs.size === core.segments.size, 'a State refers to a Segment that is gone')
}

function checkLimits(core: Readonly<CoreState>, seen: Seen): void {
  const { config } = core
  const fresh = seen.reign !== core.reign
  law(14, fresh || core.openCalls <= Math.max(config.callsOpenMax, seen.openCalls), `${core.openCalls} calls are open`)
  law(14, fresh || core.programs.size <= Math.max(config.programsMax, seen.programs), `${core.programs.size} programs are kept`)
  seen.openCalls = core.openCalls
  seen.programs = core.programs.size
  law(14, core.sessions.size <= core.programs.size + core.states.size, `${core.sessions.size} sessions are kept, some of nothing`)
  for (const session of core.sessions.values()) law(14, session.states.length <= config.sessionStatesMax, `${session.id} keeps ${session.states.length} prefixes`)
}
