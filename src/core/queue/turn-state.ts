/**
 * Owns the shape of what bends an order: boosts, age, memory that is kept for somebody, and programs that are left alone
 * after a preemption; plain data, part of `CoreState`.
 */
import type { CallId, EngineId, ProgramId, TenantId } from '../ids.ts'
import type { Granules, Us } from '../units.ts'

/** Where a boosted call stands, in place of its order's key; or why it has no boost, as last said. */
type Boost =
  | { readonly kind: 'given'; readonly level: number; readonly tie: number }
  | { readonly kind: 'withheld'; readonly why: string }

export interface BoostAccount {
  /** Work of calls while they had a boost. */
  boostedUs: Us
  /** Calls that have one and are not over. */
  open: number
}

/** Memory of an engine that goes to nobody else, as it comes free. */
interface Reservation {
  readonly call: CallId
  readonly granules: Granules
}

export interface Turns {
  readonly boosts: Map<CallId, Boost>
  readonly accounts: Map<TenantId, BoostAccount>
  /** Ready calls below the top of their order, and since when they stand where they do; oldest first. */
  readonly aging: Map<CallId, Us>
  /** By who pays, the place (`seq`) of the latest root program that was ever served. */
  readonly latest: Map<TenantId, number>
  /** At most one an engine. */
  readonly reservations: Map<EngineId, Reservation>
  /** Programs of which nothing is preempted until then, the soonest first; those of the past may be kept until the next. */
  readonly resting: Map<ProgramId, Us>
}

export const noTurns = (): Turns =>
  ({ boosts: new Map(), accounts: new Map(), aging: new Map(), latest: new Map(), reservations: new Map(), resting: new Map() })
