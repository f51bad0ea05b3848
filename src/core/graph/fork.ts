/**
 * Owns the start of a thread that continues another: it refers to the Segments that the other has committed and has a tail
 * of its own. Nothing is on a device for it yet: its first call feeds what it continues again, by origin, or finds it as
 * the prefix of what it was given; no engine is asked for a copy. It is charged granules of its own.
 */
import { must } from '../assert.ts'
import type { Deciding } from '../deciding.ts'
import { stateId, type ProgramId, type ThreadId } from '../ids.ts'
import { spanTokens } from '../kv/kv-read.ts'

export function fork(d: Deciding, program: ProgramId, thread: ThreadId, from: ThreadId): void {
  const id = must(d.core.threads, from).state
  const state = id === null ? null : must(d.core.states, id)
  const tokens = state?.record == null ? 0 : spanTokens(state)
  d.emit({ kind: 'thread.forked', program, thread, from, state: tokens === 0 ? null : stateId(`fork-${d.core.seq}`), tokens })
}
