/**
 * Owns memory that is kept for a ready call. The first in line that is large, has waited for `reserveAfterUs` and does not
 * fit where it is best off is given what comes free there, and is looked at before all others; so size alone never starves.
 * (Who is never first in line is passed over by the order: `promote.ts` and `aging.ts` see to that.)
 *
 * Bound: from then on no other call starts there with memory that it does not hold, whatever its place in the order, so this
 * one starts once the calls that run there have ended and idle KV there has gone: at most the longest of their remaining
 * times and one copy out later. One reservation an engine, for at most as long as its call is ready.
 */
import type { CallId } from '../ids.ts'
import type { Call, CoreState, Engine } from '../state.ts'
import type { Granules } from '../units.ts'

/** The engine that keeps memory for the call. */
export function reservedFor(core: Readonly<CoreState>, call: CallId): Engine | null {
  for (const [engine, reservation] of core.turns.reservations) if (reservation.call === call) return core.engines.get(engine) ?? null
  return null
}

/** How much of an engine's memory is kept for the call. */
export function reservedOn(core: Readonly<CoreState>, engine: Readonly<Engine>, call: Readonly<Call>): Granules {
  const reservation = core.turns.reservations.get(engine.id)
  return reservation?.call === call.id ? reservation.granules : 0
}

// ---------------------------------------------------------------- for `apply` only

/** The call starts, or waits no more. */
export function dropReservation(core: CoreState, call: CallId): void {
  for (const [engine, reservation] of core.turns.reservations) if (reservation.call === call) core.turns.reservations.delete(engine)
}
