/**
 * Owns the life of a call after it arrived: measured, ready, its attempts, and its one commit. What an engine says is
 * checked against reign, attempt and epoch first; anything older changes nothing and leaves `result.ignored` with the
 * reason. Keeps invariants 1, 2, 3, 12 and 15.
 */
import { must } from './assert.ts'
import { boostOf } from './queue/boosts.ts'
import { clearTimer, ignore, setTimer, type Deciding } from './deciding.ts'
import { areParentsCommitted } from './graph/graph-read.ts'
import { segmentId, type CallId } from './ids.ts'
import type { AttemptFailed, Finished, FromAttempt, HangUp, Measured, MeasureFailed, Paused, Progress } from './input.ts'
import { startInterrupt } from './interrupt.ts'
import { isOver } from './call-read.ts'
import { clearQueueTimersOf, clearTimersOf } from './call-timers.ts'
import { decideIdle, discardDevice, discardHost, releaseState } from './kv/kv.ts'
import { couldHold, lastRecordOf, spanTokens, stateOf, stateTokens } from './kv/kv-read.ts'
import { orderOf } from './policy/orders.ts'
import { endIfDone, failProgram } from './program.ts'
import { readyIfDue } from './ready.ts'
import type { Call } from './state.ts'
import type { Tokens } from './units.ts'

// ---------------------------------------------------------------- measured, ready

export function measured(d: Deciding, input: Measured): void {
  const call = d.core.calls.get(input.call)
  if (call?.stage.kind !== 'arrived') return ignore(d, 'measured', input.call, 'the call does not wait to be measured')
  if (!fitsSomewhere(d, { ...call, promptTokens: input.promptTokens })) return failTooLong(d, call, input.promptTokens)
  const own = stateOf(d.core, call)
  if (own !== null && own.model !== call.model) releaseState(d, own.id)
  d.emit({
    kind: 'call.measured', call: call.id, promptTokens: input.promptTokens,
    reusable: reusableFor(d, call, input), renderingWon: input.renderingWon,
  })
  readyIfDue(d, call)
}

const fitsSomewhere = (d: Deciding, call: Call): boolean => [...d.core.engines.values()].some((engine) => couldHold(d.core, engine, call))

const failTooLong = (d: Deciding, call: Call, promptTokens: Tokens): void =>
  fail(d, call, 'context_too_long', `the prompt has ${promptTokens} tokens, more than any engine of ${call.model} can hold`)

const isInLine = ({ stage: { kind } }: Readonly<Call>): boolean => kind === 'measured' || kind === 'ready'

/** An engine that comes back may be smaller than it was: who waited for the larger one is told. */
export function failWhatFitsNowhere(d: Deciding): void {
  for (const { id } of [...d.core.calls.values()].filter((call) => isInLine(call) && !fitsSomewhere(d, call))) {
    const call = d.core.calls.get(id)
    if (call !== undefined && isInLine(call)) failTooLong(d, call, call.promptTokens)
  }
}

/** The thread's own State, or one that an earlier turn left to the session, which the thread then adopts. */
function reusableFor(d: Deciding, call: Call, { matched }: Measured): Call['reusable'] {
  if (matched === null) return null
  const own = stateOf(d.core, call)
  if (own !== null) return own.record === matched.record ? { state: own.id, tokens: Math.min(matched.tokens, spanTokens(own)) } : null
  const { session } = must(d.core.programs, call.program)
  if (session === null) return null
  const left = d.core.sessions.get(session)?.states.map((id) => must(d.core.states, id)).find((state) => state.record === matched.record)
  if (left === undefined) return null
  clearTimer(d, `retire:${left.id}`)
  clearTimer(d, `reconsider:${left.id}`)
  d.emit({ kind: 'kv.adopted', state: left.id, thread: call.thread, session })
  return { state: left.id, tokens: Math.min(matched.tokens, spanTokens(left)) }
}

export function measureFailed(d: Deciding, input: MeasureFailed): void {
  const call = d.core.calls.get(input.call)
  if (call?.stage.kind !== 'arrived') return ignore(d, 'measureFailed', input.call, 'the call does not wait to be measured')
  fail(d, call, input.code, input.why)
}

// ---------------------------------------------------------------- what engines say

