/** Owns the READY rule (seed section 18): nothing else may put a call into a queue. Keeps invariant 2. */
import { must } from './assert.ts'
import { watchAge } from './queue/aging.ts'
import { boostOf } from './queue/boosts.ts'
import { clearTimer, setTimer, type Deciding } from './deciding.ts'
import { areParentsCommitted } from './graph/graph-read.ts'
import { orderOf } from './policy/orders.ts'
import { watchWait } from './queue/promote.ts'
import { considerDeadline } from './queue/slack.ts'
import type { Call } from './state.ts'

/** READY(call) = parents committed, epoch valid, not cancelled, sized; its tool outputs came with it (invariant 2). */
export function readyIfDue(d: Deciding, call: Call): void {
  const program = must(d.core.programs, call.program)
  if (call.stage.kind !== 'measured' && call.stage.kind !== 'resuming') return
  if (!call.measured || call.epoch !== program.epoch || program.stage.kind !== 'open') return
  if (must(d.core.threads, call.thread).active !== call.id) return
  if (!call.parents.every((parent) => d.core.calls.get(parent)?.stage.kind === 'committed')) return
  if (!areParentsCommitted(d.core, call)) return waitForParents(d, call)
  clearTimer(d, `parents:${call.id}`)
  const { level, tie } = boostOf(d.core, call) ?? orderOf(d.core).key(d.core, call)
  d.emit({ kind: 'call.ready', call: call.id, level, tie })
  watchWait(d, call)
  watchAge(d, call)
  considerDeadline(d, call)
}

/** Its parents are ended by a runtime, which may be gone: nobody waits for ever. */
function waitForParents(d: Deciding, call: Call): void {
  const timer = `parents:${call.id}`
  if (!d.core.timers.has(timer)) setTimer(d, timer, d.nowUs + d.core.config.interruptMaxUs)
}
