/**
 * Owns what is said, token by token, so that a wrong one is seen. A token that is given is a function of its text and
 * place; a token that is generated is a function of (seed, choice, place, and the digest of all tokens and origins before
 * it). The digest of a position is what its KV holds here: KV that is not what it should be gives other tokens from there on.
 */
import type { Origin } from '../core/state.ts'
import type { Tokens } from '../core/units.ts'
import { mix } from './chance.ts'

/** A stretch of a conversation: given text, or what a call said, by name. */
export interface Piece {
  readonly kind: 'given' | 'said'
  readonly id: number
  readonly tokens: Tokens
}

/** Neighbours fed alike. */
export interface Run { readonly origin: Origin; readonly tokens: Tokens }

/** What calls said, by a digest of it; as immutable as text is. Blank: every token is 0, for figures and not for proof. */
export class Texts {
  readonly isBlank: boolean
  readonly #said = new Map<number, readonly number[]>()

  constructor(isBlank = false) {
    this.isBlank = isBlank
  }

  keep(tokens: readonly number[]): Piece {
    if (this.isBlank) return { kind: 'said', id: 0, tokens: tokens.length }
    const id = tokens.reduce(mix, tokens.length)
    this.#said.set(id, tokens)
    return { kind: 'said', id, tokens: tokens.length }
  }

  /** Tokens as a client sees them. */
  shownAs(tokens: readonly number[]): string {
    return this.isBlank ? '0 '.repeat(tokens.length) : tokens.map((token) => `${token.toString(36)} `).join('')
  }

  shownIn(text: string): number[] {
    if (this.isBlank) return new Array<number>(text.length >> 1).fill(0)
    return text.split(' ').filter((word) => word !== '').map((word) => Number.parseInt(word, 36))
  }

  token({ kind, id }: Piece, place: Tokens): number {
    if (this.isBlank) return 0
    return kind === 'given' ? mix(id, place) : this.#said.get(id)?.[place] ?? 0
  }
}

/** KV before the first token. */
export const EMPTY_DIGEST = 0x5eed

/** KV of one more token. */
export const fedDigest = (before: number, token: number, origin: Origin): number =>
  mix(before, origin === 'decoded' ? token ^ 0x0d0d0d0d : token)

/** The token that a call says at `place` of its output, after the KV `digest`. */
export const sampled = (seed: number, place: Tokens, digest: number): number => mix(mix(seed, place), digest)

export const tokensOf = (parts: readonly { readonly tokens: Tokens }[]): Tokens =>
  parts.reduce((sum, { tokens }) => sum + tokens, 0)

/** What of them lies from `begin` to `end`. */
export function cutRuns(runs: readonly Run[], end: Tokens, begin: Tokens = 0): Run[] {
  const kept: Run[] = []
  let place = 0
  for (const { tokens, origin } of runs) {
    const inside = Math.min(place + tokens, end) - Math.max(place, begin)
    place += tokens
    addRun(kept, origin, inside)
  }
  return kept
}

export function addRun(runs: Run[], origin: Origin, tokens: Tokens): void {
  const last = runs.at(-1)
  if (tokens <= 0) return
  if (last?.origin === origin) runs[runs.length - 1] = { origin, tokens: last.tokens + tokens }
  else runs.push({ origin, tokens })
}

/** Tokens that two conversations have in common from their beginning. */
export function commonTokens(texts: Texts, a: readonly Piece[], b: readonly Piece[]): Tokens {
  let common = 0
  for (let at = 0; at < a.length && at < b.length; at += 1) {
    const [one, other] = [a[at], b[at]]
    if (one === undefined || other === undefined) break
    if (one.kind === other.kind && one.id === other.id && one.tokens === other.tokens) {
      common += one.tokens
      continue
    }
    let place = 0
    while (place < one.tokens && place < other.tokens && texts.token(one, place) === texts.token(other, place)) place += 1
    return common + place
  }
  return common
}

/** KV of a whole conversation whose tokens were fed so. */
export function digestOf(texts: Texts, pieces: readonly Piece[], runs: readonly Run[]): number {
  let digest = EMPTY_DIGEST
  let run = 0
  let left = runs[0]?.tokens ?? 0
  for (const piece of pieces) {
    for (let place = 0; place < piece.tokens; place += 1) {
      while (left === 0 && run < runs.length) left = runs[++run]?.tokens ?? 0
      digest = fedDigest(digest, texts.token(piece, place), runs[run]?.origin ?? 'prefilled')
      left -= 1
    }
  }
  return digest
}
