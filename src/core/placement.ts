/**
 * Owns on which engine a ready call runs: asks the policy, says what was decided with every term of every engine that was
 * looked at, and sets the call on its way there. A State on another device goes through host: when it has arrived there
 * the call is looked at again, and may go where it is best off by then.
 */
import { must } from './assert.ts'
import { luggageOf, wayTo } from './kv/continuation.ts'
import type { Deciding } from './deciding.ts'
import { beginOffload, discardDevice } from './kv/kv.ts'
import { candidatesFor, placementOf } from './policy/placements.ts'
import type { Ahead, Placement } from './policy/placement/placement.ts'
import { reservedFor } from './queue/reservations.ts'
import { schedule } from './schedule.ts'
import { sitesOf, type Site } from './site.ts'
import type { Call, Engine, State } from './state.ts'

/** Null where no engine that is there could hold it. */
export function placementFor(d: Deciding, call: Call, state: State | null, sites: readonly Site[], ahead: Ahead): Placement | null {
  const candidates = candidatesFor(d.core, call, state, sites)
  const reserved = reservedFor(d.core, call.id)
  const kept = reserved === null ? undefined : candidates.find(({ engine }) => engine === reserved)
  if (kept !== undefined) return { site: kept, way: wayTo(d.core, call, luggageOf(d.core, call, state), kept.engine) }
  return candidates.length === 0 ? null : placementOf(d.core).place(d.core, call, state, candidates, ahead)
}

/** There is room for it where it was placed, by the way that is best by now. Only a choice is told: one engine alone is none. */
export function carryOut(d: Deciding, call: Call, state: State | null, engine: Engine, ahead: Ahead): void {
  const way = wayTo(d.core, call, luggageOf(d.core, call, state), engine)
  const candidates = candidatesFor(d.core, call, state, sitesOf(d.core, call.model))
  if (candidates.length > 1) {
    const priced = placementOf(d.core).priced(d.core, call, state, candidates, ahead)
    if (priced.length > 0) d.emit({ kind: 'call.placed', call: call.id, engine: engine.id, way, candidates: priced })
  }
  const elsewhere = state?.device != null && state.device.engine !== engine.id ? state.device.engine : null
  if (state === null || elsewhere === null) return schedule(d, call, engine)
  if (way === 'moved') return beginOffload(d, state, must(d.core.engines, elsewhere))
  discardDevice(d, state, way === 'fresh' ? 'its call continues none of it' : `its call goes to ${engine.id}, where feeding it again is cheaper than a copy`)
  schedule(d, call, engine)
}
