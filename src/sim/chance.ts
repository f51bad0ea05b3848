/**
 * Owns all randomness of the simulator: integers only, drawn from a seed and a name, so that the same seed gives the same
 * run on every machine, and a draw added in one place changes no other. Nothing here is fit for secrets.
 */

/** Two 32-bit numbers into one; neighbours give strangers. */
export function mix(a: number, b: number): number {
  let h = Math.imul(a ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul((b + 0x7f4a7c15) | 0, 0xc2b2ae35)
  h ^= h >>> 15
  h = Math.imul(h, 0x2c1b3c6d)
  h ^= h >>> 12
  h = Math.imul(h, 0x297a2d39)
  return (h ^ (h >>> 15)) >>> 0
}

export function hashOf(seed: number, name: string): number {
  let h = mix(seed, name.length)
  for (let at = 0; at < name.length; at += 1) h = mix(h, name.charCodeAt(at))
  return h
}

export const PPM = 1_000_000

/** A stream of draws; the n-th is a function of seed, name and n. */
export class Chance {
  readonly #seed: number
  #draws = 0

  constructor(seed: number, name: string) {
    this.#seed = hashOf(seed, name)
  }

  /** 0 to 2^32 - 1. */
  next(): number {
    this.#draws += 1
    return mix(this.#seed, this.#draws)
  }

  /** 0 to `end` - 1; `end` up to 2^32. */
  below(end: number): number {
    return Math.floor((this.next() * end) / 4_294_967_296)
  }

  /** Both ends included. */
  between(low: number, high: number): number {
    return low + this.below(high - low + 1)
  }

  hit(ppm: number): boolean {
    return this.below(PPM) < ppm
  }

  /** Most near `low`, some near `high`: every doubling between them is as likely as the next. */
  tail(low: number, high: number): number {
    let doublings = 0
    while (low * 2 ** (doublings + 1) <= high) doublings += 1
    const from = low * 2 ** this.below(doublings + 1)
    return this.between(from, Math.min(high, from * 2 - 1))
  }

  pick<T>(list: readonly [T, ...T[]]): T {
    return list[this.below(list.length)] ?? list[0]
  }
}
