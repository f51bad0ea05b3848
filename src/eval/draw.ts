/** Owns seeded chance for workloads: the same seed and the same order of draws give the same numbers everywhere. */
export class Draw {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0
  }

  /** A stream of its own, so that drawing more of one thing does not shift another. */
  static of(seed: number, name: string): Draw {
    let hash = 2_166_136_261 ^ seed
    for (let at = 0; at < name.length; at += 1) hash = Math.imul(hash ^ name.charCodeAt(at), 16_777_619)
    return new Draw(hash)
  }

  /** In [0, 1). */
  unit(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }

  /** An integer in [0, below). */
  below(below: number): number {
    return Math.floor(this.unit() * below)
  }

  pick<T>(from: readonly T[]): T {
    const picked = from[this.below(from.length)]
    if (picked === undefined) throw new RangeError('nothing to pick from')
    return picked
  }

  /** A time between two arrivals of a Poisson process. */
  exponential(mean: number): number {
    return -mean * Math.log(1 - this.unit())
  }

  shuffled<T>(from: readonly T[]): T[] {
    const left = [...from]
    const out: T[] = []
    while (left.length > 0) out.push(...left.splice(this.below(left.length), 1))
    return out
  }
}
