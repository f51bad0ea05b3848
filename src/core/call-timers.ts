/** Owns the end of a call's timers: of what is over, none is set, and none of its queue once it has left that. */
import { clearTimer, type Deciding } from './deciding.ts'
import type { CallId } from './ids.ts'
import { endWatch } from './queue/promote.ts'
import { endUrge } from './queue/slack.ts'

/** It leaves its queue. */
export function clearQueueTimersOf(d: Deciding, call: CallId): void {
  endWatch(d, call)
  endUrge(d, call)
}

export function clearTimersOf(d: Deciding, call: CallId): void {
  clearTimer(d, `detached:${call}`)
  clearTimer(d, `parents:${call}`)
  clearQueueTimersOf(d, call)
}
