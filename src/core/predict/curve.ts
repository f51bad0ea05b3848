/**
 * Owns a survival curve: how long things lasted, in buckets, those that ended apart from those that were cut off before
 * they did. Read as Kaplan and Meier (1958) have it: of those that reached a bucket, the share that ended in it; who was
 * cut off inside counts half (the actuarial form), and who is in it now not yet: it may be we who keep it there. Newer observations count more, because what is remembered is bounded
 * and is halved when it is full. Integers throughout.
 */

/** An observation weighs this much before anything is forgotten. */
export const UNIT = 64
/** Parts per million. */
export const PPM = 1_000_000

export interface Curve {
  /** Weights of what ended in each bucket, and of what was cut off there. */
  readonly ended: number[]
  readonly cut: number[]
  /** The sum of each. */
  readonly all: { ended: number; cut: number }
}

export const emptyCurve = (buckets: number): Curve =>
  ({ ended: new Array<number>(buckets).fill(0), cut: new Array<number>(buckets).fill(0), all: { ended: 0, cut: 0 } })

/** Adds one observation; `observationsMax`: beyond so many, all that is remembered counts half. */
export function remember(curve: Curve, how: 'ended' | 'cut', bucket: number, observationsMax: number): void {
  curve[how][bucket] = (curve[how][bucket] ?? 0) + UNIT
  curve.all[how] += UNIT
  if (seenOf(curve) > observationsMax) halve(curve)
}

/** Takes one back that turned out not to have ended. */
export function takeBack(curve: Curve, bucket: number): void {
  const before = curve.ended[bucket] ?? 0
  curve.ended[bucket] = Math.max(0, before - UNIT)
  curve.all.ended -= Math.min(before, UNIT)
}

export function halve(curve: Curve): void {
  for (const how of ['ended', 'cut'] as const) {
    for (const [bucket, weight] of curve[how].entries()) curve[how][bucket] = weight >>> 1
    curve.all[how] = curve[how].reduce((total, weight) => total + weight, 0)
  }
}

/** Observations remembered, rounded down; what was halved counts half. */
export const endedOf = (curve: Readonly<Curve>): number => Math.floor(curve.all.ended / UNIT)
export const seenOf = (curve: Readonly<Curve>): number => Math.floor((curve.all.ended + curve.all.cut) / UNIT)

/** What a curve leans on where it has seen little: the hazards of another, with a weight that depends on who is at risk. */
export interface Lean {
  readonly hazards: readonly number[]
  readonly weight: (atRisk: number) => number
}

/** For each bucket, in ppm: the chance to end in it, for who has reached it. `running`: weights of what still lasts. */
export function hazardsOf(curve: Readonly<Pick<Curve, 'ended' | 'cut'>>, running: readonly number[] | null, lean: Lean): number[] {
  const hazards = new Array<number>(curve.ended.length).fill(0)
  let reached = 0
  for (let bucket = hazards.length - 1; bucket >= 0; bucket -= 1) {
    const ended = curve.ended[bucket] ?? 0
    const cut = curve.cut[bucket] ?? 0
    const runs = running?.[bucket] ?? 0
    reached += ended + cut + runs
    const atRisk = reached - (cut >>> 1) - runs
    const weight = lean.weight(atRisk)
    const leaned = lean.hazards[bucket] ?? 0
    hazards[bucket] = atRisk + weight <= 0 ? leaned : Math.min(PPM, Math.round((ended * PPM + leaned * weight) / (atRisk + weight)))
  }
  return hazards
}
