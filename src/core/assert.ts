/** Owns the two ways a bug shows itself: a broken assertion and a case that cannot be. Never used on data from outside. */

export class InvariantError extends Error {
  /** Number of the broken invariant (ARCHITECTURE.md), or 0 for a plain assertion. */
  readonly number: number
  constructor(number: number, message: string) {
    super(number === 0 ? message : `invariant ${number}: ${message}`)
    this.name = 'InvariantError'
    this.number = number
  }
}

export function assert(condition: boolean, message: string): asserts condition {
  if (!condition) throw new InvariantError(0, message)
}

export function unreachable(value: never): never {
  throw new InvariantError(0, `no case for ${JSON.stringify(value)}`)
}

/** The entry that must be there; its absence is a bug of ours, never of the caller. */
export function must<K, V>(map: ReadonlyMap<K, V>, key: K): V {
  const value = map.get(key)
  if (value === undefined) throw new InvariantError(0, `nothing is kept under ${String(key)}`)
  return value
}
