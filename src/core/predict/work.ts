/**
 * Owns what is known of a program's size: service and calls in all, as survival curves by kind, in which open programs
 * count as cut off at what they have received. Buckets are quarters of a doubling. A kind with little data, or whose
 * predictions drift, gives way to all kinds of its tenant, those to all tenants; where they too know nothing, it says so.
 * Beyond the largest seen the curve goes on as its larger half fell: who has received more than any before is expected to
 * need a part more of it, a small one where sizes are alike, as much again where they are heavy-tailed.
 */
import { must } from '../assert.ts'
import type { TenantId } from '../ids.ts'
import type { Sizes, Work } from '../learned.ts'
import type { CoreState, Program } from '../state.ts'
import type { Us } from '../units.ts'
import { emptyCurve, endedOf, hazardsOf, PPM, UNIT } from './curve.ts'
import { confidenceOf, isDrifting, newTrust, OUTSIDE_PPM, type Interval } from './trust.ts'

// ---------------------------------------------------------------- buckets

/** Service in milliseconds, up to a day and a half; calls, up to six thousand. What is more is in the last. */
const SERVICE_BUCKETS = 108
const CALL_BUCKETS = 48

/** Below 8 each value has its own; above, four to a doubling. */
export function sizeBucketOf(size: number, buckets: number): number {
  if (size < 4) return size
  const octave = 31 - Math.clz32(Math.min(size, 0x7fff_ffff))
  return Math.min(buckets - 1, 4 * (octave - 1) + (Math.floor(size / 2 ** (octave - 2)) & 3))
}
const STARTS: readonly number[] = Array.from({ length: SERVICE_BUCKETS + 1 }, (_, bucket) =>
  bucket < 8 ? bucket : (4 + (bucket & 3)) * 2 ** ((bucket >>> 2) - 1))
/** The least size in a bucket; of the bucket after the last, the size that the last one ends at. */
export const sizeStart = (bucket: number): number => STARTS[bucket] ?? 0

export const toMs = (us: Us): number => Math.floor(us / 1_000)

const emptySizes = (buckets: number): Sizes => ({ ...emptyCurve(buckets), open: new Array<number>(buckets).fill(0) })
export const emptyWork = (): Work => ({ service: emptySizes(SERVICE_BUCKETS), calls: emptySizes(CALL_BUCKETS), trust: newTrust(), freshMs: 0 })

// ---------------------------------------------------------------- hazards

/** Where fewer than this many are left to look at, the tail fills up. */
const AT_RISK_ENOUGH = 4 * UNIT
/** What the tail leans on: half are left after four buckets, as if two such programs had been seen. */
const TAIL_PPM = 159_104
const TAIL_ENDED = 2 * UNIT
const TAIL_REACHED = Math.round((TAIL_ENDED * PPM) / TAIL_PPM)

/** For each bucket, in ppm: the chance to end in it, for who has reached it. Beyond the data it goes on as the larger half fell. */
export function sizeHazards(sizes: Readonly<Sizes>): number[] {
  const running = sizes.open.map((count) => count * UNIT)
  const tail = new Array<number>(running.length).fill(tailPpm(sizes, running))
  return hazardsOf(sizes, running, { hazards: tail, weight: (atRisk) => Math.max(0, AT_RISK_ENOUGH - atRisk) })
}

/** The size up to which enough programs were seen to tell: so many needed more. */
export function toldUpTo({ ended, cut }: Readonly<Sizes>): number {
  let reached = 0
  let bucket = ended.length - 1
  for (; bucket > 0 && reached < AT_RISK_ENOUGH; bucket -= 1) reached += (ended[bucket] ?? 0) + (cut[bucket] ?? 0)
  return sizeStart(bucket + 1)
}

/** The constant hazard under which the larger half of those that ended is likeliest; constant over buckets is a Pareto tail. */
function tailPpm({ ended, cut }: Readonly<Sizes>, running: readonly number[]): number {
  const half = ended.reduce((sum, weight) => sum + weight, 0) / 2
  let over = 0
  let reached = 0
  let buckets = 0
  for (let bucket = ended.length - 1; bucket >= 0 && over < half; bucket -= 1) {
    over += ended[bucket] ?? 0
    reached += (ended[bucket] ?? 0) + (cut[bucket] ?? 0) + (running[bucket] ?? 0)
    buckets += reached
  }
  return Math.round((PPM * (over + TAIL_ENDED)) / (buckets + TAIL_REACHED))
}

/** Of what programs received, those still open counted with what they have so far; 0 where none received anything. */
export function meanOf({ ended, cut, open }: Readonly<Sizes>): number {
  let weights = 0
  let sizes = 0
  for (let bucket = 1; bucket < ended.length; bucket += 1) {
    const weight = (ended[bucket] ?? 0) + (cut[bucket] ?? 0) + (open[bucket] ?? 0) * UNIT
    if (weight === 0) continue
    weights += weight
    sizes += weight * sizeStart(bucket)
  }
  return weights === 0 ? 0 : Math.floor(sizes / weights)
}