/** The attempt that speaks, or null after saying why it is not heard. */
function speaker(d: Deciding, from: FromAttempt, input: string): Call | null {
  const call = d.core.calls.get(from.call)
  const why = call === undefined ? 'there is no such call'
    : from.reign !== d.core.reign ? `reign ${from.reign}, now ${d.core.reign}`
    : from.epoch !== must(d.core.programs, call.program).epoch ? `epoch ${from.epoch} is over`
    : from.attempt !== call.attempt ? `attempt ${from.attempt}, now ${call.attempt}`
    : from.run !== call.preemptions ? `run ${from.run} of the attempt, now ${call.preemptions}`
    : call.stage.kind !== 'running' && call.stage.kind !== 'pausing' ? `the call is ${call.stage.kind}`
    : call.stage.engine !== from.engine ? `it runs on ${call.stage.engine}`
    : null
  if (why === null) return call ?? null
  ignore(d, input, from.call, why)
  return null
}

export function progress(d: Deciding, input: Progress): void {
  if (input.reign !== d.core.reign) return ignore(d, 'progress', input.engine, `reign ${input.reign}, now ${d.core.reign}`)
  const engine = d.core.engines.get(input.engine)
  if (engine?.stage !== 'joined') return ignore(d, 'progress', input.engine, engine === undefined ? 'there is no such engine' : 'the engine is lost')
  if (input.speeds !== null) d.emit({ kind: 'engine.progress', engine: engine.id, speeds: input.speeds })
  for (const { call: id, attempt, run, epoch, report } of input.calls) {
    const call = speaker(d, { call: id, attempt, run, epoch, engine: input.engine, reign: input.reign }, 'progress')
    if (call === null) continue
    d.emit({ kind: 'call.progressed', call: call.id, attempt: call.attempt, report })
    demote(d, call)
  }
}

/** The running call's own service may take it to a worse level, never to a better one. */
function demote(d: Deciding, call: Call): void {
  if (boostOf(d.core, call) !== null) return
  const key = orderOf(d.core).key(d.core, call)
  if (key.level > call.level) d.emit({ kind: 'call.demoted', call: call.id, ...key })
}

export function paused(d: Deciding, input: Paused): void {
  const call = speaker(d, input, 'paused')
  if (call === null) return
  if (call.stage.kind !== 'pausing') return ignore(d, 'paused', input.call, 'it was not told to pause')
  const state = stateOf(d.core, call)
  const whole = input.report.recomputedTokens >= call.recomputeDue
  d.emit({ kind: 'call.paused', call: call.id, report: input.report })
  if (state !== null && !whole) discardDevice(d, state, 'it was paused before it was recomputed in full')
  else if (state !== null && stateTokens(state) === 0) discardDevice(d, state, 'it was paused before anything was fed')
  else if (state !== null && d.core.engines.get(input.engine)?.draining === true) decideIdle(d, state.id)
  readyIfDue(d, call)
}

export function finished(d: Deciding, input: Finished): void {
  const call = speaker(d, input, 'finished')
  if (call === null) return
  const spans = input.spans.map((span, index) => ({ ...span, segment: segmentId(`${call.id}.${index}`) }))
  d.emit({
    kind: 'call.completed', call: call.id, attempt: call.attempt, finish: input.finish, report: input.report,
    parts: input.parts, spans, toolCalls: input.toolCalls, resume: input.resume, supersedes: lastRecordOf(d.core, stateOf(d.core, call)),
  })
  const program = must(d.core.programs, call.program)
  if (input.finish === 'tool_calls' && input.toolCalls.length > 0) startInterrupt(d, call, input)
  else {
    const state = must(d.core.threads, call.thread).state
    endIfDone(d, program)
    if (state !== null && program.stage.kind === 'open') decideIdle(d, state)
  }
}

export function attemptFailed(d: Deciding, input: AttemptFailed): void {
  const call = speaker(d, input, 'attemptFailed')
  if (call === null) return
  if (input.retryable) retry(d, call, input.why)
  else fail(d, call, 'engine_refused', input.why)
}

/** A new attempt of the same call, never a new call: service received stays in the ledger. */
export function retry(d: Deciding, call: Call, why: string): void {
  if (call.attempt >= d.core.config.attemptsMax) return fail(d, call, 'attempts_exhausted', `${call.attempt} attempts; the last: ${why}`)
  leave(d, call, () => d.emit({ kind: 'call.retried', call: call.id, attempt: call.attempt + 1, why }))
  readyIfDue(d, call)
}

// ---------------------------------------------------------------- ends without a commit

