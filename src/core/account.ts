/**
 * Owns the arithmetic of service. A ledger never decreases (invariant 12): a report is a total of its attempt, so what
 * is charged is the growth since the last one, and a late or doubled report charges nothing.
 *
 * The policy of retries: a ledger belongs to the call and its program, never to an attempt, so a retry begins with all
 * that was received before. What an attempt received that came to nothing (it failed, its engine was lost, its client
 * left, its program was cancelled) moves from useful to retried: it ages the program as before, and the tenant pays it.
 * What feeds again tokens whose KV we let go is recomputed from the start: the tenant's engine time, and nobody's age.
 */
import type { Ledger, Service } from './state.ts'
import type { Us } from './units.ts'

const NONE: Service = { residentUs: 0, workUs: 0 }
/** Ledgers are replaced and never written into, so all that begin may share one. */
export const NO_LEDGER: Ledger = { useful: NONE, retried: NONE, recomputed: NONE }

const isNone = ({ residentUs, workUs }: Service): boolean => residentUs === 0 && workUs === 0
const isWithin = (a: Service, b: Service): boolean => a.residentUs <= b.residentUs && a.workUs <= b.workUs

const addService = (a: Service, b: Service): Service =>
  (isNone(b) ? a : { residentUs: a.residentUs + b.residentUs, workUs: a.workUs + b.workUs })
const growth = (from: Service, to: Service): Service => (isWithin(to, from) ? NONE : {
  residentUs: Math.max(0, to.residentUs - from.residentUs),
  workUs: Math.max(0, to.workUs - from.workUs),
})
const larger = (a: Service, b: Service): Service => (isWithin(b, a) ? a : isWithin(a, b) ? b : {
  residentUs: Math.max(a.residentUs, b.residentUs),
  workUs: Math.max(a.workUs, b.workUs),
})

export const addLedger = (a: Ledger, b: Ledger): Ledger => ({
  useful: addService(a.useful, b.useful),
  retried: addService(a.retried, b.retried),
  recomputed: addService(a.recomputed, b.recomputed),
})

/** What `to` says beyond `from`, never negative. */
export const ledgerGrowth = (from: Ledger, to: Ledger): Ledger => ({
  useful: growth(from.useful, to.useful),
  retried: growth(from.retried, to.retried),
  recomputed: growth(from.recomputed, to.recomputed),
})

export const largerLedger = (a: Ledger, b: Ledger): Ledger => ({
  useful: larger(a.useful, b.useful),
  retried: larger(a.retried, b.retried),
  recomputed: larger(a.recomputed, b.recomputed),
})

/** A failed attempt's useful service was service all the same: it moves to `retried`, the sum stays. */
export const wasted = (program: Ledger, attempt: Ledger): Ledger => ({
  useful: growth(attempt.useful, program.useful),
  retried: addService(program.retried, attempt.useful),
  recomputed: program.recomputed,
})

/** What shares are charged: all of it, so that it sums to the engines' busy time. */
export const workOf = (ledger: Ledger): Us => ledger.useful.workUs + ledger.retried.workUs + ledger.recomputed.workUs

/** What orders read: recomputing what we evicted ages nobody. */
export const attainedUs = (ledger: Ledger): Us => ledger.useful.residentUs + ledger.retried.residentUs
