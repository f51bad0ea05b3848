/**
 * Owns the life of a State's bytes: what is done with them when their program waits, every move between tiers, and their
 * release. A move reserves in the target first and publishes when the copy is verified; until then the owner keeps what
 * it had. Keeps invariants 5, 9 and 11.
 */
import { must } from '../assert.ts'
import { isOverStage } from '../call-read.ts'
import { discardCost, imageReserveBytes, offloadCost } from './cost.ts'
import { clearTimer, ignore, setTimer, type Deciding } from '../deciding.ts'
import { moveId, type SessionId, type StateId } from '../ids.ts'
import type { MoveDone, MoveFailed } from '../input.ts'
import { callWaitingOn, isMemoryWanted, hostFreeBytes, lastRecordOf, stateTokens } from './kv-read.ts'
import { proposedResidencyOf, residencyOf } from '../policy/residencies.ts'
import { readyIfDue } from '../ready.ts'
import { start } from '../schedule.ts'
import type { Call, Engine, Interrupt, Move, State } from '../state.ts'
import type { Bytes, MicroCost } from '../units.ts'

// ---------------------------------------------------------------- a program waits

/** A State became idle, or its time to decide again has come: Preserve, Offload or Discard, and when to ask again. */
export function decideIdle(d: Deciding, id: StateId): void {
  const state = d.core.states.get(id)
  if (state?.residence.kind !== 'suspended' || state.device === null) return
  const engine = must(d.core.engines, state.device.engine)
  if (engine.capabilities.memory === null) return
  if (engine.draining === true) {
    if (stateTokens(state) === 0) return discardDevice(d, state, 'its engine is drained')
    return void giveWay(d, state, engine, 'its engine is drained', () => true)
  }
  // Its call is there and only waits for its turn: whoever wants the memory meanwhile says so.
  if (callWaitingOn(d.core, state) !== null) return
  // A call that was given up before it fed anything leaves room that is taken and nothing to copy or to keep.
  if (stateTokens(state) === 0 && d.core.config.mode === 'schedule') return discardDevice(d, state, 'it holds no token')
  const interrupt = interruptOf(d, state)
  const wanted = isMemoryWanted(d.core, engine)
  const decision = proposedResidencyOf(d.core).decide(d.core, state, interrupt, wanted, d.nowUs)
  const performed = d.core.config.mode === 'schedule'
  d.emit({ kind: 'kv.decided', state: id, interrupt: interrupt?.id ?? null, ...decision, performed })
  if (!performed) return
  if (decision.choice === 'discard') return discardDevice(d, state, decision.because)
  if (decision.choice === 'offload') return void giveWay(d, state, engine, decision.because, () => true)
  d.emit({ kind: 'kv.preserved', state: id, engine: engine.id })
  if (decision.reconsiderAtUs !== null) setTimer(d, `reconsider:${id}`, decision.reconsiderAtUs)
}

function interruptOf(d: Deciding, state: State): Interrupt | null {
  if (state.owner.kind !== 'thread') return null
  const { interrupt } = must(d.core.threads, state.owner.thread)
  return interrupt === null ? null : must(d.core.interrupts, interrupt)
}

/** Says of a State that would be lost, and what that is expected to cost, whether it may be. */
export type MayLose = (state: State, regret: MicroCost) => boolean

/**
 * To host if there is room; else whichever is regretted less is lost, this State or images on host, where that may be.
 * False where nothing may be lost: then it stays.
 */
export function giveWay(d: Deciding, state: State, engine: Engine, why: string, mayLose: MayLose): boolean {
  const neededBytes = imageReserveBytes(engine, stateTokens(state))
  const regret = discardCost(d.core, state, engine, 1_000_000)
  const can = engine.capabilities.offload && engine.capabilities.imageKey !== null && neededBytes <= d.core.host.totalBytes
  const dropped = can ? imagesInTheWay(d, neededBytes) : null
  const lost = dropped?.reduce((sum, victim) => sum + victim.regret, 0) ?? 0
  if (dropped !== null && lost <= regret && dropped.every((victim) => mayLose(victim.state, victim.regret))) {
    for (const victim of dropped) discardHost(d, victim.state, 'host memory is wanted, and it is regretted least')
    beginOffload(d, state, engine)
    return true
  }
  if (!mayLose(state, regret)) return false
  discardDevice(d, state, can ? `${why}, and the host tier has no room for it` : why)
  return true
}