export function fail(d: Deciding, call: Call, code: string, why: string): void {
  leave(d, call, () => d.emit({ kind: 'call.failed', call: call.id, code, why }))
  clearTimersOf(d, call.id)
  failFollowers(d, call.thread)
  const program = must(d.core.programs, call.program)
  const isUnanswered = !program.declared && !program.final && program.openCalls === 0
  if (isUnanswered && program.stage.kind === 'open') failProgram(d, program, why)
  else endIfDone(d, program)
}

export function hangUp(d: Deciding, input: HangUp): void {
  const call = d.core.calls.get(input.call)
  if (call === undefined || isOver(call)) return ignore(d, 'hangUp', input.call, 'the call is over')
  giveUp(d, call, 'its client hung up')
}

/** It stops, whatever stage it is in; its program goes on. `isThreadLost`: what becomes of its KV is said with its thread. */
export function giveUp(d: Deciding, call: Call, why: string, isThreadLost = false): void {
  leave(d, call, () => d.emit({ kind: 'call.cancelled', call: call.id, why }))
  clearTimersOf(d, call.id)
  failFollowers(d, call.thread)
  const program = must(d.core.programs, call.program)
  const state = must(d.core.threads, call.thread).state
  endIfDone(d, program)
  if (state !== null && !isThreadLost && program.stage.kind === 'open') decideIdle(d, state)
}

/** A call whose parents in the declared graph did not commit in time. */
export function giveUpParents(d: Deciding, id: CallId): void {
  const call = d.core.calls.get(id)
  if (call?.stage.kind !== 'measured' || areParentsCommitted(d.core, call)) return
  fail(d, call, 'parent_failed', 'what it waits for did not commit within core.interruptMaxSeconds')
}

/** True where there was one that `may` go. */
export function giveUpLongestDetached(d: Deciding, may: (call: Call) => boolean): boolean {
  for (const id of d.core.detached) {
    const call = must(d.core.calls, id)
    if (!may(call)) continue
    giveUp(d, call, 'its client is gone, and another waits for its place')
    return true
  }
  return false
}

/** A detached call that nobody asked for again. */
export function giveUpDetached(d: Deciding, id: CallId): void {
  const call = d.core.calls.get(id)
  if (call?.stage.kind === 'detached') hangUp(d, { kind: 'hangUp', call: id })
}

/** After a restart the client is gone: the call keeps its place in the ledger and waits to be asked for again. */
export function detach(d: Deciding, call: Call): void {
  leave(d, call, () => d.emit({ kind: 'call.detached', call: call.id }))
  clearTimersOf(d, call.id)
  setTimer(d, `detached:${call.id}`, d.nowUs + d.core.config.programIdleUs)
}

/**
 * Takes a call off its engine, and drops what is no use to anyone: a device copy that was still being recomputed or was fed
 * again plainly, and copies made while the call was paused, which hold what it fed. (Those that are being made are dropped when done.)
 */
function leave(d: Deciding, call: Call, say: () => void): void {
  const state = stateOf(d.core, call)
  const active = state?.residence.kind === 'active' && state.residence.call === call.id
  const heldTokens = state?.device?.tokens ?? 0
  const isIts = state !== null && call.startedUs !== null && (stateTokens(state) > spanTokens(state) || state.plainFor === call.id)
  clearQueueTimersOf(d, call.id)
  say()
  if (state === null) return
  if (active && state.device !== null) {
    if (heldTokens < spanTokens(state)) discardDevice(d, state, 'its recompute was not finished')
    else if (state.plainFor === call.id) discardDevice(d, state, 'it was fed again plainly by a call that came to nothing')
  }
  if (active || !isIts || state.residence.kind === 'moving') return
  if (state.device !== null) discardDevice(d, state, 'it holds what a call fed that came to nothing')
  if (state.host !== null) discardHost(d, state, 'it holds what a call fed that came to nothing')
}

/** Calls of a thread that waited for one that never commits. */
function failFollowers(d: Deciding, thread: Call['thread']): void {
  for (;;) {
    const next = must(d.core.threads, thread).active
    if (next === null) return
    const call = must(d.core.calls, next)
    const lost = call.parents.some((parent) => isOver(must(d.core.calls, parent)) && must(d.core.calls, parent).stage.kind !== 'committed')
    if (!lost) return
    d.emit({ kind: 'call.failed', call: next, code: 'parent_failed', why: 'the call before it in its thread did not finish' })
    clearTimersOf(d, next)
  }
}
