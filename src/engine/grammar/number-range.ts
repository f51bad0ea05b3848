/**
 * Owns numbers between two bounds, as expressions over their digits. Bounds are integers; a number with digits behind
 * its point is written by the integer before it. No exponents where there are bounds.
 */
import { DIGITS_MAX } from './rules.ts'

/** Null: no bound on that side. */
export interface Bounds {
  readonly low: number | null
  readonly high: number | null
  readonly lowExclusive: boolean
  readonly highExclusive: boolean
}

const LARGEST = 10 ** DIGITS_MAX - 1

/** Null: there is none. */
export function integersBetween({ low, high, lowExclusive, highExclusive }: Bounds): string | null {
  const least = low === null ? -LARGEST : Math.max(-LARGEST, lowExclusive ? Math.floor(low) + 1 : Math.ceil(low))
  const most = high === null ? LARGEST : Math.min(LARGEST, highExclusive ? Math.ceil(high) - 1 : Math.floor(high))
  if (least > most) return null
  const sides = [
    ...(least < 0 ? [`"-" (${digits(Math.max(1, -most), -least)})`] : []),
    ...(most >= 0 ? [digits(Math.max(0, least), most)] : []),
  ]
  return sides.join(' | ')
}

/** Null: there is none. `frac` is a point and digits. The bounds must be integers. */
export function numbersBetween({ low, high, lowExclusive, highExclusive }: Bounds, frac: string): string | null {
  const sides: string[] = []
  if (low === null || low < 0) {
    const near = high === null || high > 0 ? FROM_ZERO : { at: Math.abs(high), exclusive: highExclusive }
    const side = oneSide(near, low === null ? null : { at: -low, exclusive: lowExclusive }, frac)
    if (side !== null) sides.push(`"-" (${side})`)
  }
  if (high === null || high >= 0) {
    const near = low === null || low < 0 ? FROM_ZERO : { at: low, exclusive: lowExclusive }
    const side = oneSide(near, high === null ? null : { at: high, exclusive: highExclusive }, frac)
    if (side !== null) sides.push(side)
  }
  return sides.length === 0 ? null : sides.join(' | ')
}

interface End { readonly at: number; readonly exclusive: boolean }

const FROM_ZERO: End = { at: 0, exclusive: false }

/** Numbers without a sign from `near` to `far`. */
function oneSide(near: End, far: End | null, frac: string): string | null {
  const farAt = Math.min(far?.at ?? LARGEST, LARGEST)
  const last = far === null || far.at > LARGEST ? farAt : farAt - 1
  const first = near.exclusive ? near.at + 1 : near.at
  const parts = [
    ...(near.exclusive && near.at <= last ? [`"${near.at}." [0-9]{0,${DIGITS_MAX - 1}} [1-9]`] : []),
    ...(first <= last ? [`(${digits(first, last)}) ${frac}?`] : []),
    ...(far !== null && last < farAt && !far.exclusive && (near.at < far.at || !near.exclusive) && near.at <= far.at
      ? [`"${farAt}"`] : []),
  ]
  return parts.length === 0 ? null : parts.join(' | ')
}

/** Integers from `least` to `most`, both at least 0, without leading zeros. */
function digits(least: number, most: number): string {
  const low = String(least)
  const high = String(most)
  if (low.length === high.length) return sameLength(low, high)
  const between = high.length - low.length - 1
  return [
    sameLength(low, '9'.repeat(low.length)),
    ...(between > 0 ? [`[1-9] [0-9]{${low.length},${low.length + between - 1}}`] : []),
    sameLength(`1${'0'.repeat(high.length - 1)}`, high),
  ].join(' | ')
}

/** Digits from `low` to `high`, of the same length. */
function sameLength(low: string, high: string): string {
  if (low === '') return '""'
  const rest = low.length - 1
  const [a, b] = [low.charAt(0), high.charAt(0)]
  const [lowRest, highRest] = [low.slice(1), high.slice(1)]
  const lowest = /^0*$/.test(lowRest)
  const highest = /^9*$/.test(highRest)
  if (rest === 0 || (lowest && highest)) return `${digit(a, b)}${free(rest)}`
  if (a === b) return `"${a}" (${sameLength(lowRest, highRest)})`
  const from = lowest ? a : String(Number(a) + 1)
  const to = highest ? b : String(Number(b) - 1)
  return [
    ...(lowest ? [] : [`"${a}" (${sameLength(lowRest, '9'.repeat(rest))})`]),
    ...(from <= to ? [`${digit(from, to)}${free(rest)}`] : []),
    ...(highest ? [] : [`"${b}" (${sameLength('0'.repeat(rest), highRest)})`]),
  ].join(' | ')
}

const digit = (a: string, b: string): string => a === b ? `"${a}"` : `[${a}-${b}]`

const free = (count: number): string => count === 0 ? '' : count === 1 ? ' [0-9]' : ` [0-9]{${count}}`
