/**
 * Owns the wait between a call that ended in tool calls and the call that brings their results: its start, and its end
 * where nobody comes. (A call that answers it ends it in `submit.ts`.)
 */
import { must } from './assert.ts'
import { setTimer, type Deciding } from './deciding.ts'
import { effectOf } from './effects.ts'
import { interruptId, type InterruptId } from './ids.ts'
import type { Finished } from './input.ts'
import { decideIdle } from './kv/kv.ts'
import { expectWait } from './predict/expect.ts'
import { endIfDone, failProgram } from './program.ts'
import type { Call } from './state.ts'

export function startInterrupt(d: Deciding, call: Call, input: Finished): void {
  const names = [...new Set(input.toolCalls.map(({ name }) => name))].sort()
  const id = interruptId(call.id)
  d.emit({
    kind: 'interrupt.started', interrupt: id, call: call.id, thread: call.thread, program: call.program, epoch: call.epoch,
    of: names.some((name) => d.core.config.humanTools.includes(name)) ? 'HUMAN' : 'TOOL',
    toolClass: classOf(d, call, names), toolCallIds: input.toolCalls.map((toolCall) => toolCall.id), effect: effectOf(d, names, input.toolEffect),
    effectKey: call.id,
  })
  expectWait(d, id)
  setTimer(d, `expire:${id}`, d.nowUs + d.core.config.interruptMaxUs)
  const { state } = must(d.core.threads, call.thread)
  if (state !== null) decideIdle(d, state)
}

/** The tools' names; a class beyond the tenant's limit is learned with all others of its kind. */
function classOf(d: Deciding, call: Call, names: readonly string[]): string {
  const name = names.join('+')
  const { waits } = must(d.core.tenants, must(d.core.programs, call.program).tenant).learned
  return waits.has(name) || waits.size < d.core.config.toolClassesMax ? name : 'other'
}

/** Nobody answered in time: the program fails, and what it held is freed. */
export function expire(d: Deciding, id: InterruptId): void {
  const interrupt = d.core.interrupts.get(id)
  if (interrupt?.stage.kind !== 'waiting') return
  d.emit({ kind: 'interrupt.expired', interrupt: id })
  const program = must(d.core.programs, interrupt.program)
  if (program.stage.kind !== 'open') return
  // It has answered, whatever else of it is still out.
  if (program.final) endIfDone(d, program)
  else failProgram(d, program, `no result for ${interrupt.toolClass} within core.interruptMaxSeconds`)
}
