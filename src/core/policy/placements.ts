/**
 * Owns the choice of a placement by name (one line here and one file beside the others is a new one), and which engines a
 * call may go to at all: those of its model that are large enough to hold it. Of more than `placementEnginesMax` that many
 * are looked at, beginning at one that the call's number picks, and the one that has its KV.
 */
import type { PlacementName } from '../config.ts'
import { couldHold } from '../kv/kv-read.ts'
import { policyNames } from './joints.ts'
import { leastSeconds } from './placement/least-seconds.ts'
import { mostRoom } from './placement/most-room.ts'
import type { PlacementPolicy } from './placement/placement.ts'
import type { Site } from '../site.ts'
import type { Call, CoreState, State } from '../state.ts'

const PLACEMENTS: Readonly<Record<PlacementName, PlacementPolicy>> = { 'least-seconds': leastSeconds, 'most-room': mostRoom }

export const placementOf = (core: Readonly<CoreState>): PlacementPolicy => PLACEMENTS[policyNames(core).placement]

/** `sites`: the engines of its model as they stand. */
export function candidatesFor(core: Readonly<CoreState>, call: Readonly<Call>, state: Readonly<State> | null, sites: readonly Site[]): readonly Site[] {
  const able = sites.filter(({ engine }) => couldHold(core, engine, call))
  const { placementEnginesMax } = core.config
  if (able.length <= placementEnginesMax) return able
  const from = call.seq % able.length
  return able.filter(({ engine }, index) =>
    (index + able.length - from) % able.length < placementEnginesMax || engine.id === state?.device?.engine)
}
