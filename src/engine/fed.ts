/**
 * Owns the account of what a lane holds: each token and how it was fed, position by position. The digest of a span is
 * chained over all tokens and origins from position 0 to the span's end, so that equal digests mean equal KV (E1),
 * wherever the borders between spans are.
 */
import { createHash } from 'node:crypto'

export type Origin = 'prefilled' | 'decoded'

interface FedSpan { readonly tokens: number; readonly origin: Origin; readonly digest: string }

/** Hex digits of a span's digest. */
const DIGEST_DIGITS = 16

export class Fed {
  readonly #tokens: number[] = []
  readonly #origins: Origin[] = []
  /** Whether each came out of another lane. */
  readonly #copied: boolean[] = []

  get length(): number {
    return this.#tokens.length
  }

  /** How many of the positions `from` to before `to` came out of another lane. */
  copied(from: number, to: number): number {
    return this.#copied.slice(from, to).filter((copied) => copied).length
  }

  push(token: number, origin: Origin, copied = false): void {
    this.#copied.push(copied)
    this.#tokens.push(token)
    this.#origins.push(origin)
  }

  cut(length: number): void {
    this.#tokens.length = Math.min(this.#tokens.length, length)
    this.#origins.length = this.#tokens.length
    this.#copied.length = this.#tokens.length
  }

  /** Leading tokens equal to those of `tokens`. */
  matching(tokens: ArrayLike<number>): number {
    const most = Math.min(this.#tokens.length, tokens.length)
    let count = 0
    while (count < most && this.#tokens[count] === tokens[count]) count++
    return count
  }

  /** Where positions `from` to before `to` first are another token, or were fed in another way; `to` where they are the same. */
  differsAt(tokens: ArrayLike<number>, origin: Origin, from: number, to: number): number {
    const end = Math.min(to, this.#tokens.length)
    let at = from
    while (at < end && this.#tokens[at] === tokens[at] && this.#origins[at] === origin) at++
    return at
  }

  /** Tokens from position `from` on, by origin. */
  counts(from: number): Readonly<Record<Origin, number>> {
    const counts = { prefilled: 0, decoded: 0 }
    for (let at = from; at < this.#origins.length; at++) counts[this.#origins[at] ?? 'prefilled']++
    return counts
  }

  tokens(): Int32Array {
    return Int32Array.from(this.#tokens)
  }

  /** Runs of one origin from position `from` on, each with the digest of everything up to its end. */
  spans(from: number): readonly FedSpan[] {
    const hash = createHash('sha256')
    const cell = Buffer.alloc(5)
    const spans: FedSpan[] = []
    let begun = from
    for (let at = 0; at < this.#tokens.length; at++) {
      const origin = this.#origins[at] ?? 'prefilled'
      cell.writeInt32LE(this.#tokens[at] ?? 0, 0)
      cell[4] = origin === 'decoded' ? 1 : 0
      hash.update(cell)
      if (at < from || this.#origins[at + 1] === origin) continue
      spans.push({ tokens: at + 1 - begun, origin, digest: hash.copy().digest('hex').slice(0, DIGEST_DIGITS) })
      begun = at + 1
    }
    return spans
  }
}
