/**
 * Owns the life of a program: declared, finished, cancelled, closed, forgotten. Keeps invariant 6 (after cancel no new
 * call), 9 (KV is released, or is the session's prefix) and 14 (programs in memory have a limit).
 */
import { must } from './assert.ts'
import { isOver } from './call-read.ts'
import { clearTimersOf } from './call-timers.ts'
import { clearTimer, setTimer, type Deciding } from './deciding.ts'
import { cancelInterrupt, effectsRemaining } from './effects.ts'
import type { Refusal } from './graph/graph-check.ts'
import { hasOpenNodes } from './graph/graph-read.ts'
import { isNamedBy, programId, sessionId, type ProgramId, type TenantId, type ThreadId } from './ids.ts'
import type { CancelProgram, DeclareProgram, FinishProgram } from './input.ts'
import { releaseState, settleState } from './kv/kv.ts'
import { parentRefusal, subProgramsOf } from './graph/lineage.ts'
import { expectProgram } from './predict/expect.ts'
import { kindOf } from './predict/work.ts'
import type { Program } from './state.ts'
import type { Us } from './units.ts'

export const isOpen = (program: Program): boolean => program.stage.kind === 'open'

export function declareProgram(d: Deciding, input: DeclareProgram): void {
  const id = programId(input.tenant, input.program)
  const refuse = (code: string, why: string): void =>
    d.emit({ kind: 'program.refused', tenant: input.tenant, program: input.program, code, why })
  if (d.core.programs.has(id)) return refuse('duplicate_program', 'a program of this id exists')
  const parent = input.parent === null ? null : programId(input.tenant, input.parent)
  const refused = parent === null ? null : parentRefusal(d.core, id, parent)
  if (refused !== null) return refuse(refused.code, refused.why)
  const full = tenantFull(d, input.tenant)
  if (full !== null) return refuse(full.code, full.why)
  if (!makeRoomForProgram(d, parent)) return refuse('queue_full', programsFull(d))
  d.emit({
    kind: 'program.started', program: id, tenant: input.tenant, declared: true,
    session: input.session === null ? null : sessionId(input.tenant, input.session),
    agent: kindOf(d.core, input.tenant, input.agent), identity: { source: 'explicit', confidence: 100 },
    priorityClass: input.priorityClass, deadlineUs: input.deadlineUs, parent, steps: input.steps,
  })
  expectProgram(d, id)
  setTimer(d, `close:${id}`, d.nowUs + d.core.config.programIdleUs)
}

export function finishProgram(d: Deciding, input: FinishProgram): void {
  const program = found(d, input)
  if (program === null) return
  const active = program.openCalls
  if (active > 0) return refuseProgram(d, input, 'program_busy', `${active} of its calls are open`)
  endInterrupts(d, program)
  complete(d, program, false)
}

export function cancelProgram(d: Deciding, input: CancelProgram): void {
  const program = found(d, input)
  if (program !== null) cancel(d, program)
}

function found(d: Deciding, input: FinishProgram | CancelProgram): Program | null {
  const program = d.core.programs.get(programId(input.tenant, input.program))
  if (program === undefined) refuseProgram(d, input, 'unknown_program', 'there is no such program')
  else if (program.stage.kind === 'cancelled') refuseProgram(d, input, 'program_cancelled', 'it was cancelled before')
  else if (program.stage.kind === 'failed') refuseProgram(d, input, 'program_ended', `it failed: ${program.stage.why}`)
  else if (program.stage.kind === 'ended' && !program.stage.provisional) refuseProgram(d, input, 'program_ended', 'it has finished')
  else return program
  return null
}

const refuseProgram = (d: Deciding, input: FinishProgram | CancelProgram, code: string, why: string): void =>
  d.emit({ kind: 'program.refused', tenant: input.tenant, program: input.program, code, why })

/** Cancel along the program (seed section 25): no call starts, running ones stop, waits end, KV goes; so for its sub-agents. */
function cancel(d: Deciding, program: Program): void {
  d.emit({ kind: 'program.cancelled', program: program.id, epoch: program.epoch + 1, effectsRemaining: effectsRemaining(d.core, program.id) })
  endCalls(d, program, 'its program was cancelled')
  endInterrupts(d, program)
  for (const thread of program.threads) release(d, thread)
  clearTimer(d, `close:${program.id}`)
  for (const child of subProgramsOf(d.core, program)) if (child.stage.kind === 'open' || isProvisional(child)) cancel(d, child)
}

const isProvisional = ({ stage }: Program): boolean => stage.kind === 'ended' && stage.provisional

function endCalls(d: Deciding, program: Program, why: string): void {
  for (const id of program.calls) {
    if (isUnanswered(d, id)) {
      clearTimersOf(d, id)
      d.emit({ kind: 'call.cancelled', call: id, why })
    }
  }
}

const interruptsOf = (d: Deciding, program: Program) => program.threads
  .map((thread) => must(d.core.threads, thread).interrupt)
  .filter((id) => id !== null)
  .map((id) => must(d.core.interrupts, id))

function endInterrupts(d: Deciding, program: Program): void {
  for (const { id } of interruptsOf(d, program)) cancelInterrupt(d, id)
}

