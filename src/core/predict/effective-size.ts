/**
 * Owns the Gittins index of a program, turned over into a size: the least service that must be spent for each program
 * that it ends, over all ways to go on for a while and then stop (Gittins 1979; Aalto, Ayesta, Righter 2009, "On the
 * Gittins index in the M/G/1 queue"). The smaller, the sooner it is served. Where hazards fall, as under heavy tails, it
 * grows with what was received and the order is least attained service; where they rise, as among programs that are alike,
 * it falls and who has begun goes on.
 */
import { PPM } from './curve.ts'
import { sizeBucketOf, sizeStart } from './work.ts'

/** What is left beyond this share changes nothing. */
const ALIVE_LEAST_PPM = 1_000
const CAP = 2 ** 40

/** In the unit of the buckets. `hazards`: the chance to end in each bucket, in ppm; it ends evenly over a bucket. */
export function effectiveSize(hazards: readonly number[], attained: number): number {
  let alive = PPM
  let spent = 0
  let best = CAP
  let from = attained
  for (let bucket = sizeBucketOf(attained, hazards.length); bucket < hazards.length; bucket += 1) {
    const end = sizeStart(bucket + 1)
    const width = Math.max(0, end - from)
    const hazard = restOfBucket(hazards[bucket] ?? 0, width, end - sizeStart(bucket))
    const ends = Math.round((alive * hazard) / PPM)
    spent += (alive - ends / 2) * width
    alive -= ends
    from = end
    if (alive < PPM) best = Math.min(best, Math.floor(spent / (PPM - alive)))
    if (alive < ALIVE_LEAST_PPM) break
  }
  return best
}

/** A bucket of which `width` of `whole` is still to come: what ended in the part before it is not to come any more. */
function restOfBucket(hazard: number, width: number, whole: number): number {
  if (width >= whole) return hazard
  const still = PPM - Math.round((hazard * (whole - width)) / whole)
  return still <= 0 ? PPM : Math.round((PPM * Math.round((hazard * width) / whole)) / still)
}

/** Sizes within a factor of two are one level; the smaller, the better. */
export const levelOfSize = (size: number): number => (size < 2 ? 0 : Math.floor(Math.log2(size)))
