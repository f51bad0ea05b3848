/** Owns the choice of an order by name: one line here and one file beside the others is a new one. */
import type { OrderName } from './config.ts'
import { policyNames } from './joints.ts'
import { atlas } from './policy/order/atlas.ts'
import { fcfsProgram } from './policy/order/fcfs-program.ts'
import { fcfs } from './policy/order/fcfs.ts'
import { gittins } from './policy/order/gittins.ts'
import { mlfq } from './policy/order/mlfq.ts'
import type { OrderPolicy } from './policy/order/order.ts'
import { plas } from './policy/order/plas.ts'
import type { CoreState } from './state.ts'

const ORDERS: Readonly<Record<OrderName, OrderPolicy>> = { 'fcfs': fcfs, 'fcfs-program': fcfsProgram, 'mlfq': mlfq, 'plas': plas, 'atlas': atlas, 'gittins': gittins }

export const orderOf = (core: Readonly<CoreState>): OrderPolicy => ORDERS[policyNames(core).order]
