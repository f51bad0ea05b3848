/**
 * Owns what tools do to the world outside, as far as we can know it (invariant 7). An interrupt carries the worst effect
 * of its tools and a key that is the same for every retry of its call, so that an outside system can tell a repetition.
 * What was done is committed: by its runtime, at any time, or by the results that come back. A commit is never taken
 * back: cancel lists it, and a call whose effects were committed is shown again to whoever retries it, never made anew.
 */
import { must } from './assert.ts'
import { clearTimer, type Deciding } from './deciding.ts'
import type { Effect, EffectRemaining } from './effect.ts'
import { interruptId, programId, type InterruptId, type ProgramId, type ThreadId } from './ids.ts'
import type { CommitEffect } from './input.ts'
import type { CoreState, Interrupt } from './state.ts'

const EFFECTS: readonly Effect[] = ['read', 'idempotent', 'irreversible']
/** Longest note of a runtime about what it did; a longer one is cut. */
const RECORD_CHARS_MAX = 256

/** The worst of them; the configuration knows a tool, else its engine's adapter does. */
export function effectOf(d: Deciding, names: readonly string[], otherwise: Effect): Effect {
  const known = d.core.config.toolEffects
  const worst = Math.max(...names.map((name) => EFFECTS.indexOf((Object.hasOwn(known, name) ? known[name] : undefined) ?? otherwise)))
  return EFFECTS[worst] ?? otherwise
}

/** Its wait is over without an answer, and its runtime hears what may be done or undone outside. */
export function cancelInterrupt(d: Deciding, id: InterruptId): void {
  const { effect, effectKey, toolCallIds, program } = must(d.core.interrupts, id)
  d.emit({ kind: 'interrupt.cancelled', interrupt: id, program, effect, effectKey, toolCallIds })
  clearTimer(d, `expire:${id}`)
}

/** All that the tools of its calls, or of those of one thread, did to the world or may have done; none where it is not known. */
export function effectsRemaining(core: Readonly<CoreState>, id: ProgramId, thread: ThreadId | null = null): EffectRemaining[] {
  const calls = core.programs.get(id)?.calls ?? []
  const own = thread === null ? calls : calls.filter((call) => must(core.calls, call).thread === thread)
  return own.flatMap((call) => core.interrupts.get(interruptId(call)) ?? []).flatMap(remainingOf)
}

function remainingOf({ id, effect, effectKey, toolCallIds, commits }: Interrupt): EffectRemaining[] {
  const committed = commits.map(({ toolCall }) => toolCall)
  // Of a tool that only reads, nothing remains, unless its runtime has said that it did something all the same.
  if (effect === 'read' && committed.length === 0) return []
  const unknown = effect === 'read' ? [] : toolCallIds.filter((toolCall) => !committed.includes(toolCall))
  return [{ interrupt: id, effect, effectKey, committed, unknown }]
}

/** True where the results of its call must be shown again rather than made anew. */
export const isReplayable = ({ stage, commits }: Interrupt): boolean => stage.kind === 'waiting' || commits.length > 0

/** Its runtime says that a tool did what it does; also after a cancel, since what is done is done. */
export function commitEffect(d: Deciding, input: CommitEffect): void {
  const refuse = (code: string, why: string): void =>
    d.emit({ kind: 'program.refused', tenant: input.tenant, program: input.program, code, why })
  const program = d.core.programs.get(programId(input.tenant, input.program))
  if (program === undefined) return refuse('unknown_program', 'there is no such program')
  const link = d.core.toolCalls.get(`${input.tenant}/${input.toolCall}`)
  const interrupt = link === undefined ? undefined : d.core.interrupts.get(interruptId(link.call))
  if (interrupt?.program !== program.id) return refuse('unknown_tool_call', `this program waits or waited for no tool call "${input.toolCall}"`)
  const before = interrupt.commits.find(({ toolCall }) => toolCall === input.toolCall)
  commit(d, interrupt, input.toolCall, before === undefined ? input.record?.slice(0, RECORD_CHARS_MAX) ?? null : before.record)
}

/** Its results came back, so its tools are done. Reads leave nothing to remember. */
export function commitAll(d: Deciding, interrupt: Interrupt): void {
  if (interrupt.effect === 'read') return
  for (const { unknown } of remainingOf(interrupt)) for (const toolCall of unknown) commit(d, interrupt, toolCall, null)
}

function commit(d: Deciding, { id, program, effectKey }: Interrupt, toolCall: string, record: string | null): void {
  d.emit({ kind: 'effect.committed', program, interrupt: id, effectKey, toolCall, record })
}
