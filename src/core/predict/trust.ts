/**
 * Owns what a predictor is worth: it said an interval, and was what came inside? Its confidence is the share that was,
 * over the last sixteen or so, with two wrong ones imagined, so that nothing is trusted before it was right. The
 * drift detector is the same count: a predictor that was wrong more often than right is off until it is right again.
 */
import { PPM, UNIT } from './curve.ts'
import type { Us } from '../units.ts'

/** Meant to hold what comes four times out of five; rounded outward to the borders of its curve. */
export interface Interval {
  readonly lowUs: Us
  readonly highUs: Us
}
/** The shares left outside on either side. */
export const OUTSIDE_PPM = 100_000

export interface Trust {
  /** Weights of predictions that were put to the test, and of those that held; older ones fade. */
  asked: number
  right: number
}

/** Of what was seen, a test takes away this part: so many count. */
const FADE = 16
const IMAGINED_WRONG = 2 * UNIT
/** Fewer tests than this say nothing about drift. */
const ASKED_ENOUGH = 8 * UNIT

export const newTrust = (): Trust => ({ asked: 0, right: 0 })

export function judge(trust: Trust, right: boolean): void {
  trust.asked += UNIT - Math.floor(trust.asked / FADE)
  trust.right += (right ? UNIT : 0) - Math.floor(trust.right / FADE)
}

export const isInside = ({ lowUs, highUs }: Interval, us: Us): boolean => lowUs <= us && us <= highUs

/** Parts per million. */
export const confidenceOf = ({ asked, right }: Readonly<Trust>): number => Math.floor((PPM * right) / (asked + IMAGINED_WRONG))

export const isDrifting = ({ asked, right }: Readonly<Trust>): boolean => asked >= ASKED_ENOUGH && 2 * right < asked