/** Ends a program that answered: its States become the session's prefixes, or go. */
function complete(d: Deciding, program: Program, provisional: boolean): void {
  d.emit({ kind: 'program.completed', program: program.id, provisional })
  for (const thread of longestIdleFirst(d, program)) settleThread(d, program, thread)
  if (provisional) setTimer(d, `close:${program.id}`, d.nowUs + d.core.config.programIdleUs)
  else clearTimer(d, `close:${program.id}`)
}

/** A session keeps few prefixes and drops the oldest: what was used last is what its next turn continues. */
function longestIdleFirst(d: Deciding, program: Program): ThreadId[] {
  const usedUs = (thread: ThreadId): Us => {
    const { state } = must(d.core.threads, thread)
    return state === null ? 0 : must(d.core.states, state).lastUsedUs
  }
  return [...program.threads].sort((a, b) => usedUs(a) - usedUs(b))
}

function settleThread(d: Deciding, program: Program, thread: ThreadId): void {
  const { state } = must(d.core.threads, thread)
  if (state === null) return
  clearTimer(d, `reconsider:${state}`)
  if (program.session === null) releaseState(d, state)
  else settleState(d, state, program.session)
}

function release(d: Deciding, thread: ThreadId): void {
  const { state } = must(d.core.threads, thread)
  if (state !== null) releaseState(d, state)
}

/** Its wait is over, or it never returns: the program fails and nothing of it is kept. */
export function failProgram(d: Deciding, program: Program, why: string): void {
  endCalls(d, program, why)
  d.emit({ kind: 'program.failed', program: program.id, why })
  endInterrupts(d, program)
  for (const thread of program.threads) release(d, thread)
  clearTimer(d, `close:${program.id}`)
}

/** After a call ended: whether its program has too. An undeclared program is one turn; a declared one says when it ends. */
export function endIfDone(d: Deciding, program: Program): void {
  if (program.stage.kind !== 'open') return
  if (program.openCalls > 0 || interruptsOf(d, program).length > 0) return
  if (program.final) complete(d, program, false)
  else if (!program.declared) complete(d, program, true)
  else closeLater(d, program)
}

/** Nobody asks anything of it now: it closes, unless more comes. A step that runs elsewhere may take as long as a tool may. */
export function closeLater(d: Deciding, program: Program): void {
  if (program.stage.kind !== 'open' || program.openCalls > 0 || interruptsOf(d, program).length > 0) return
  const { interruptMaxUs, programIdleUs } = d.core.config
  setTimer(d, `close:${program.id}`, d.nowUs + (hasOpenNodes(d.core, program.id) ? interruptMaxUs : programIdleUs))
}

/** The close timer came due. */
export function closeProgram(d: Deciding, id: ProgramId): void {
  const program = d.core.programs.get(id)
  if (program === undefined) return
  if (program.stage.kind === 'ended' && program.stage.provisional) d.emit({ kind: 'program.closed', program: id })
  else if (program.stage.kind === 'open' && program.openCalls === 0 && interruptsOf(d, program).length === 0) complete(d, program, false)
}

/** A thread's State is wanted again: no decision about its wait is pending. */
export function restOf(d: Deciding, thread: ThreadId): void {
  const { state } = must(d.core.threads, thread)
  if (state !== null) clearTimer(d, `reconsider:${state}`)
}

/** Why the tenant may not have one more program; null where it may: one that has ended and could only be reopened gives way. */
export function tenantFull(d: Deciding, tenant: TenantId): Refusal | null {
  const live = d.core.tenants.get(tenant)?.livePrograms ?? 0
  const { tenantProgramsMax } = d.core.config
  if (live < tenantProgramsMax || closeEarly(d, (id) => isNamedBy(id, tenant) && must(d.core.programs, id).tenant === tenant) !== null) return null
  return { code: 'tenant_full', why: `${live} of its programs are not over, and tenantProgramsMax is ${tenantProgramsMax}` }
}

/** True when one more program fits; forgets the longest ended one where it must, but `spare`, nor a parent before its sub-agents. */
export function makeRoomForProgram(d: Deciding, spare: ProgramId | null): boolean {
  if (d.core.programs.size < d.core.config.programsMax) return true
  const mayGo = (id: ProgramId): boolean => {
    const { children, threads } = must(d.core.programs, id)
    return id !== spare && children.length === 0 && !threads.some((thread) => must(d.core.threads, thread).state !== null)
  }
  const over = [...d.core.over].find(mayGo) ?? closeEarly(d, mayGo)
  if (over === null) return false
  d.emit({ kind: 'program.forgotten', program: over, calls: must(d.core.programs, over).calls })
  return true
}

/** Why there is no room for one more. */
export const programsFull = ({ core }: Deciding): string => `${core.programs.size} programs are kept, and programsMax is ${core.config.programsMax}`

/** Closes the longest ended of those that may be reopened and that `may`; null: there is none. */
function closeEarly(d: Deciding, may: (id: ProgramId) => boolean): ProgramId | null {
  const id = [...d.core.provisional].find(may) ?? null
  if (id === null) return null
  d.emit({ kind: 'program.closed', program: id })
  clearTimer(d, `close:${id}`)
  return id
}

const isUnanswered = (d: Deciding, id: Program['calls'][number]): boolean => !isOver(must(d.core.calls, id))
