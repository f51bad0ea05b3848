/**
 * Owns the search for stop strings in a stream of text. Text that may become a stop string is held back until it is
 * one or cannot be. The first to complete wins, and of those that complete together the longest: so the cut depends on
 * the text alone, not on how it came in pieces.
 */
export class StopSearch {
  readonly #stops: readonly string[]
  #held = ''
  /** Where `#held` begins in the text as a whole. */
  #at = 0

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== '')
  }

  /** `cutAt`: where the stop string began, counted in the text as a whole; push no more after it. */
  push(text: string): { readonly text: string; readonly cutAt: number | null } {
    const all = this.#held + text
    const cut = this.#firstStop(all)
    const free = cut ?? all.length - this.#mayBecome(all)
    const cutAt = cut === null ? null : this.#at + cut
    this.#held = cut === null ? all.slice(free) : ''
    this.#at += free
    return { text: all.slice(0, free), cutAt }
  }

  /** What may yet become a stop string. */
  get held(): string {
    return this.#held
  }

  /** What was held back and became no stop string. */
  end(): string {
    const rest = this.#held
    this.#held = ''
    this.#at += rest.length
    return rest
  }

  #firstStop(text: string): number | null {
    let begin: number | null = null
    let end = Infinity
    for (const stop of this.#stops) {
      const found = text.indexOf(stop)
      if (found === -1) continue
      const foundEnd = found + stop.length
      if (foundEnd > end || (foundEnd === end && begin !== null && begin < found)) continue
      begin = found
      end = foundEnd
    }
    return begin
  }

  #mayBecome(text: string): number {
    return this.#stops.reduce((longest, stop) => Math.max(longest, overlap(text, stop)), 0)
  }
}

/** Length of the longest end of `text` that begins `mark` and is not all of it. */
export function overlap(text: string, mark: string): number {
  for (let length = Math.min(text.length, mark.length - 1); length > 0; length--) {
    if (text.endsWith(mark.slice(0, length))) return length
  }
  return 0
}
