/**
 * Owns aging: a ready call that was passed goes up one level of its order for each `agingUs` that it stands where it is, to
 * the top at most and never above it. It was passed where a program of the same payer that came later was ever served:
 * behind older programs only, there is no injustice to heal, and who lifts all that wait puts them in front of those that
 * have begun. Only for orders that have levels and no way up of their own (`promote.ts`); an order without levels has no
 * top to starve below.
 *
 * Bound: whatever arrives, a ready call of level n is at the top at most `n x agingUs` after it became ready and was passed;
 * from then on only the order's tie decides, and ties are older calls or programs, of which there are finitely many. Until
 * it is passed, all that goes before it is older.
 *
 * Calls wait in the order in which they came to where they stand, all for the same length, so the first to cross is the first
 * in line: one timer serves all of them, and neither a step nor a waiting call costs anything until it is due.
 */
import { must } from '../assert.ts'
import { setTimer, type Deciding } from '../deciding.ts'
import { orderOf } from '../policy/orders.ts'
import { isPassed } from '../standing.ts'
import type { Call } from '../state.ts'

const TIMER = 'age:'
/** Calls that are taken up in one step; more are taken in the next. */
const AGED_MAX = 256

/** A call has just become ready. */
export function watchAge(d: Deciding, call: Call): void {
  if (ages(d) && call.level > 0 && !d.core.timers.has(TIMER)) setTimer(d, TIMER, d.nowUs + d.core.config.agingUs)
}

const ages = (d: Deciding): boolean => d.core.config.agingUs > 0 && orderOf(d.core).balance === undefined

/** The oldest have waited long enough. */
export function age(d: Deciding): void {
  if (!ages(d)) return
  let aged = 0
  for (const [id, sinceUs] of d.core.turns.aging) {
    const atUs = sinceUs + d.core.config.agingUs
    if (atUs > d.nowUs || aged >= AGED_MAX) return setTimer(d, TIMER, Math.max(atUs, d.nowUs))
    const call = must(d.core.calls, id)
    const passed = isPassed(d.core, call)
    d.emit({ kind: 'call.aged', call: id, passed, level: passed ? call.level - 1 : call.level, tie: call.tie, waitedUs: d.nowUs - sinceUs })
    aged += 1
  }
}
