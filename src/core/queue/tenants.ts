/**
 * Owns how tenants share a class band of a model: start-time fair queueing (Goyal, Vin, Cheng 1997; with several served
 * at once: Jin, Chase, Kaur 2004, SFQ(D)), the counters of VTC (OSDI'24) with the work paid ahead.
 *
 * A tenant has a virtual time: what it was charged over its weight. The waiting tenant of the smallest goes next. It is
 * charged the work that its call is expected to take when the call starts, and what it took more or less as that shows;
 * further what its KV holds, by capacity and time; wasted attempts are not given back. A tenant that comes back with
 * nothing waiting is lifted to the floor, the smallest virtual time of those that waited when somebody last started: being
 * away earns no credit, and loses none of what it owes.
 *
 * Bound: as long as tenants f and g both wait, and nobody is passed over for want of memory,
 *   |V_f - V_g| <= (E + R * X) * (1 / w_f + 1 / w_g)
 * with w the weights, E the most that one start is charged, X the most that a call takes beside what was expected, KV
 * held included, and R the calls a tenant has running at once. (A start comes from the smallest virtual time and adds at
 * most E / w; until a tenant is the smallest again, its running calls add or give back at most R * X / w.)
 */
import { emptyHeap, keyAt, push, remove, replace, type Heap, type Key } from './heap.ts'
import type { CallId, TenantId } from '../ids.ts'
import type { Us } from '../units.ts'

/** Charged time over weight, in thousandths of a microsecond, so that a weight of 1,000 still counts each microsecond. */
export type Virtual = number
const VIRTUAL_PER_US = 1_000

export const weighted = (chargeUs: Us, weight: number): Virtual => Math.round((chargeUs * VIRTUAL_PER_US) / weight)

/** Where a ready call stands; fixed while it is in the queue. No two have the same `seq`, so `sinceUs` decides nothing: it is there for who looks at the line. */
interface Standing { readonly level: number; readonly tie: number; readonly seq: number; readonly sinceUs: Us }

interface TenantShare {
  readonly tenant: TenantId
  /** Order of first arrival among the tenants of its band: ends their order. */
  readonly seq: number
  virtual: Virtual
  /** By `keyOfCall`. */
  readonly calls: Heap<CallId>
}

export interface TenantShares {
  floor: Virtual
  /** All that were ever here: what one owes is not forgotten while it is away. */
  readonly shares: Map<TenantId, TenantShare>
  /** Those with ready calls, by `keyOfShare`. */
  readonly waiting: Heap<TenantId>
}

export const noTenants = (): TenantShares => ({ floor: 0, shares: new Map(), waiting: emptyHeap(2) })

export const keyOfShare = ({ virtual, seq }: TenantShare): Key => [virtual, seq]
export const keyOfCall = ({ level, tie, seq, sinceUs }: Standing): Key => [level, tie, seq, sinceUs]
export function standingAt(calls: Readonly<Heap<CallId>>, place: number): Standing {
  const [level = 0, tie = 0, seq = 0, sinceUs = 0] = keyAt(calls, place) ?? []
  return { level, tie, seq, sinceUs }
}
type Order = Omit<Standing, 'sinceUs'>
/** Negative: `a` before `b`. */
export const byStanding = (a: Order, b: Order): number => a.level - b.level || a.tie - b.tie || a.seq - b.seq

/** The smallest virtual time of those that wait. */
export const smallestOf = ({ waiting }: TenantShares): Virtual | undefined => keyAt(waiting, 0)?.[0]

/** For `apply` only, like all below. */
export function join(tenants: TenantShares, tenant: TenantId, call: Standing & { readonly id: CallId }): void {
  let share = tenants.shares.get(tenant)
  if (share === undefined) {
    share = { tenant, seq: tenants.shares.size, virtual: tenants.floor, calls: emptyHeap(4) }
    tenants.shares.set(tenant, share)
  }
  push(share.calls, call.id, keyOfCall(call))
  if (share.calls.ids.length > 1) return
  share.virtual = Math.max(share.virtual, tenants.floor)
  push(tenants.waiting, tenant, keyOfShare(share))
}

export function leave(tenants: TenantShares, tenant: TenantId, call: CallId): void {
  const share = tenants.shares.get(tenant)
  if (share === undefined || !remove(share.calls, call)) return
  if (share.calls.ids.length === 0) remove(tenants.waiting, tenant)
}

/** A call of this band is about to start: whoever comes from now on is lifted to the smallest that waits. */
export function liftFloor(tenants: TenantShares): void {
  tenants.floor = Math.max(tenants.floor, smallestOf(tenants) ?? 0)
}

/** A negative charge gives back what was paid ahead and not used. */
export function chargeTenant(tenants: TenantShares, tenant: TenantId, chargeUs: Us, weight: number): void {
  const share = tenants.shares.get(tenant)
  if (share === undefined) return
  share.virtual += weighted(chargeUs, weight)
  replace(tenants.waiting, tenant, keyOfShare(share))
}
