/**
 * Owns the names of working bodies and how long each is needed: a call's own while it is open, its result while a retry
 * must be shown it, a token record while a State has it. Whoever ends one drops it; what a crash kept from being
 * dropped is found here at the next start.
 */
import { isOver } from '../core/call-read.ts'
import { isReplayable } from '../core/effects.ts'
import { bodyId, type BodyId, type CallId } from '../core/ids.ts'
import type { CoreState } from '../core/state.ts'

/** Between the name of a journal and the number of a leaf; no id has it. */
const LEAF_MARK = '/'
/** What the leaves of a call's journal are called before their numbers. */
const journalsOf = (call: CallId): BodyId => bodyId(`journal:${call}`)

/** As the client sent it. */
export const bodyOf = (call: CallId): BodyId => bodyId(`body:${call}`)
/** As the engine that measured it wants it back. */
export const preparedOf = (call: CallId): BodyId => bodyId(`prepared:${call}`)
/** A leaf of the journal: output tokens, and what they show. */
export const journalOf = (call: CallId, leaf: number): BodyId => bodyId(`${journalsOf(call)}${LEAF_MARK}${leaf}`)
export const recordOf = (call: CallId): BodyId => bodyId(`record:${call}`)
/** What a committed call showed: a retry is shown it again. */
export const resultOf = (call: CallId): BodyId => bodyId(`result:${call}`)

/** Whether this state can still ask for it. */
export function neededBodies(core: Readonly<CoreState>): (id: BodyId) => boolean {
  const needed = new Set<BodyId>()
  for (const call of core.calls.values()) {
    if (!isOver(call)) needed.add(bodyOf(call.id)).add(preparedOf(call.id)).add(journalsOf(call.id))
  }
  for (const interrupt of core.interrupts.values()) {
    const stage = core.programs.get(interrupt.program)?.stage
    const mayGoOn = stage?.kind === 'open' || (stage?.kind === 'ended' && stage.provisional)
    if (mayGoOn && isReplayable(interrupt)) needed.add(resultOf(interrupt.call))
  }
  for (const { record } of core.states.values()) if (record !== null) needed.add(recordOf(record))
  return (id) => needed.has(id) || needed.has(bodyId(id.slice(0, Math.max(0, id.lastIndexOf(LEAF_MARK)))))
}
