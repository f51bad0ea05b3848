/** Owns the choice of a residency policy by name: one line here and one file beside the others is a new one. */
import type { ResidencyName } from '../config.ts'
import { chosenNames, policyNames } from './joints.ts'
import { fixed } from './residency/fixed.ts'
import { leastCost } from './residency/least-cost.ts'
import { lruHost } from './residency/lru-host.ts'
import type { ResidencyPolicy } from './residency/residency.ts'
import type { CoreState } from '../state.ts'

const RESIDENCIES: Readonly<Record<ResidencyName, ResidencyPolicy>> = {
  'least-cost': leastCost,
  'lru-host': lruHost,
  'always-preserve': fixed('preserve'),
  'always-offload': fixed('offload'),
  'always-discard': fixed('discard'),
}

export const residencyOf = (core: Readonly<CoreState>): ResidencyPolicy => RESIDENCIES[policyNames(core).residency]

/** What would be done if we did it: the configured policy, whatever the mode. */
export const proposedResidencyOf = (core: Readonly<CoreState>): ResidencyPolicy => RESIDENCIES[chosenNames(core).residency]
