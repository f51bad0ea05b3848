/**
 * Owns the laws of calls: one place on one engine at most (1), ready before running (2), of the present epoch (3), of a
 * program that is open (6), and in the queue exactly while they are ready.
 */
import { must } from '../assert.ts'
import { isOver } from '../call-read.ts'
import type { CallId } from '../ids.ts'
import { candidates } from '../queue/queue.ts'
import type { Call, CoreState, Engine, Thread } from '../state.ts'
import { law } from './law.ts'

export function checkCalls(core: Readonly<CoreState>): void {
  const running = runningOn(core)
  const queued = queuedIn(core)
  let open = 0
  for (const call of core.calls.values()) {
    if (!isOver(call)) open += 1
    checkCall(core, call, running.get(call.id) ?? null, queued.get(call.id) ?? null)
  }
  law(14, open === core.openCalls, () => `${open} calls are open and ${core.openCalls} are counted`)
  for (const thread of core.threads.values()) checkThread(core, thread)
}

/** Where each call runs; a call that runs twice breaks law 1. */
function runningOn(core: Readonly<CoreState>): Map<CallId, Engine> {
  const running = new Map<CallId, Engine>()
  for (const engine of core.engines.values()) {
    for (const id of engine.running) {
      law(1, core.calls.has(id), () => `${id} runs on ${engine.id} and is not known`)
      law(1, !running.has(id), () => `${id} runs on ${running.get(id)?.id ?? ''} and on ${engine.id}`)
      running.set(id, engine)
    }
  }
  return running
}

/** The model in whose queue each call stands, and each stands once. */
function queuedIn(core: Readonly<CoreState>): Map<CallId, string> {
  const queued = new Map<CallId, string>()
  for (const [model, queue] of core.queues) {
    for (const id of candidates(queue)) {
      law(2, !queued.has(id), () => `${id} stands twice in the queues`)
      law(2, core.calls.has(id), () => `${id} is queued and is not known`)
      queued.set(id, model)
    }
  }
  return queued
}

function checkCall(core: Readonly<CoreState>, call: Call, engine: Engine | null, queue: string | null): void {
  const { kind } = call.stage
  const on = kind === 'running' || kind === 'pausing' ? call.stage.engine : null
  law(1, (engine?.id ?? null) === on, () => `${call.id} is ${kind} and runs on ${engine?.id ?? 'no engine'}`)
  law(2, (queue ?? null) === (kind === 'ready' ? call.model : null), () => `${call.id} is ${kind} and stands in ${queue ?? 'no queue'}`)
  const program = core.programs.get(call.program)
  const thread = core.threads.get(call.thread)
  if (program === undefined || thread === undefined) return law(6, false, () => `${call.id} belongs to what is forgotten`)
  law(8, thread.program === call.program, () => `${call.id} of ${call.program} runs in a thread of ${thread.program}`)
  law(3, call.epoch <= program.epoch, () => `${call.id} is of epoch ${call.epoch}, its program of ${program.epoch}`)
  law(6, program.stage.kind === 'open' || isOver(call), () => `${call.id} is ${kind} though its program is ${program.stage.kind}`)
  if (kind !== 'ready' && kind !== 'resuming' && on === null) return
  law(2, call.measured, () => `${call.id} is ${kind} and was not measured`)
  law(2, call.parents.every((id) => core.calls.get(id)?.stage.kind === 'committed'), () => `${call.id} is ${kind} and a parent is not committed`)
  law(2, thread.active === call.id, () => `${call.id} is ${kind} out of its turn in ${call.thread}`)
  law(3, call.epoch === program.epoch, () => `${call.id} is ${kind} in epoch ${call.epoch} of ${program.epoch}`)
}

/** A thread runs one call after another, and knows which one is next. */
function checkThread(core: Readonly<CoreState>, thread: Thread): void {
  const line = thread.active === null ? thread.waiting : [thread.active, ...thread.waiting]
  law(2, thread.active !== null || thread.waiting.length === 0, () => `${thread.id} has calls that wait for none`)
  law(2, new Set(line).size === line.length, () => `${thread.id} has a call twice`)
  for (const id of line) {
    const call = must(core.calls, id)
    law(2, call.thread === thread.id && !isOver(call), () => `${id} is ${call.stage.kind} and still in line in ${thread.id}`)
  }
  for (const id of thread.waiting) {
    const { stage } = must(core.calls, id)
    law(2, stage.kind === 'arrived' || stage.kind === 'measured' || stage.kind === 'detached', () => `${id} is ${stage.kind} before its turn in ${thread.id}`)
  }
  if (thread.last === null) return
  const last = core.calls.get(thread.last)
  law(1, last?.stage.kind === 'committed', () => `the last call of ${thread.id} is ${last?.stage.kind ?? 'not known'}`)
}
