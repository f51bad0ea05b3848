/**
 * Owns what orders read of a program and of a call: service of ended calls (summed, and along the longest path), service
 * in all (`predict/learn.ts` writes it), time waited in queues, and who was passed by a later program. A sub-agent's goes
 * to its root. A program waits while at least one of its calls does: the union of their waits, so that fan-out does not look
 * like patience. Written for `apply` only.
 */
import { attainedUs, NO_LEDGER } from './account.ts'
import { must } from './assert.ts'
import type { CallStanding, Past, Standing } from './learned.ts'
import { rootOf } from './graph/lineage.ts'
import { learnService } from './predict/learn.ts'
import type { Balance } from './policy/order/order.ts'
import type { Call, CoreState, Program } from './state.ts'
import type { Us } from './units.ts'

export const newStanding = (): Standing =>
  ({ past: NO_PAST, servedUs: 0, callsDone: 0, waitedUs: 0, waiting: 0, waitingSinceUs: 0 })
const NO_PAST: Past = { doneUs: 0, pathUs: 0 }
export const NO_STANDING: CallStanding = { inherited: null, waitedUs: 0, promotedAtUs: null }

// ---------------------------------------------------------------- reads

const rootOfCall = (core: Readonly<CoreState>, call: Readonly<Call>): Readonly<Program> =>
  rootOf(core, must(core.programs, call.program))

/** What the call took over from its program when it first became ready; before that, what it would take over now. */
export const inheritedOf = (core: Readonly<CoreState>, call: Readonly<Call>): Past =>
  call.standing.inherited ?? rootOfCall(core, call).standing.past

export const callWaitedUs = (call: Readonly<Call>, nowUs: Us): Us =>
  call.standing.waitedUs + (call.stage.kind === 'ready' ? nowUs - call.stage.sinceUs : 0)

export function programBalance(core: Readonly<CoreState>, call: Readonly<Call>, nowUs: Us): Balance {
  const { waitedUs, waiting, waitingSinceUs, servedUs } = rootOfCall(core, call).standing
  return { waitedUs: waitedUs + (waiting > 0 ? nowUs - waitingSinceUs : 0), servedUs }
}

/** Whether a program that came later than the call's was served before, in whatever band and by whichever engine. */
export const isPassed = (core: Readonly<CoreState>, call: Readonly<Call>): boolean =>
  rootOfCall(core, call).seq < (core.turns.latest.get(call.payer) ?? 0)

/** The call that would come after it in its thread: last in line, and nothing of it has run. */
export const callAfter = (call: Readonly<Call>): Call =>
  ({ ...call, seq: Number.MAX_SAFE_INTEGER, ledger: NO_LEDGER, standing: NO_STANDING })

// ---------------------------------------------------------------- writes

/** The call came into a queue. */
export function beginWait(core: CoreState, call: Call): void {
  const { standing } = rootOfCall(core, call)
  if (call.standing.inherited === null) call.standing = { ...call.standing, inherited: standing.past }
  if (standing.waiting === 0) standing.waitingSinceUs = core.nowUs
  standing.waiting += 1
}

/** The call left its queue, in which it was since `sinceUs`. */
export function endWait(core: CoreState, call: Call, sinceUs: Us): void {
  const { standing } = rootOfCall(core, call)
  call.standing = { ...call.standing, waitedUs: call.standing.waitedUs + core.nowUs - sinceUs }
  standing.waiting -= 1
  if (standing.waiting === 0) standing.waitedUs += core.nowUs - standing.waitingSinceUs
}

/** The call has begun to run. */
export function beginService(core: CoreState, call: Readonly<Call>): void {
  const { latest } = core.turns
  latest.set(call.payer, Math.max(latest.get(call.payer) ?? 0, rootOfCall(core, call).seq))
}

/** The call is over, committed or not: what it was served is done, and a path through its program. */
export function settle(core: CoreState, call: Call): void {
  const { standing } = rootOfCall(core, call)
  const ownUs = attainedUs(call.ledger)
  learnService(core, must(core.programs, call.program), 0, 1)
  if (ownUs === 0) return
  const pathUs = (call.standing.inherited?.pathUs ?? 0) + ownUs
  standing.past = { doneUs: standing.past.doneUs + ownUs, pathUs: Math.max(standing.past.pathUs, pathUs) }
}

/** It has a root from now on: what waits in it waits there, later charges go there; what it was served before stays its own. */
export function joinRoot(core: CoreState, program: Program): void {
  const from = program.standing
  const to = rootOf(core, program).standing
  if (from.waiting === 0) return
  from.waitedUs += core.nowUs - from.waitingSinceUs
  if (to.waiting === 0) to.waitingSinceUs = core.nowUs
  to.waiting += from.waiting
  from.waiting = 0
}
