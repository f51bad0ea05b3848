/** Owns the choice of an order by name: one line here and one file beside the others is a new one. */
import type { CoreConfig, OrderName } from '../config.ts'
import { policyNames } from './joints.ts'
import { atlas } from './order/atlas.ts'
import { fcfsProgram } from './order/fcfs-program.ts'
import { fcfs } from './order/fcfs.ts'
import { gittins } from './order/gittins.ts'
import { mlfq } from './order/mlfq.ts'
import type { OrderPolicy } from './order/order.ts'
import { plas } from './order/plas.ts'
import type { CoreState } from '../state.ts'

const ORDERS: Readonly<Record<OrderName, OrderPolicy>> = { 'fcfs': fcfs, 'fcfs-program': fcfsProgram, 'mlfq': mlfq, 'plas': plas, 'atlas': atlas, 'gittins': gittins }

/** Orders without a name, by the configuration they were given to. */
const OWN = new WeakMap<CoreConfig, OrderPolicy>()

/** The same configuration under an order of the caller's: for an experiment that knows more than a core can. */
export function withOrder(config: CoreConfig, order: OrderPolicy): CoreConfig {
  const own = { ...config }
  OWN.set(own, order)
  return own
}

export const orderOf = (core: Readonly<CoreState>): OrderPolicy => OWN.get(core.config) ?? ORDERS[policyNames(core).order]
