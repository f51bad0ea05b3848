/**
 * Owns what is learned of waits: for each tool class a curve of the waits seen so far, over buckets that double. A class
 * with little data leans on a stated prior: four pseudo-observations shaped like the waits of published agent traces
 * (TraceLab, arXiv 2606.30560: median 0.3 s, one in ten above 13.6 s, one in a hundred above 216 s), and one wait in
 * fifty never ends. People and open ends have priors of their own.
 */
import type { Us } from './units.ts'

/** Bucket b holds waits of [2^(b-1), 2^b) milliseconds; bucket 0 those below one. The last holds all that is longer. */
export const WAIT_BUCKETS = 24

export interface WaitCurve {
  readonly counts: number[]
  /** Waits that ended. */
  ended: number
  /** Waits that never did. */
  lost: number
}

export const emptyCurve = (): WaitCurve => ({ counts: new Array<number>(WAIT_BUCKETS).fill(0), ended: 0, lost: 0 })

export function bucketOf(waitUs: Us): number {
  const ms = Math.floor(waitUs / 1_000)
  return Math.min(WAIT_BUCKETS - 1, ms === 0 ? 0 : 32 - Math.clz32(ms))
}

const BUCKET_ENDS_US: readonly Us[] = Array.from({ length: WAIT_BUCKETS }, (_, bucket) => 1_000 * (1 << bucket))

/** Upper border of a bucket. */
const bucketEndUs = (bucket: number): Us => BUCKET_ENDS_US[bucket] ?? 0

/** Pseudo-counts in 1/64: a tool, a person, a thread nobody said will go on. */
const PRIOR: Readonly<Record<'tool' | 'human' | 'open', readonly number[]>> = {
  //      <1ms 1 2 4 8 16 32 64 .12 .25 .5 1  2  4  8 16 32 65 131 262 524 s...
  tool: [6, 4, 6, 8, 10, 14, 20, 26, 26, 24, 22, 20, 18, 14, 14, 10, 6, 4, 2, 1, 1, 0, 0, 0],
  human: [0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 8, 16, 24, 36, 40, 40, 32, 24, 16, 8, 4, 2, 0],
  open: [4, 4, 4, 4, 6, 6, 6, 8, 8, 8, 8, 10, 10, 12, 16, 20, 24, 28, 24, 20, 16, 6, 3, 1],
}
const PRIOR_UNIT = 64
const PRIOR_LOST = { tool: 5, human: 26, open: 64 }

/** Below so many waits seen, a decision falls back to break-even. */
export const WAITS_ENOUGH = 8

type WaitKind = keyof typeof PRIOR

/** A curve and its prior as one: weights of each bucket, of never, and their sum; integers in 1/64. */
export interface Survival {
  readonly weights: readonly number[]
  readonly lost: number
  readonly seen: number
}

export function survivalOf(curve: WaitCurve | undefined, kind: WaitKind): Survival {
  const prior = PRIOR[kind]
  return {
    weights: prior.map((weight, bucket) => weight + PRIOR_UNIT * (curve?.counts[bucket] ?? 0)),
    lost: PRIOR_LOST[kind] + PRIOR_UNIT * (curve?.lost ?? 0),
    seen: (curve?.ended ?? 0) + (curve?.lost ?? 0),
  }
}

const FINE = 1_024

/** Weight (in 1/1024 of a weight) of waits longer than `waitUs`, those that never end included; a bucket counts in part. */
function beyond(survival: Survival, waitUs: Us): number {
  let sum = survival.lost * FINE
  for (const [bucket, weight] of survival.weights.entries()) {
    const fromUs = bucket === 0 ? 0 : bucketEndUs(bucket - 1)
    const endUs = bucketEndUs(bucket)
    if (waitUs <= fromUs) sum += weight * FINE
    else if (waitUs < endUs) sum += Math.floor((weight * FINE * (endUs - waitUs)) / (endUs - fromUs))
  }
  return sum
}

/** Parts per million: still waiting after `moreUs`, given that `elapsedUs` have passed. */
export function stillWaitingPpm(survival: Survival, elapsedUs: Us, moreUs: Us): number {
  const now = beyond(survival, elapsedUs)
  return now <= 0 ? 1_000_000 : Math.round((1_000_000 * beyond(survival, elapsedUs + moreUs)) / now)
}

/** Parts per million: the wait ends at all, given that `elapsedUs` have passed. */
export function returnsPpm(survival: Survival, elapsedUs: Us): number {
  const now = beyond(survival, elapsedUs)
  return now <= 0 ? 0 : Math.round((1_000_000 * Math.max(0, now - survival.lost * FINE)) / now)
}

/** Expected length of the wait from here, counted no further than `capUs`. */
export function expectedWaitUs(survival: Survival, elapsedUs: Us, capUs: Us): Us {
  let heldUs = 0
  let fromUs = 0
  let before = 1_000_000
  for (const border of borders(elapsedUs, capUs)) {
    const after = stillWaitingPpm(survival, elapsedUs, border)
    heldUs += Math.round(((border - fromUs) * (before + after)) / 2_000_000)
    fromUs = border
    before = after
  }
  return heldUs
}

/** Points ahead at which the curve bends, rising, the last being `capUs`. */
export function borders(elapsedUs: Us, capUs: Us): Us[] {
  const list: Us[] = []
  for (let bucket = 0; bucket < WAIT_BUCKETS; bucket += 1) {
    const aheadUs = bucketEndUs(bucket) - elapsedUs
    if (aheadUs > 0 && aheadUs < capUs) list.push(aheadUs)
  }
  list.push(capUs)
  return list
}
