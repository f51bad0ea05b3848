/**
 * Owns what a call does to the logits before a token is chosen from them, in this order: `repetition_penalty` over what
 * the prompt and the output hold; `frequency_penalty` and `presence_penalty` over the output; `logit_bias`; and, while
 * `min_tokens` are not out or with `ignore_eos`, the tokens that would end it. Which token stops the call besides the
 * model's own is here too.
 *
 * A pure function of the prompt and the tokens pushed: a resume pushes those that were shown, and is where it was (E2).
 */
import type { TokenRules } from '../protocol/chat.ts'

export class LogitChanges {
  readonly #rules: TokenRules
  readonly #stops: ReadonlySet<number>
  readonly #eogTokens: readonly number[]
  /** How often each token was put out. */
  readonly #counts = new Map<number, number>()
  /** What the repetition penalty sees; empty where there is none. */
  readonly #seen: Set<number>
  #outputs = 0

  constructor(rules: TokenRules, prompt: Iterable<number>, eogTokens: readonly number[]) {
    this.#rules = rules
    this.#stops = new Set(rules.stopTokens)
    this.#eogTokens = eogTokens
    this.#seen = new Set(rules.repetitionPenalty === 1 ? [] : prompt)
  }

  push(token: number): void {
    this.#outputs++
    this.#counts.set(token, (this.#counts.get(token) ?? 0) + 1)
    if (this.#rules.repetitionPenalty !== 1) this.#seen.add(token)
  }

  /** Changes the logits in place. */
  apply(logits: Float32Array): void {
    const { presencePenalty, frequencyPenalty, repetitionPenalty, bias, minTokens, ignoreEos } = this.#rules
    for (const token of this.#seen) {
      const logit = logits[token] ?? 0
      logits[token] = logit > 0 ? logit / repetitionPenalty : logit * repetitionPenalty
    }
    for (const [token, count] of this.#counts) {
      logits[token] = (logits[token] ?? 0) - frequencyPenalty * count - presencePenalty
    }
    for (const [token, by] of bias) logits[token] = (logits[token] ?? 0) + by
    const tooSoon = this.#outputs < minTokens
    if (!tooSoon && !ignoreEos) return
    for (const token of this.#eogTokens) logits[token] = -Infinity
    if (tooSoon) for (const token of this.#stops) logits[token] = -Infinity
  }
}

/** The first token that is named and not in the vocabulary; null where all are. */
export const unknownToken = ({ bias, stopTokens }: TokenRules, vocabSize: number): number | null =>
  [...bias.map(([token]) => token), ...stopTokens].find((token) => token >= vocabSize) ?? null

/** Null where it is none. It was validated at the door; it is read again because it came over a socket. */
export function readTokenRules(value: unknown): TokenRules | null {
  if (typeof value !== 'object' || value === null) return null
  const rules = value as Partial<Record<keyof TokenRules, unknown>>
  const { presencePenalty, frequencyPenalty, repetitionPenalty, bias, minTokens, ignoreEos, stopTokens } = rules
  const isRead = [presencePenalty, frequencyPenalty, repetitionPenalty].every(isNumber) && repetitionPenalty !== 0
    && isToken(minTokens) && typeof ignoreEos === 'boolean' && isListOf(stopTokens, isToken)
    && isListOf(bias, (pair) => isListOf(pair, isNumber) && pair.length === 2 && isToken(pair[0]))
  return isRead ? rules as TokenRules : null
}

const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value)

const isToken = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0

const isListOf = (value: unknown, holds: (item: unknown) => boolean): value is unknown[] =>
  Array.isArray(value) && value.every(holds)
