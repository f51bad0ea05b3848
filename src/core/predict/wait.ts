/**
 * Owns what is known of a wait for a tool or a person: how long it still lasts, given how long it has lasted, and whether
 * it ends at all. Buckets double. A curve for each (tenant, tool class), in which the waits that run now count as cut off
 * where they are; it leans on the class over all tenants, that on all tools (or people), that on a stated prior, each by as
 * much as eight observations. Waits that expired or were abandoned are cut off at their length, so what never returns
 * shows as a curve that does not come down to nothing.
 *
 * The prior: waits of published agent traces (TraceLab, arXiv 2606.30560: median 0.3 s, one in ten above 13.6 s, one in a
 * hundred above 216 s), one in fifty without end. People and open ends have priors of their own.
 */
import type { TenantId } from '../ids.ts'
import type { Waits } from '../learned.ts'
import type { CoreState, Interrupt } from '../state.ts'
import type { Us } from '../units.ts'
import { emptyCurve, hazardsOf, PPM, seenOf, UNIT, type Curve, type Lean } from './curve.ts'
import { confidenceOf, isDrifting, newTrust, OUTSIDE_PPM, type Interval } from './trust.ts'

/** Bucket b holds waits of [2^(b-1), 2^b) milliseconds; bucket 0 those below one. The last holds all that is longer. */
export const WAIT_BUCKETS = 24

export function waitBucketOf(waitUs: Us): number {
  const ms = Math.floor(waitUs / 1_000)
  return ms >= 2 ** (WAIT_BUCKETS - 1) ? WAIT_BUCKETS - 1 : ms === 0 ? 0 : 32 - Math.clz32(ms)
}
const ENDS_US: readonly Us[] = Array.from({ length: WAIT_BUCKETS }, (_, bucket) => 1_000 * 2 ** bucket)
const endUs = (bucket: number): Us => ENDS_US[bucket] ?? 0
const startUs = (bucket: number): Us => (bucket === 0 ? 0 : endUs(bucket - 1))

/** Pseudo-counts: a tool, a person, a thread nobody said will go on; then of those that never end. */
const PRIOR: Readonly<Record<WaitKind, { readonly weights: readonly number[]; readonly lost: number }>> = {
  //         <1ms 1 2 4 8 16 32 64 .12 .25 .5 1  2  4  8 16 32 65 131 262 524 s...
  tool: { weights: [6, 4, 6, 8, 10, 14, 20, 26, 26, 24, 22, 20, 18, 14, 14, 10, 6, 4, 2, 1, 1, 0, 0, 0], lost: 5 },
  human: { weights: [0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 8, 16, 24, 36, 40, 40, 32, 24, 16, 8, 4, 2, 0], lost: 26 },
  open: { weights: [4, 4, 4, 4, 6, 6, 6, 8, 8, 8, 8, 10, 10, 12, 16, 20, 24, 28, 24, 20, 16, 6, 3, 1], lost: 64 },
}
type WaitKind = 'tool' | 'human' | 'open'
export const waitKindOf = ({ kind }: Pick<Interrupt, 'kind'>): 'tool' | 'human' => (kind === 'HUMAN' ? 'human' : 'tool')

/** Below so many waits of a class seen, a decision falls back to break-even. */
export const WAITS_ENOUGH = 8
/** So many of a class are remembered. */
export const WAITS_REMEMBERED = 512
/** Running waits that are read, the longest first; those younger say little about waits that are longer. */
const RUNNING_READ_MAX = 64

export const emptyWaits = (): Waits => ({ curve: emptyCurve(WAIT_BUCKETS), open: new Set(), trust: newTrust() })
export const emptyWaitCurve = (): Curve => emptyCurve(WAIT_BUCKETS)

/** A curve with all that it leans on, as one. */
export interface Survival {
  /** Of a thousand million waits, how many reach the start of each bucket; the last: how many never end. */
  readonly alive: readonly number[]
  /** Waits of the class that were seen. */
  readonly seen: number
  /** Parts per million: how often what it said came true. */
  readonly confidencePpm: number
  /** It was wrong too often of late: not to be used. */
  readonly drifting: boolean
}

/** What is known of waits of a class at this moment; a tenant never seen, or no class, has the prior. */
export function survivalOf(core: Readonly<CoreState>, tenant: TenantId, toolClass: string | null, kind: WaitKind, nowUs: Us): Survival {
  let hazards = PRIOR_HAZARDS[kind]
  if (toolClass === null) return { alive: aliveOf(hazards), seen: 0, confidencePpm: 0, drifting: false }
  const own = core.tenants.get(tenant)?.learned.waits.get(toolClass)
  const ofClass = core.learned.waitsOfClass.get(toolClass)
  for (const curve of [core.learned.waitsOfKind.get(kind), ofClass]) {
    if (curve !== undefined) hazards = hazardsOf(curve, null, leanOn(hazards))
  }
  if (own !== undefined) hazards = hazardsOf(own.curve, runningOf(core, own, nowUs), leanOn(hazards))
  return {
    alive: aliveOf(hazards),
    seen: ofClass === undefined ? 0 : seenOf(ofClass),
    confidencePpm: own === undefined ? 0 : confidenceOf(own.trust),
    drifting: own !== undefined && isDrifting(own.trust),
  }
}

