/** Owns the choice of policies by name: one line here and one file beside the others is a new policy. */
import type { OrderName, ResidencyName } from './config.ts'
import { fcfsProgram } from './policy/order/fcfs-program.ts'
import { fcfs } from './policy/order/fcfs.ts'
import type { OrderPolicy } from './policy/order/order.ts'
import { plas } from './policy/order/plas.ts'
import { fixed } from './policy/residency/fixed.ts'
import { leastCost } from './policy/residency/least-cost.ts'
import { lruHost } from './policy/residency/lru-host.ts'
import type { ResidencyPolicy } from './policy/residency/residency.ts'
import type { CoreState } from './state.ts'

const ORDERS: Readonly<Record<OrderName, OrderPolicy>> = { 'fcfs': fcfs, 'fcfs-program': fcfsProgram, 'plas': plas }

const RESIDENCIES: Readonly<Record<ResidencyName, ResidencyPolicy>> = {
  'least-cost': leastCost,
  'lru-host': lruHost,
  'always-preserve': fixed('preserve'),
  'always-offload': fixed('offload'),
  'always-discard': fixed('discard'),
}

/** Observing changes nothing: order and KV stay what an engine would do by itself. */
export const orderOf = (core: Readonly<CoreState>): OrderPolicy =>
  core.config.mode === 'observe' ? fcfs : ORDERS[core.config.order]

export const residencyOf = (core: Readonly<CoreState>): ResidencyPolicy =>
  core.config.mode === 'observe' ? lruHost : RESIDENCIES[core.config.residency]

/** What would be done if we did it: the configured policy, whatever the mode. */
export const proposedResidencyOf = (core: Readonly<CoreState>): ResidencyPolicy => RESIDENCIES[core.config.residency]
