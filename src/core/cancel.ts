/**
 * Owns the cancelling of less than a program: a thread, or a call. What is cancelled stops, its waits end, its KV is
 * released as soon as transfers are quiet, and nothing of it comes again (invariants 6 and 9). What can no longer run for
 * it is cancelled in `graph-follow.ts`.
 */
import { must } from './assert.ts'
import { isOver } from './call-read.ts'
import { giveUp } from './call.ts'
import { clearTimersOf } from './call-timers.ts'
import { clearTimer, type Deciding } from './deciding.ts'
import { cancelInterrupt, effectsRemaining } from './effects.ts'
import { nodeOf } from './graph/graph-read.ts'
import { nodeId, programId, threadId, type CallId, type ThreadId } from './ids.ts'
import type { CancelCall, CancelThread } from './input.ts'
import { releaseState } from './kv/kv.ts'
import { endIfDone } from './program.ts'
import type { Program } from './state.ts'

export function cancelThread(d: Deciding, input: CancelThread): void {
  const program = openProgram(d, input)
  if (program === null) return
  const id = threadId(program.id, input.thread)
  const thread = d.core.threads.get(id)
  if (thread === undefined) return refuse(d, input, 'unknown_thread', `the program has no thread "${input.thread}"`)
  if (thread.cancelled) return refuse(d, input, 'thread_cancelled', `"${input.thread}" was cancelled before`)
  endThread(d, id, 'it was cancelled')
  endIfDone(d, program)
}

export function cancelCall(d: Deciding, input: CancelCall): void {
  const program = openProgram(d, input)
  if (program === null) return
  const named = d.core.graphs.get(program.id)?.nodes.get(nodeId(input.call))
  const found = d.core.calls.get(named?.call ?? input.call as CallId)
  const call = found?.program === program.id ? found : undefined
  const node = named ?? (call === undefined ? null : nodeOf(d.core, call))
  if (call === undefined && named === undefined) return refuse(d, input, 'unknown_call', `the program has no call and no node "${input.call}"`)
  if (node != null && node.stage.kind !== 'open') return refuse(d, input, 'node_closed', `"${input.call}" is ${node.stage.kind}`)
  if (call !== undefined && isOver(call)) return refuse(d, input, 'node_closed', `"${input.call}" is ${call.stage.kind}`)
  if (node != null) d.emit({ kind: 'node.cancelled', program: program.id, node: node.id, why: 'it was cancelled' })
  if (call !== undefined) giveUp(d, call, 'it was cancelled')
}

function openProgram(d: Deciding, input: CancelThread | CancelCall): Program | null {
  const program = d.core.programs.get(programId(input.tenant, input.program))
  if (program === undefined) refuse(d, input, 'unknown_program', 'there is no such program')
  else if (program.stage.kind === 'cancelled') refuse(d, input, 'program_cancelled', 'it was cancelled before')
  else if (program.stage.kind !== 'open') refuse(d, input, 'program_ended', `it has ${program.stage.kind}`)
  else return program
  return null
}

const refuse = (d: Deciding, input: CancelThread | CancelCall, code: string, why: string): void =>
  d.emit({ kind: 'program.refused', tenant: input.tenant, program: input.program, code, why })

/** For good: its calls stop, its nodes are cancelled, and what effects its wait may still have is told. */
export function endThread(d: Deciding, id: ThreadId, why: string): void {
  const thread = must(d.core.threads, id)
  d.emit({ kind: 'thread.cancelled', program: thread.program, thread: id, why, effectsRemaining: effectsRemaining(d.core, thread.program, id) })
  for (const node of d.core.graphs.get(thread.program)?.nodes.values() ?? []) {
    if (node.thread === id && node.stage.kind === 'open') d.emit({ kind: 'node.cancelled', program: thread.program, node: node.id, why })
  }
  for (const call of [thread.active, ...thread.waiting]) {
    if (call === null || isOver(must(d.core.calls, call))) continue
    clearTimersOf(d, call)
    d.emit({ kind: 'call.cancelled', call, why })
  }
  quieten(d, id)
}

/** Nothing of the thread runs: its wait ends and its KV goes, and it may be taken up again. */
export function quieten(d: Deciding, id: ThreadId): void {
  const { interrupt, state } = must(d.core.threads, id)
  if (interrupt !== null) cancelInterrupt(d, interrupt)
  if (state !== null) releaseState(d, state)
}
