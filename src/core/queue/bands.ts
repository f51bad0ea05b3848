/**
 * Owns how the class bands of a model share its engines: by weight, with the rule of `tenants.ts` one level up. A band
 * has a virtual time, what its calls were charged over its weight; the waiting band of the smallest goes next, and one that
 * comes back is lifted to the floor.
 *
 * Bound: as long as two bands both wait, |V_a - V_b| <= (E + R * X) * (1 / w_a + 1 / w_b), with E, X as in `tenants.ts` and
 * R the calls of a band that run at once. So no band starves: one of weight w among weights that sum to W gets, over any
 * time in which it waits, w / W of what is started, less at most that bound.
 */
import { noTenants, weighted, type TenantShares, type Virtual } from './tenants.ts'
import type { Us } from '../units.ts'

/** Best first; also how calls that run rank on their engine. */
const BANDS = ['interactive', 'default', 'batch'] as const
export type Band = typeof BANDS[number]
export type BandWeights = Readonly<Record<Band, number>>

/** The band of a priority class; a class that is none is `default`. */
export const bandOf = (priorityClass: string): Band => BANDS.find((band) => band === priorityClass) ?? 'default'

/** Smaller is better. */
export const bandRank = (band: Band): number => BANDS.indexOf(band)

interface BandShare {
  readonly band: Band
  virtual: Virtual
  /** Ready calls in it. */
  size: number
  readonly tenants: TenantShares
}

/** The ready calls of a model by band, tenant and the policy's order. */
export interface ReadyQueue {
  size: number
  floor: Virtual
  /** In the order of `BANDS`. */
  readonly bands: readonly BandShare[]
}

export const emptyQueue = (): ReadyQueue => ({
  size: 0, floor: 0, bands: BANDS.map((band) => ({ band, virtual: 0, size: 0, tenants: noTenants() })),
})

export function shareOf(queue: ReadyQueue, band: Band): BandShare {
  return queue.bands[bandRank(band)] as BandShare
}

/** Bands with ready calls, the next to be served first. */
export const bandsInOrder = (queue: ReadyQueue): BandShare[] =>
  queue.bands.filter(({ size }) => size > 0).sort((a, b) => a.virtual - b.virtual || bandRank(a.band) - bandRank(b.band))

/** For `apply` only, like all below. */
export function count(queue: ReadyQueue, share: BandShare, calls: 1 | -1): void {
  if (share.size === 0) share.virtual = Math.max(share.virtual, queue.floor)
  share.size += calls
  queue.size += calls
}

export function liftBandFloor(queue: ReadyQueue): void {
  queue.floor = Math.max(queue.floor, bandsInOrder(queue)[0]?.virtual ?? 0)
}

export function chargeBand(share: BandShare, chargeUs: Us, weight: number): void {
  share.virtual += weighted(chargeUs, weight)
}