const leanOn = (hazards: readonly number[]): Lean => ({ hazards, weight: () => WAITS_ENOUGH * UNIT })

function priorHazards({ weights, lost }: (typeof PRIOR)[WaitKind]): readonly number[] {
  let reached = lost
  return weights.map((_, index) => {
    const bucket = weights.length - 1 - index
    const weight = weights[bucket] ?? 0
    reached += weight
    return Math.round((PPM * weight) / reached)
  }).reverse()
}

const PRIOR_HAZARDS: Readonly<Record<WaitKind, readonly number[]>> = {
  tool: priorHazards(PRIOR.tool), human: priorHazards(PRIOR.human), open: priorHazards(PRIOR.open),
}

function runningOf(core: Readonly<CoreState>, waits: Readonly<Waits>, nowUs: Us): number[] {
  const running = new Array<number>(WAIT_BUCKETS).fill(0)
  let read = 0
  // In order of their start.
  for (const id of waits.open) {
    if (read >= RUNNING_READ_MAX) break
    read += 1
    const interrupt = core.interrupts.get(id)
    if (interrupt === undefined) continue
    const bucket = waitBucketOf(nowUs - interrupt.startedUs)
    running[bucket] = (running[bucket] ?? 0) + UNIT
  }
  return running
}

const ALL = 1_000_000_000

function aliveOf(hazards: readonly number[]): number[] {
  let left = ALL
  const alive = [left]
  for (const hazard of hazards) alive.push(left = Math.round((left * (PPM - hazard)) / PPM))
  return alive
}

// ---------------------------------------------------------------- questions

/** How many of all are still waiting after `waitUs`; a bucket ends evenly over its length. */
function beyond({ alive }: Survival, waitUs: Us): number {
  if (waitUs >= endUs(WAIT_BUCKETS - 1)) return alive[WAIT_BUCKETS] ?? 0
  const bucket = waitBucketOf(waitUs)
  const from = alive[bucket] ?? 0
  const ended = from - (alive[bucket + 1] ?? 0)
  return from - Math.floor((ended * (waitUs - startUs(bucket))) / (endUs(bucket) - startUs(bucket)))
}

/** Parts per million: still waiting after `moreUs`, given that `elapsedUs` have passed. */
export function stillWaitingPpm(survival: Survival, elapsedUs: Us, moreUs: Us): number {
  const now = beyond(survival, elapsedUs)
  return now <= 0 ? PPM : Math.round((PPM * beyond(survival, elapsedUs + moreUs)) / now)
}

/** Parts per million: the wait ends at all, given that `elapsedUs` have passed. */
export function returnsPpm(survival: Survival, elapsedUs: Us): number {
  const now = beyond(survival, elapsedUs)
  return now <= 0 ? 0 : Math.round((PPM * (now - (survival.alive[WAIT_BUCKETS] ?? 0))) / now)
}

/** Expected length of the wait from here, counted no further than `capUs`. */
export function expectedWaitUs(survival: Survival, elapsedUs: Us, capUs: Us): Us {
  const now = beyond(survival, elapsedUs)
  let heldUs = 0
  let fromUs = 0
  let before = PPM
  const upTo = (aheadUs: Us, left: number): void => {
    const after = now <= 0 ? PPM : Math.round((PPM * left) / now)
    heldUs += Math.round(((aheadUs - fromUs) * (before + after)) / (2 * PPM))
    fromUs = aheadUs
    before = after
  }
  for (let bucket = waitBucketOf(elapsedUs); bucket < WAIT_BUCKETS; bucket += 1) {
    const aheadUs = endUs(bucket) - elapsedUs
    if (aheadUs >= capUs) break
    if (aheadUs > 0) upTo(aheadUs, survival.alive[bucket + 1] ?? 0)
  }
  upTo(capUs, beyond(survival, elapsedUs + capUs))
  return heldUs
}

/** Points ahead at which the curve bends, rising, the last being `capUs`. */
export function borders(elapsedUs: Us, capUs: Us): Us[] {
  const list: Us[] = []
  for (let bucket = 0; bucket < WAIT_BUCKETS; bucket += 1) {
    const aheadUs = endUs(bucket) - elapsedUs
    if (aheadUs > 0 && aheadUs < capUs) list.push(aheadUs)
  }
  list.push(capUs)
  return list
}

/** Where a wait that has just begun will most likely end; what never ends counts as the longest. */
export function waitInterval({ alive }: Survival): Interval {
  const bucketAt = (left: number): number => {
    const after = alive.findIndex((count) => count <= left)
    return after < 1 ? WAIT_BUCKETS - 1 : after - 1
  }
  return {
    lowUs: startUs(bucketAt(Math.round((ALL / PPM) * (PPM - OUTSIDE_PPM)))),
    highUs: endUs(bucketAt(Math.round((ALL / PPM) * OUTSIDE_PPM))),
  }
}