/** What giving way would cost a State that is wanted again: a copy out and in, or all that would be lost for room. */
export function giveWayCost(d: Deciding, state: State, engine: Engine): MicroCost {
  const neededBytes = imageReserveBytes(engine, stateTokens(state))
  const can = engine.capabilities.offload && engine.capabilities.imageKey !== null
  return can && hostFreeBytes(d.core) >= neededBytes
    ? offloadCost(d.core, state, engine, 0, 1_000_000)
    : discardCost(d.core, state, engine, 1_000_000)
}

/** Images that would have to go, cheapest regret first, for so many bytes to be free; null where not even all would do. */
function imagesInTheWay(d: Deciding, neededBytes: Bytes): { state: State; regret: MicroCost }[] | null {
  let freeBytes = hostFreeBytes(d.core)
  if (freeBytes >= neededBytes) return []
  const dropped: { state: State; regret: MicroCost }[] = []
  for (const victim of residencyOf(d.core).hostVictims(d.core, d.nowUs)) {
    if (freeBytes >= neededBytes) break
    freeBytes += victim.state.host?.bytes ?? 0
    dropped.push(victim)
  }
  return freeBytes >= neededBytes ? dropped : null
}

/** Of what lies there: an engine that was taken back may hold less than all. */
export function beginOffload(d: Deciding, state: State, engine: Engine): void {
  clearTimer(d, `reconsider:${state.id}`)
  const tokens = Math.min(stateTokens(state), state.device?.tokens ?? 0)
  d.emit({
    kind: 'kv.offload.begun', move: moveId(`${state.id}-${d.core.seq}`), state: state.id, engine: engine.id, tokens,
    reservedBytes: imageReserveBytes(engine, tokens),
  })
}

export function discardDevice(d: Deciding, state: State, why: string): void {
  clearTimer(d, `reconsider:${state.id}`)
  const engine = state.device === null ? null : must(d.core.engines, state.device.engine)
  d.emit({
    kind: 'kv.discarded', state: state.id, tier: 'device', tokens: state.device?.tokens ?? 0, why,
    engine: engine?.capabilities.discard === true ? engine.id : null, dropImage: null,
  })
}

export function discardHost(d: Deciding, state: State, why: string): void {
  d.emit({ kind: 'kv.discarded', state: state.id, tier: 'host', tokens: state.host?.tokens ?? 0, why, engine: null, dropImage: state.host?.image ?? null })
}

// ---------------------------------------------------------------- moves

function moverOf(d: Deciding, input: MoveDone | MoveFailed): Move | null {
  const move = d.core.moves.get(input.move)
  const why = move === undefined ? 'there is no such move'
    : input.reign !== d.core.reign ? `reign ${input.reign}, now ${d.core.reign}`
    : input.engine !== move.engine ? `it is a move of ${move.engine}`
    : null
  if (why === null) return move ?? null
  ignore(d, input.kind, input.move, why)
  return null
}

