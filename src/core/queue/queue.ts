/**
 * Owns the queue of a model: who goes next. Levels, each with a bound of its own: class band (`bands.ts`), then tenant
 * (`tenants.ts`), then the order policy's key, then arrival. Among calls that run, shares have done their work: they rank by
 * band, key and arrival.
 */
import { bandRank, bandsInOrder, chargeBand, count, emptyQueue, liftBandFloor, shareOf, type Band, type ReadyQueue } from './bands.ts'
import { must } from '../assert.ts'
import { bestFirst, placeAmongBest } from './heap.ts'
import type { CallId } from '../ids.ts'
import type { Call, CoreState } from '../state.ts'
import { byStanding, chargeTenant, join, leave, liftFloor, smallestOf, weighted, type Virtual } from './tenants.ts'
import type { Us } from '../units.ts'

/** Negative: `a` before `b`. */
export function compareCalls(a: Readonly<Call>, b: Readonly<Call>): number {
  return bandRank(a.band) - bandRank(b.band) || byStanding(a, b)
}

/** Negative: `a` is served before `b`, as shares stand now. */
export function compareTurns(core: Readonly<CoreState>, a: Readonly<Call>, b: Readonly<Call>): number {
  return aheadOf(core, a, b) || compareCalls(a, b)
}

/** The ready calls of a model, the next to be served first, lazily: valid until something is applied. */
export function* candidates(queue: ReadyQueue): Generator<CallId, void> {
  for (const { tenants } of bandsInOrder(queue)) {
    for (const tenant of bestFirst(tenants.waiting)) yield* bestFirst(must(tenants.shares, tenant).calls)
  }
}

/** Whether a ready call is among those that a look at its queue may come to (`dispatch.ts`). */
export function isInWindow(core: Readonly<CoreState>, call: Readonly<Call>): boolean {
  const queue = must(core.queues, call.model)
  const count = core.config.dispatchWindow + 1 + core.turns.reservations.size
  let before = 0
  for (const { band, size, tenants } of bandsInOrder(queue)) {
    if (band !== call.band) {
      if ((before += size) >= count) return false
      continue
    }
    for (const id of bestFirst(tenants.waiting)) {
      const { calls } = must(tenants.shares, id)
      if (id === call.payer) return before + placeAmongBest(calls, call.id, count - before) < count
      if ((before += calls.ids.length) >= count) return false
    }
  }
  return false
}

/** By how much the share of a running call is ahead of a ready one's, at the first level where they differ; null: one share. */
export function aheadOf(core: Readonly<CoreState>, running: Readonly<Call>, ready: Readonly<Call>): Virtual | null {
  const queue = core.queues.get(ready.model)
  if (queue === undefined || running.model !== ready.model) return null
  const ours = shareOf(queue, ready.band)
  const theirs = shareOf(queue, running.band)
  if (ours !== theirs) return theirs.virtual - ours.virtual
  if (running.payer === ready.payer) return null
  const virtualOf = ({ payer }: Readonly<Call>): Virtual => ours.tenants.shares.get(payer)?.virtual ?? 0
  return virtualOf(running) - virtualOf(ready)
}

/** How far ahead a running call's share must be before its place may be taken: for a better band, at all. */
export const gapBefore = (core: Readonly<CoreState>, running: Band, ready: Band): Virtual =>
  (bandRank(ready) < bandRank(running) ? 0 : weighted(core.config.preemptGapUs, 1))

/** Whether a running call's share is so far ahead of one that waits that it may have to give way. */
export function isFarAhead(core: Readonly<CoreState>, { model, band, payer }: Readonly<Call>): boolean {
  const queue = core.queues.get(model)
  if (queue === undefined || queue.size === 0) return false
  const ours = shareOf(queue, band)
  if (queue.bands.some((other) => other.size > 0 && ours.virtual - other.virtual > gapBefore(core, band, other.band))) return true
  const next = smallestOf(ours.tenants)
  return next !== undefined && (ours.tenants.shares.get(payer)?.virtual ?? 0) - next > gapBefore(core, band, band)
}

// ---------------------------------------------------------------- for `apply` only

export function enqueue(core: CoreState, call: Call): void {
  let queue = core.queues.get(call.model)
  if (queue === undefined) core.queues.set(call.model, queue = emptyQueue())
  const share = shareOf(queue, call.band)
  count(queue, share, 1)
  const { id, level, tie, seq } = call
  join(share.tenants, call.payer, { id, level, tie, seq, sinceUs: readySince(call) })
}

/** A call comes into its queue as it becomes ready, and stays there when its place changes. */
export const readySince = ({ stage }: Readonly<Call>): Us => (stage.kind === 'ready' ? stage.sinceUs : 0)

export function dequeue(core: CoreState, call: Call): void {
  const queue = must(core.queues, call.model)
  const share = shareOf(queue, call.band)
  leave(share.tenants, call.payer, call.id)
  count(queue, share, -1)
}

/** A ready call is about to start: returning shares are lifted to who waits now. */
export function liftFloors(core: CoreState, call: Call): void {
  const queue = must(core.queues, call.model)
  liftBandFloor(queue)
  liftFloor(shareOf(queue, call.band).tenants)
}

/** To the band and the tenant that a call belongs to. */
export function chargeShares(core: CoreState, { model, band, payer }: Pick<Call, 'model' | 'band' | 'payer'>, chargeUs: Us): void {
  const queue = core.queues.get(model)
  if (queue === undefined || chargeUs === 0) return
  const share = shareOf(queue, band)
  chargeBand(share, chargeUs, core.prices.bands[band])
  chargeTenant(share.tenants, payer, chargeUs, core.tenants.get(payer)?.weight ?? 1)
}
