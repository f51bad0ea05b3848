/**
 * Owns the return of many suspended programs at once: when an engine joins beside others, the ready calls that have a State
 * and no KV on any device are packed together over the room there is, instead of each where it is best off alone. Only as
 * many as there is room for, in the order of their line, so that nobody is overtaken for being hard to place; whoever is
 * left over is placed as ever by `dispatch.ts`, which looks next.
 */
import { must } from '../assert.ts'
import { granulesBy } from './continuation.ts'
import type { Deciding } from '../deciding.ts'
import type { EngineId, StateId } from '../ids.ts'
import { granulesFree, stateOf } from './kv-read.ts'
import { carryOut } from '../placement.ts'
import { candidatesFor, placementOf } from '../policy/placements.ts'
import { pack, type Parcel, type Room } from '../policy/placement/pack.ts'
import type { Ahead } from '../policy/placement/placement.ts'
import { candidates } from '../queue/queue.ts'
import { sitesOf } from '../site.ts'
import type { Call } from '../state.ts'
import type { Granules } from '../units.ts'

const NOBODY: Ahead = new Map()

export function returnMany(d: Deciding, model: string): void {
  const rooms = roomsOf(d, model)
  if (rooms.size < 2) return
  const calls = firstInLine(d, model, rooms)
  if (calls.size < 2) return
  const parcels = [...calls].flatMap(([state, call]) => parcelOf(d, call, state) ?? [])
  const packed = pack(parcels, rooms)
  for (const [state, call] of calls) {
    const engine = packed.get(state)
    if (engine !== undefined) carryOut(d, call, must(d.core.states, state), must(d.core.engines, engine), NOBODY)
  }
}

/** What is free and kept for nobody, where the core knows of memory at all. */
function roomsOf(d: Deciding, model: string): Map<EngineId, Room> {
  const rooms = new Map<EngineId, Room>()
  for (const { engine } of sitesOf(d.core, model)) {
    const { memory, runningMax } = engine.capabilities
    if (memory === null || d.core.turns.reservations.has(engine.id)) continue
    const places = Math.min(runningMax - engine.running.size - engine.resuming, memory.sequences - engine.sequencesUsed)
    rooms.set(engine.id, { granules: granulesFree(engine), places: Math.max(0, places) })
  }
  return rooms
}

/** The next to be served, as long as they are suspended and all have a place. */
function firstInLine(d: Deciding, model: string, rooms: ReadonlyMap<EngineId, Room>): Map<StateId, Call> {
  const found = new Map<StateId, Call>()
  const places = [...rooms.values()].reduce((sum, room) => sum + room.places, 0)
  const queue = d.core.queues.get(model)
  if (queue === undefined) return found
  for (const id of candidates(queue)) {
    const call = must(d.core.calls, id)
    const state = stateOf(d.core, call)
    if (found.size >= Math.min(places, d.core.config.dispatchWindow) || state === null || !isAway(state.residence)) break
    found.set(state.id, call)
  }
  return found
}

const isAway = (residence: { readonly kind: string; readonly tier?: string }): boolean =>
  residence.kind === 'gone' || (residence.kind === 'suspended' && residence.tier === 'host')

/** Null where the policy reckons no time. One that gets no place now is reckoned twice the dearest place. */
function parcelOf(d: Deciding, call: Call, id: StateId): Parcel | null {
  const state = must(d.core.states, id)
  const priced = placementOf(d.core).priced(d.core, call, state, candidatesFor(d.core, call, state, sitesOf(d.core, call.model)), NOBODY)
  if (priced.length === 0) return null
  const to = new Map(priced.map(({ engine, way, queueUs, prefillUs, transferUs, criticalUs, pressureUs }) => [engine, {
    granules: granulesBy(d.core, call, state, must(d.core.engines, engine), way),
    costUs: queueUs + prefillUs + transferUs + criticalUs + pressureUs,
  }]))
  const dearestUs = [...to.values()].reduce((most, { costUs }) => Math.max(most, costUs), 0)
  return { state: id, seq: call.seq, to, leftUs: 2 * dearestUs + 1 }
}