export function moveDone(d: Deciding, input: MoveDone): void {
  const move = moverOf(d, input)
  if (move === null) return
  const state = must(d.core.states, move.state)
  if (move.to === 'host' && input.bytes > move.reservedBytes) {
    return failMove(d, move, `the image has ${input.bytes} bytes, ${move.reservedBytes} were reserved`, false)
  }
  if (state.owner.kind === 'nobody') return failMove(d, move, 'nobody owns it any more', false)
  if (move.tokens > stateTokens(state) || isGivenUp(d, state)) return failMove(d, move, 'it holds what a call fed that came to nothing', true)
  if (move.to === 'device' && must(d.core.engines, move.engine).draining === true) return failMove(d, move, 'its engine is drained', false)
  const { bytes, digest, copyUs } = input
  const dropImage = move.from === 'host' ? state.host?.image ?? null : null
  d.emit({ kind: 'kv.moved', move: move.id, state: state.id, engine: move.engine, to: move.to, bytes, digest, copyUs, dropImage })
  if (move.to === 'host') return d.emit({ kind: 'kv.offloaded', state: state.id, bytes })
  const call = resumingCall(d, move)
  if (call === null) return decideIdle(d, state.id)
  d.emit({ kind: 'kv.resume.ready', state: state.id, call: call.id, engine: move.engine })
  start(d, call, must(d.core.engines, move.engine))
}

/** It was fed again plainly by a call that has been given up since. */
function isGivenUp({ core }: Deciding, { plainFor }: State): boolean {
  const stage = plainFor === undefined ? undefined : must(core.calls, plainFor).stage
  return stage !== undefined && (stage.kind === 'detached' || isOverStage(stage))
}

function resumingCall(d: Deciding, move: Move): Call | null {
  const call = move.forCall === null ? undefined : d.core.calls.get(move.forCall)
  return call?.stage.kind === 'resuming' && call.stage.move === move.id ? call : null
}

export function moveFailed(d: Deciding, input: MoveFailed): void {
  const move = moverOf(d, input)
  if (move !== null) failMove(d, move, input.why, input.sourceLost)
}

/** One way back for every move that does not end: reservation dropped, and whoever waited for it goes on without. */
export function failMove(d: Deciding, move: Move, why: string, sourceLost: boolean): void {
  const state = must(d.core.states, move.state)
  const call = resumingCall(d, move)
  const dropImage = move.to === 'host' ? move.id : sourceLost ? state.host?.image ?? null : null
  d.emit({ kind: 'kv.move.failed', move: move.id, state: state.id, engine: move.engine, to: move.to, why, sourceLost, dropImage })
  if (state.owner.kind === 'nobody') return releaseState(d, state.id)
  if (move.from === 'device' && state.device !== null) discardDevice(d, state, `it could not be copied: ${why}`)
  if (call !== null) readyIfDue(d, call)
}

// ---------------------------------------------------------------- owners

/** Nobody continues it any more: every byte goes, at once or when its transfer is quiet. */
export function releaseState(d: Deciding, id: StateId): void {
  const state = must(d.core.states, id)
  clearTimer(d, `reconsider:${id}`)
  clearTimer(d, `retire:${id}`)
  if (state.owner.kind !== 'nobody') d.emit({ kind: 'kv.settled', state: id, owner: { kind: 'nobody' } })
  if (state.residence.kind === 'moving') return
  if (state.device !== null) discardDevice(d, state, 'its program has ended')
  if (state.host !== null) discardHost(d, state, 'its program has ended')
  d.emit({ kind: 'kv.forgotten', state: id, record: lastRecordOf(d.core, state) })
}

/** The program answered: what it leaves is a reusable prefix of its session. */
export function settleState(d: Deciding, id: StateId, session: SessionId): void {
  const state = must(d.core.states, id)
  if (state.record === null) return releaseState(d, id)
  d.emit({ kind: 'kv.settled', state: id, owner: { kind: 'session', session } })
  setTimer(d, `retire:${id}`, d.nowUs + d.core.config.sessionRetentionUs)
  const { states } = must(d.core.sessions, session)
  for (const old of states.slice(0, Math.max(0, states.length - d.core.config.sessionStatesMax))) releaseState(d, old)
  decideIdle(d, id)
}

/** A prefix that no turn came back for. */
export function retire(d: Deciding, id: StateId): void {
  const state = d.core.states.get(id)
  if (state?.owner.kind === 'session') releaseState(d, id)
}

