/**
 * Owns the plan of one attempt: which tokens are fed at which position and how. Fixed at the start from what was
 * measured and what was already shown, before any reuse (E1): given tokens are prefilled in runs of `rowsMin` and more,
 * generated tokens are decoded, and so are fewer given ones. `rowsMin` is 2, and more where more rows yield what single
 * ones do (`llama/attention.ts`): then known tokens are decoded in batches of fewer rows than that.
 *
 *   position   0 ........ prompt .............. total
 *   tokens     as measured | shown output but the last
 *   origin     as measured | decoded
 */
import assert from 'node:assert/strict'
import type { Fed, Origin } from './fed.ts'

export interface Run { readonly tokens: number; readonly origin: Origin }

/** Tokens in a row of one origin: positions `begin` to before `end`. */
interface Stretch { readonly begin: number; readonly end: number; readonly origin: Origin }

/** What one batch may take of it: rows of its lane alone, or one row beside other lanes'. */
export type Piece = { readonly kind: 'prefill'; readonly count: number } | { readonly kind: 'decode' }

/** Below this a chunk could not lend enough rows to a remainder. */
export const chunkTokensMin = (rowsMin: number): number => 2 * rowsMin

export class Plan {
  readonly tokens: Int32Array
  readonly promptTokens: number
  /** Position of the first token this attempt feeds. */
  readonly begin: number
  /** Some token is fed in another way than it was before. */
  readonly deviates: boolean
  readonly #stretches: readonly Stretch[]
  /** Nothing was shown yet: what comes is drawn from the logits of the prompt's last token. */
  readonly #needsLogits: boolean
  readonly #rowsMin: number

  /**
   * `held`: leading tokens on device that may be kept. With `plain`, what was decoded and is not held is prefilled.
   */
  constructor(prompt: Int32Array, runs: readonly Run[], forced: readonly number[], held: number, plain: boolean, rowsMin = 2) {
    this.#rowsMin = rowsMin
    const shown = forced.slice(0, -1)
    this.#needsLogits = forced.length === 0
    this.tokens = new Int32Array(prompt.length + shown.length)
    this.tokens.set(prompt)
    this.tokens.set(shown, prompt.length)
    this.promptTokens = prompt.length
    const planned = stretchesOf(shown.length === 0 ? runs : [...runs, { tokens: shown.length, origin: 'decoded' }])
    assert((planned.at(-1)?.end ?? 0) === this.tokens.length, 'the runs do not cover the tokens')
    const kept = Math.min(held, this.tokens.length)
    this.#stretches = plain ? withoutReplay(planned, kept) : planned
    this.deviates = plain && planned.some(({ end, origin }) => origin === 'decoded' && end > kept)
      && !sameStretches(this.#stretches, planned)
    this.begin = this.from(kept)
  }

  /** What comes at `position`, at most `chunkTokens` of it. */
  piece(position: number, chunkTokens: number): Piece {
    const left = this.#at(position).end - position
    if (this.origin(position) === 'decoded') {
      const count = Math.min(left, chunkTokens, this.#rowsMin - 1)
      return count === 1 ? { kind: 'decode' } : { kind: 'prefill', count }
    }
    assert(left >= this.#rowsMin, `${left} given tokens are left at position ${position}`)
    const count = Math.min(left, chunkTokens)
    const rest = left - count
    // A prefill of fewer rows computes something else than a prefill: the remainder borrows from this chunk.
    return { kind: 'prefill', count: rest > 0 && rest < this.#rowsMin ? left - this.#rowsMin : count }
  }

  /** How the token at `position` is fed by this plan or its like; what comes after the plan was generated. */
  origin(position: number): Origin {
    if (position >= this.tokens.length) return 'decoded'
    const { begin, end, origin } = this.#at(position)
    return end - begin < this.#rowsMin ? 'decoded' : origin
  }

  /** Leading tokens that a lane has as this plan has them, fed as this plan feeds them. */
  shared(fed: Fed): number {
    for (const { begin, end } of this.#stretches) {
      const differs = fed.differsAt(this.tokens, this.origin(begin), begin, end)
      if (differs < end) return differs
    }
    return this.tokens.length
  }

  /**
   * Where feeding goes on when `kept` tokens could be kept: earlier where else too few given tokens would be left of a
   * longer run, or where the logits of the prompt's last token are needed and gone.
   */
  from(kept: number): number {
    const from = this.#needsLogits ? Math.min(kept, this.tokens.length - 1) : kept
    if (from >= this.tokens.length) return from
    return this.origin(from) === 'decoded' ? from : Math.min(from, this.#at(from).end - this.#rowsMin)
  }

  #at(position: number): Stretch {
    const found = this.#stretches.find(({ begin, end }) => begin <= position && position < end)
    assert(found !== undefined, `nothing is planned at position ${position}`)
    return found
  }
}

/** Neighbours of one origin are one stretch. */
function stretchesOf(runs: readonly Run[]): Stretch[] {
  const stretches: Stretch[] = []
  let position = 0
  for (const { tokens, origin } of runs) {
    if (tokens === 0) continue
    const last = stretches.at(-1)
    const joins = last !== undefined && last.origin === origin
    if (joins) stretches.pop()
    stretches.push({ begin: joins ? last.begin : position, end: position + tokens, origin })
    position += tokens
  }
  return stretches
}

/** Everything from `from` on prefilled. */
function withoutReplay(stretches: readonly Stretch[], from: number): Stretch[] {
  const runs = stretches.flatMap(({ begin, end, origin }): Run[] => {
    const before = Math.max(0, Math.min(end, from) - begin)
    return [{ tokens: before, origin }, { tokens: end - begin - before, origin: 'prefilled' }]
  })
  return stretchesOf(runs)
}

const sameStretches = (a: readonly Stretch[], b: readonly Stretch[]): boolean =>
  a.length === b.length && a.every(({ end, origin }, i) => end === b[i]?.end && origin === b[i].origin)