// ---------------------------------------------------------------- who knows

/** Fewer ended programs than this are not a curve. */
export const PROGRAMS_ENOUGH = 8

type Source = 'kind' | 'tenant' | 'all'

/** Of a program's kind, of its tenant, of all: what was learned, the closest first. */
export function worksOf(core: Readonly<CoreState>, { tenant, kind }: Pick<Program, 'tenant' | 'kind'>): { readonly from: Source; readonly work: Work }[] {
  const { learned } = must(core.tenants, tenant)
  return [
    { from: 'kind', work: must(learned.kinds, kind) },
    { from: 'tenant', work: learned.work },
    { from: 'all', work: core.learned.work },
  ]
}

/** The closest that has seen enough and does not drift; null: nobody knows. */
export const knownOf = (core: Readonly<CoreState>, program: Pick<Program, 'tenant' | 'kind'>): { readonly from: Source; readonly work: Work } | null =>
  worksOf(core, program).find(({ work }) => endedOf(work.service) >= PROGRAMS_ENOUGH && !isDrifting(work.trust)) ?? null

/** The name a new program's kind is learned under; a tenant's kinds beyond `kindsPerTenantMax` are learned together. */
export function kindOf(core: Readonly<CoreState>, tenant: TenantId, agent: string): string {
  const kinds = core.tenants.get(tenant)?.learned.kinds
  return kinds === undefined || kinds.has(agent) || kinds.size < core.config.kindsPerTenantMax ? agent : 'other'
}

/** What a new program will need; drifting curves are asked too, since that is how they come back. Null: too little is known. */
export function sizeInterval(core: Readonly<CoreState>, program: Pick<Program, 'tenant' | 'kind'>): Interval | null {
  const known = worksOf(core, program).find(({ work }) => endedOf(work.service) >= PROGRAMS_ENOUGH)
  if (known === undefined) return null
  const { low, high } = rest(sizeHazards(known.work.service), 0)
  return { lowUs: low * 1_000, highUs: high * 1_000 }
}

// ---------------------------------------------------------------- what remains

/** From here to its end; an interval that holds four times out of five where `confidencePpm` is high. */
interface Remaining {
  readonly lowUs: Us
  readonly highUs: Us
  /** How often intervals of this curve held of late; 0 where nothing is known. */
  readonly confidencePpm: number
  /** Something would be known, and was wrong too often of late. */
  readonly drifting: boolean
  readonly callsLow: number
  readonly callsHigh: number
  /** Whose curve; null: nobody knows, and the interval is everything. */
  readonly from: Source | null
}

/**
 * Service and calls that a program still needs, its sub-agents' counted in where it is a root. A declared number of steps
 * takes the place of the curve of calls, and its own mean step that of service, give or take a factor of two.
 */
export function remainingOf(core: Readonly<CoreState>, program: Readonly<Program>): Remaining {
  const { servedUs, callsDone } = program.standing
  const known = knownOf(core, program)
  const confidencePpm = known === null ? 0 : confidenceOf(known.work.trust)
  const from = known?.from ?? null
  const drifting = known === null && worksOf(core, program).some(({ work }) => isDrifting(work.trust))
  if (program.steps !== null && callsDone > 0) {
    const calls = Math.max(0, program.steps - callsDone)
    const us = Math.round((calls * servedUs) / callsDone)
    return { lowUs: Math.floor(us / 2), highUs: 2 * us, confidencePpm, drifting, callsLow: calls, callsHigh: calls, from }
  }
  if (known === null) return { lowUs: 0, highUs: Number.MAX_SAFE_INTEGER, confidencePpm, drifting, callsLow: 0, callsHigh: Number.MAX_SAFE_INTEGER, from }
  const service = rest(sizeHazards(known.work.service), toMs(servedUs))
  const calls = rest(sizeHazards(known.work.calls), callsDone)
  return { lowUs: service.low * 1_000, highUs: service.high * 1_000, confidencePpm, drifting, callsLow: calls.low, callsHigh: calls.high, from }
}

/** What is left after `had`, all but one in ten on either side, outward to borders. */
function rest(hazards: readonly number[], had: number): { low: number; high: number } {
  let alive = PPM
  let low: number | null = null
  for (let bucket = sizeBucketOf(had, hazards.length); bucket < hazards.length; bucket += 1) {
    alive -= Math.round((alive * (hazards[bucket] ?? 0)) / PPM)
    if (low === null && alive <= PPM - OUTSIDE_PPM) low = Math.max(0, sizeStart(bucket) - had)
    if (alive <= OUTSIDE_PPM) return { low: low ?? 0, high: sizeStart(bucket + 1) - had }
  }
  return { low: low ?? 0, high: sizeStart(hazards.length) - had }
}
