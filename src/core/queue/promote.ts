/**
 * Owns the way up: a ready call goes to the top of its order once what it has waited is `promoteRatio` times what it was
 * served (Autellix, Algorithm 1; whose waiting and service, the policy says). While it waits the ratio only grows, so the
 * moment it gets there is computed once and is a timer; service that its program receives meanwhile moves it further away,
 * which is seen when the timer comes due. A promotion is a level: no ledger changes. Calls of one program wait each for
 * themselves and cross together, so none of them is forgotten.
 */
import { clearTimer, setTimer, type Deciding } from '../deciding.ts'
import type { CallId } from '../ids.ts'
import { orderOf } from '../policy/orders.ts'
import type { Call } from '../state.ts'

const timerOf = (call: CallId): string => `promote:${call}`

/** A call has just become ready. */
export function watchWait(d: Deciding, call: Call): void {
  const balance = orderOf(d.core).balance?.(d.core, call, d.nowUs)
  if (balance === undefined || call.level <= 0) return
  const crossesUs = d.core.config.promoteRatio * balance.servedUs - balance.waitedUs
  if (crossesUs > 0) setTimer(d, timerOf(call.id), d.nowUs + crossesUs)
  else d.emit({ kind: 'call.promoted', call: call.id, level: 0, tie: call.tie, ...balance })
}

/** Its timer came due. */
export function promote(d: Deciding, id: CallId): void {
  const call = d.core.calls.get(id)
  if (call?.stage.kind === 'ready') watchWait(d, call)
}

/** It leaves its queue. */
export const endWatch = (d: Deciding, call: CallId): void => clearTimer(d, timerOf(call))
