/**
 * Owns sets of characters, as sorted ranges of code points, and how one character of a set is written inside a JSON
 * string: each in one form only.
 */
import { literal } from './rules.ts'

type Range = readonly [low: number, high: number]
export type CharSet = readonly Range[]

/** Above it a character is one or two units, as the reader of the pattern likes: sets by exclusion stay below. */
const COMPLEMENT_MAX = 0xffff
/** What stands in a string as it is: no control characters, no quote, no backslash, no surrogates. */
const PLAIN: CharSet = [
  [0x20, 0x21], [0x23, 0x5b], [0x5d, 0x7e], [0xa0, 0xd7ff], [0xe000, 0xfffd], [0x10000, 0x10fffd],
]
/** What stands there by a short escape. */
const SHORT: ReadonlyMap<number, string> = new Map([
  [0x22, '\\"'], [0x5c, '\\\\'], [0x08, '\\b'], [0x09, '\\t'], [0x0a, '\\n'], [0x0c, '\\f'], [0x0d, '\\r'],
])

export const DIGITS: CharSet = [[0x30, 0x39]]
export const WORD: CharSet = [[0x30, 0x39], [0x41, 0x5a], [0x5f, 0x5f], [0x61, 0x7a]]
export const SPACE: CharSet = [
  [9, 13], [32, 32], [0xa0, 0xa0], [0x1680, 0x1680], [0x2000, 0x200a], [0x2028, 0x2029], [0x202f, 0x202f],
  [0x205f, 0x205f], [0x3000, 0x3000], [0xfeff, 0xfeff],
]
export const LINE_ENDS: CharSet = [[0x0a, 0x0a], [0x0d, 0x0d], [0x2028, 0x2029]]

export function complement(set: CharSet): CharSet {
  const out: Range[] = []
  let next = 0
  for (const [low, high] of [...set].sort(([a], [b]) => a - b)) {
    if (low > next) out.push([next, low - 1])
    next = Math.max(next, high + 1)
  }
  if (next <= COMPLEMENT_MAX) out.push([next, COMPLEMENT_MAX])
  return out
}

/** An expression for one character of the set; null where none of them can be written. */
export function written(set: CharSet): string | null {
  const plain = PLAIN.flatMap(([from, to]) => set.flatMap(([low, high]): Range[] => {
    const both: Range = [Math.max(from, low), Math.min(to, high)]
    return both[0] <= both[1] ? [both] : []
  }))
  const short = [...SHORT].filter(([point]) => set.some(([low, high]) => low <= point && point <= high))
  const forms = [
    ...(plain.length === 0 ? [] : [`[${plain.map(rangeText).join('')}]`]),
    ...short.map(([, escape]) => literal(escape)),
  ]
  if (forms.length < 2) return forms[0] ?? null
  return `(${forms.join(' | ')})`
}

const rangeText = ([low, high]: Range): string => low === high ? pointText(low) : `${pointText(low)}-${pointText(high)}`

const pointText = (point: number): string => `\\U${point.toString(16).toUpperCase().padStart(8, '0')}`
