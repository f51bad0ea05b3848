/**
 * Owns the taking back of an engine that was cut off and kept its device: it says which States it still holds, and each is
 * adopted if it is just what was committed (the State, its program's epoch, the position, the digest of all tokens and
 * origins up to there), and dropped by command if not. A digest that nobody can check is a State that nobody has: a guess
 * here would be a wrong answer later. Until an engine is back, its States are gone; calls may be fed anew elsewhere meanwhile.
 */
import { must } from '../assert.ts'
import type { Deciding } from '../deciding.ts'
import type { StateId } from '../ids.ts'
import type { Held } from '../input.ts'
import { decideIdle } from './kv.ts'
import { callWaitingOn, granulesFree, granulesOf } from './kv-read.ts'
import type { CoreState, Engine, State } from '../state.ts'

export function takeInventory(d: Deciding, engine: Engine, inventory: readonly Held[]): void {
  if (!engine.capabilities.inventory || engine.capabilities.memory === null) return
  const unclaimed = new Map<StateId, string>()
  const adopted = new Set<StateId>()
  for (const held of inventory) {
    if (adopted.has(held.state) || unclaimed.has(held.state)) continue
    const why = mismatch(d.core, engine, held)
    if (why !== null) {
      unclaimed.set(held.state, why)
      continue
    }
    adopted.add(held.state)
    d.emit({ kind: 'kv.found', state: held.state, engine: engine.id, tokens: held.tokens, granules: granulesOf(engine, held.tokens) })
  }
  if (unclaimed.size > 0 && engine.capabilities.discard) {
    d.emit({ kind: 'kv.unclaimed', engine: engine.id, states: [...unclaimed].map(([state, why]) => ({ state, why })) })
  }
  // The timers of the last reign went with what was decided then.
  for (const id of adopted) if (callWaitingOn(d.core, must(d.core.states, id)) === null) decideIdle(d, id)
}

/** Null where it is what was committed, and there is room for it. */
function mismatch(core: Readonly<CoreState>, engine: Engine, held: Held): string | null {
  const state = core.states.get(held.state)
  if (state === undefined) return 'there is no such State'
  if (state.residence.kind !== 'gone') return `it is ${state.residence.kind} elsewhere`
  if (!engine.capabilities.models.includes(state.model)) return 'it is of another model'
  const epoch = epochOf(core, state)
  if (epoch !== null && epoch !== held.epoch) return `it is of epoch ${held.epoch}, now ${epoch}`
  if (held.tokens === 0 || digestAt(core, state, held.tokens) !== held.digest) return `its ${held.tokens} tokens are not the committed ones`
  if (granulesOf(engine, held.tokens) > granulesFree(engine)) return 'there is no room for it'
  if (engine.sequencesUsed >= (engine.capabilities.memory?.sequences ?? 0)) return 'there is no sequence for it'
  return null
}

/** Of the program that owns it; what a session keeps outlives its program and has none. */
function epochOf(core: Readonly<CoreState>, state: State): number | null {
  if (state.owner.kind !== 'thread') return null
  return must(core.programs, must(core.threads, state.owner.thread).program).epoch
}

/** Of all tokens and origins up to this position; null where no whole Segment ends there. */
function digestAt(core: Readonly<CoreState>, state: State, tokens: number): string | null {
  let end = 0
  for (const span of state.spans) {
    const segment = must(core.segments, span.segment)
    end += span.tokens
    if (end === tokens) return span.tokens === segment.tokens ? segment.digest : null
  }
  return null
}
