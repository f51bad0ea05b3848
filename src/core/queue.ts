/**
 * Owns the order inside a queue of ready calls: by level, then tie, then arrival; a total order, since `seq` is unique.
 * Keys are fixed while a call is in the queue, so its place is found by halving.
 */
import { must } from './assert.ts'
import type { CallId } from './ids.ts'
import type { Call, CoreState } from './state.ts'

/** Negative: `a` before `b`. */
export function compareCalls(a: Readonly<Call>, b: Readonly<Call>): number {
  return a.level - b.level || a.tie - b.tie || a.seq - b.seq
}

function placeOf(core: Readonly<CoreState>, queue: readonly CallId[], call: Readonly<Call>): number {
  let low = 0
  let high = queue.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (compareCalls(must(core.calls, queue[middle] as CallId), call) < 0) low = middle + 1
    else high = middle
  }
  return low
}

/** For `apply` only. */
export function enqueue(core: CoreState, call: Call): void {
  let queue = core.queues.get(call.model)
  if (queue === undefined) core.queues.set(call.model, queue = [])
  queue.splice(placeOf(core, queue, call), 0, call.id)
}

/** For `apply` only. The call must not have changed its key since it came in. */
export function dequeue(core: CoreState, call: Call): void {
  const queue = core.queues.get(call.model) ?? []
  const at = placeOf(core, queue, call)
  if (queue[at] === call.id) queue.splice(at, 1)
  if (queue.length === 0) core.queues.delete(call.model)
}
