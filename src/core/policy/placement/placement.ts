/**
 * Owns the interface of a placement: on which engine a ready call runs. Filter, score, pick: `placements.ts` filters, the
 * policy scores and picks. Pure; it proposes, `dispatch.ts` sees whether there is room and carries it out. It is asked
 * each time a call is looked at, so it follows what changed since: who came, who left, what was lost.
 */
import type { Way } from '../../kv/continuation.ts'
import type { EngineId } from '../../ids.ts'
import type { Site } from '../../site.ts'
import type { Call, CoreState, State } from '../../state.ts'
import type { Granules, Us } from '../../units.ts'

export interface Placement {
  readonly site: Site
  readonly way: Way
}

/** Predicted time that running a call on an engine adds, by where it comes from; each instant is in one of them. */
export interface Terms {
  readonly queueUs: Us
  readonly prefillUs: Us
  readonly transferUs: Us
  readonly criticalUs: Us
  readonly pressureUs: Us
}

/** An engine that was looked at, as it stands in a fact. */
export interface Candidate extends Terms {
  readonly engine: EngineId
  readonly way: Way
}

/** Who waits for an engine before this call, and for how much of its device memory. */
export interface Line {
  readonly calls: number
  readonly granules: Granules
}
export type Ahead = ReadonlyMap<EngineId, Line>

export interface PlacementPolicy {
  readonly name: string
  /** The best of the candidates, which are never none. `state`: the call's, where it has one. */
  place(core: Readonly<CoreState>, call: Readonly<Call>, state: State | null, candidates: readonly Site[], ahead: Ahead): Placement
  /** Every candidate with its terms, for the fact of a decision that is taken; empty where a policy reckons no time. */
  priced(core: Readonly<CoreState>, call: Readonly<Call>, state: State | null, candidates: readonly Site[], ahead: Ahead): Candidate[]
}
