/** Owns the line of a model as people see it: its ready calls, the next to be served first. Linear in the line; for views only. */
import type { CallId } from '../core/ids.ts'
import { candidates } from '../core/queue/queue.ts'
import type { CoreState } from '../core/state.ts'

export function lineOf(core: Readonly<CoreState>, model: string): readonly CallId[] {
  const queue = core.queues.get(model)
  return queue === undefined ? [] : [...candidates(queue)]
}
