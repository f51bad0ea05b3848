/** Owns the figures of a comparison: quantiles, and intervals by bootstrap. Pure; chance comes in as a seed. */
import { Draw } from './draw.ts'

export const mean = (values: readonly number[]): number => {
  if (values.length === 0) throw new RangeError('the mean of nothing')
  return values.reduce((sum, value) => sum + value, 0) / values.length
}

/** Linear between the two nearest, as most tools do it. */
export function quantile(values: readonly number[], share: number): number {
  if (values.length === 0) throw new RangeError('a quantile of nothing')
  const sorted = [...values].sort((a, b) => a - b)
  const at = (sorted.length - 1) * share
  const low = Math.floor(at)
  const below = sorted[low] ?? Number.NaN
  const above = sorted[Math.min(low + 1, sorted.length - 1)] ?? Number.NaN
  return below + (above - below) * (at - low)
}

export const median = (values: readonly number[]): number => quantile(values, 0.5)

export interface Interval {
  readonly value: number
  readonly low: number
  readonly high: number
}

/** Repeats of one experiment under one seed: entry i of `base` and of `other` are the same program. */
export interface PairedRun {
  readonly base: readonly number[]
  readonly other: readonly number[]
}

const RESAMPLES = 4_000

/**
 * `of(base) / of(other)` with a 95 % interval: seeds are resampled, then programs within a seed, the same ones on both
 * sides, since programs under one seed share their luck.
 */
export function pairedRatio(runs: readonly PairedRun[], of: (values: readonly number[]) => number, seed = 1): Interval {
  const whole = { base: runs.flatMap((run) => run.base), other: runs.flatMap((run) => run.other) }
  const draw = Draw.of(seed, 'bootstrap')
  const ratios: number[] = []
  for (let sample = 0; sample < RESAMPLES; sample += 1) {
    const base: number[] = []
    const other: number[] = []
    for (let at = 0; at < runs.length; at += 1) resampleRun(draw, draw.pick(runs), base, other)
    ratios.push(of(base) / of(other))
  }
  return { value: of(whole.base) / of(whole.other), low: quantile(ratios, 0.025), high: quantile(ratios, 0.975) }
}

function resampleRun(draw: Draw, run: PairedRun, base: number[], other: number[]): void {
  if (run.base.length !== run.other.length) throw new RangeError('paired runs differ in length')
  for (let at = 0; at < run.base.length; at += 1) {
    const chosen = draw.below(run.base.length)
    base.push(run.base[chosen] ?? Number.NaN)
    other.push(run.other[chosen] ?? Number.NaN)
  }
}

/** `of(base) / of(other)` with a 95 % interval where the two sides are separate measurements. */
export function ratio(
  base: readonly number[], other: readonly number[], of: (values: readonly number[]) => number, seed = 1,
): Interval {
  const draw = Draw.of(seed, 'bootstrap')
  const again = (values: readonly number[]): number[] => values.map(() => draw.pick(values))
  const ratios: number[] = []
  for (let sample = 0; sample < RESAMPLES; sample += 1) ratios.push(of(again(base)) / of(again(other)))
  return { value: of(base) / of(other), low: quantile(ratios, 0.025), high: quantile(ratios, 0.975) }
}

/** One figure with a 95 % interval. */
export function estimate(values: readonly number[], of: (values: readonly number[]) => number, seed = 1): Interval {
  const draw = Draw.of(seed, 'bootstrap')
  const samples: number[] = []
  for (let sample = 0; sample < RESAMPLES; sample += 1) samples.push(of(values.map(() => draw.pick(values))))
  return { value: of(values), low: quantile(samples, 0.025), high: quantile(samples, 0.975) }
}
