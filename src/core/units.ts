/** Owns the names of units. All are integers; a name ends in its unit (`waitUs`, `kvBytes`, `promptTokens`). */

/** Monotonic microseconds, or a length of time in them. */
export type Us = number
export type Bytes = number
export type Tokens = number
/** Positions of KV an engine can hold; given out in granules. */
export type Cells = number
export type Granules = number
/** Money-equivalent: one millionth of what one engine-second costs (seed section 12). */
export type MicroCost = number

export const SECOND_US: Us = 1_000_000
export const MILLISECOND_US: Us = 1_000

export const seconds = (value: number): Us => Math.round(value * SECOND_US)
