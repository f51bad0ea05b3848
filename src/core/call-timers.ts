/** Owns the end of a call's timers: of what is over, none is set. */
import { clearTimer, type Deciding } from './deciding.ts'
import type { CallId } from './ids.ts'
import { endWatch } from './promote.ts'

export function clearTimersOf(d: Deciding, call: CallId): void {
  clearTimer(d, `detached:${call}`)
  clearTimer(d, `parents:${call}`)
  endWatch(d, call)
}
