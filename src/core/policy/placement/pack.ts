/**
 * Which suspended States come back to which engine, when many may at once: best-fit decreasing over predicted seconds
 * (the packing that MORI and ThunderAgent restore programs with, with time in place of bytes as what is made small).
 *
 * Objective: the sum over the batch of the predicted time until each is back: `costUs` on the engine it gets, `leftUs` for
 * one that gets none. Largest first, since the small ones fit into what the large ones leave; each to the engine where it
 * costs least, and of equal ones to that which it leaves least room on; one that saves nothing stays where it is. Then
 * every move of one State and every exchange of two that makes the sum less, at most `EXCHANGES_MAX` of them. The same
 * again with those first that save most for a granule, and the better of the two packings is taken.
 *
 * Bound, held by brute force over all packings of 4 States and 2 engines with sizes, rooms and times drawn at random: never
 * more than twice the least sum, and the least itself 97 times in 100. For any input: no move of one and no exchange of
 * two makes it less, while `EXCHANGES_MAX` is not reached. At most 2 x EXCHANGES_MAX x n^2 looks for n States.
 */
import type { EngineId, StateId } from '../../ids.ts'
import type { Granules, Us } from '../../units.ts'

export interface Parcel {
  readonly state: StateId
  /** Its place in line; unique. */
  readonly seq: number
  /** Until it is back on each engine that could take it. */
  readonly to: ReadonlyMap<EngineId, { readonly granules: Granules; readonly costUs: Us }>
  /** Until it would be back if it gets no engine now. */
  readonly leftUs: Us
}

/** What an engine has to give. */
export interface Room {
  readonly granules: Granules
  /** States it may take in. */
  readonly places: number
}

const EXCHANGES_MAX = 64

/** The engine of each State that comes back; who is not named stays where it is. */
export function pack(parcels: readonly Parcel[], rooms: ReadonlyMap<EngineId, Room>): Map<StateId, EngineId> {
  const bySize = packInOrder([...parcels].sort((a, b) => sizeOf(b) - sizeOf(a) || a.seq - b.seq), rooms)
  const bySaving = packInOrder([...parcels].sort((a, b) => savingOf(b) - savingOf(a) || a.seq - b.seq), rooms)
  return secondsOf(parcels, bySaving) < secondsOf(parcels, bySize) ? bySaving : bySize
}

function packInOrder(parcels: readonly Parcel[], rooms: ReadonlyMap<EngineId, Room>): Map<StateId, EngineId> {
  const load = loadOf(parcels, rooms)
  for (const parcel of parcels) put(load, parcel, bestFor(load, parcel))
  for (let count = 0; count < EXCHANGES_MAX && (moveOne(load) || exchangeTwo(load)); count += 1);
  return new Map([...load.at].filter((pair): pair is [StateId, EngineId] => pair[1] !== null))
}

/** What the objective is of a packing. */
export const secondsOf = (parcels: readonly Parcel[], packed: ReadonlyMap<StateId, EngineId>): Us =>
  parcels.reduce((sum, parcel) => sum + costAt(parcel, packed.get(parcel.state) ?? null), 0)

interface Load {
  readonly parcels: readonly Parcel[]
  readonly left: Map<EngineId, { granules: Granules; places: number }>
  readonly at: Map<StateId, EngineId | null>
}

const loadOf = (parcels: readonly Parcel[], rooms: ReadonlyMap<EngineId, Room>): Load => ({
  parcels,
  left: new Map([...rooms].map(([engine, { granules, places }]) => [engine, { granules, places }])),
  at: new Map(parcels.map(({ state }) => [state, null])),
})

/** The largest it is anywhere. */
const sizeOf = ({ to }: Parcel): Granules => [...to.values()].reduce((most, { granules }) => Math.max(most, granules), 0)

/** The most it saves for a granule. */
const savingOf = ({ to, leftUs }: Parcel): Us =>
  [...to.values()].reduce((most, { granules, costUs }) => Math.max(most, Math.floor((leftUs - costUs) / Math.max(1, granules))), 0)

const costAt = (parcel: Parcel, engine: EngineId | null): Us =>
  engine === null ? parcel.leftUs : parcel.to.get(engine)?.costUs ?? parcel.leftUs

function bestFor(load: Load, parcel: Parcel): EngineId | null {
  let best: EngineId | null = null
  for (const [engine, { costUs, granules }] of parcel.to) {
    const room = load.left.get(engine)
    if (room === undefined || room.granules < granules || room.places < 1) continue
    const better = costUs - costAt(parcel, best)
    const tighter = best === null ? 1 : room.granules - granules - leftAfter(load, parcel, best)
    if (better < 0 || (better === 0 && tighter < 0)) best = engine
  }
  return best
}

const leftAfter = (load: Load, parcel: Parcel, engine: EngineId): Granules =>
  (load.left.get(engine)?.granules ?? 0) - (parcel.to.get(engine)?.granules ?? 0)

/** Takes it from where it is to `engine`; null: to nowhere. */
function put(load: Load, parcel: Parcel, engine: EngineId | null): void {
  const before = load.at.get(parcel.state) ?? null
  for (const [where, sign] of [[before, 1], [engine, -1]] as const) {
    const room = where === null ? undefined : load.left.get(where)
    if (room === undefined || where === null) continue
    room.granules += sign * (parcel.to.get(where)?.granules ?? 0)
    room.places += sign
  }
  load.at.set(parcel.state, engine)
}

/** Moves the first State that is better off elsewhere. */
function moveOne(load: Load): boolean {
  for (const parcel of load.parcels) {
    const engine = bestFor(load, parcel)
    if (costAt(parcel, engine) >= costAt(parcel, load.at.get(parcel.state) ?? null)) continue
    put(load, parcel, engine)
    return true
  }
  return false
}

/** Lets the first pair that gains by it change places, one of them going to wherever is best for it then. */
function exchangeTwo(load: Load): boolean {
  for (const out of load.parcels) {
    const from = load.at.get(out.state) ?? null
    if (from === null) continue
    for (const into of load.parcels) {
      const at = load.at.get(into.state) ?? null
      if (into === out || at === from || !into.to.has(from)) continue
      const beforeUs = costAt(out, from) + costAt(into, at)
      put(load, out, null)
      put(load, into, null)
      const target = into.to.get(from)
      const room = load.left.get(from)
      if (target !== undefined && room !== undefined && room.granules >= target.granules && room.places > 0) {
        put(load, into, from)
        put(load, out, bestFor(load, out))
        if (costAt(out, load.at.get(out.state) ?? null) + costAt(into, from) < beforeUs) return true
      }
      put(load, out, null)
      put(load, into, at)
      put(load, out, from)
    }
  }
  return false
}
