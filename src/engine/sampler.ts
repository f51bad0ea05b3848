/**
 * Owns the choice of a token from its logits. Greedy at temperature 0; else temperature, then min_p, top_k and top_p.
 * Randomness is a function of the call's seed, the choice and the position, so a resume needs no generator state (E2).
 * Orders are total: of equal logits the lower token id comes first. A grammar is asked about the first candidate only;
 * where it says no, everything it forbids is masked and the token is drawn again with fresh randomness, which together
 * gives each allowed token its share.
 */
import type { Sampling } from '../protocol/chat.ts'
import { exponential } from './exponential.ts'

/** What a grammar must be able to do here. */
export interface TokenGrammar {
  allows(token: number): boolean
  /** Sets the logit of every token it does not allow to -Infinity. */
  mask(logits: Float32Array): void
}

/** What the randomness of a draw is a function of. */
interface Drawn { readonly seed: number; readonly choice: number; readonly position: number }

/** Keeps its working memory from one token to the next, and nothing else. */
export class Sampler {
  #weights = new Float64Array(0)

  /** Null: the grammar allows no token at all. Masks `logits` in place where the grammar says no. */
  sample(
    logits: Float32Array, sampling: Sampling, { seed, choice, position }: Drawn, grammar: TokenGrammar | null,
  ): number | null {
    const first = this.#choose(logits, sampling, randomUnit(seed, choice, position, 0))
    if (grammar === null || (first !== null && grammar.allows(first))) return first
    grammar.mask(logits)
    return this.#choose(logits, sampling, randomUnit(seed, choice, position, 1))
  }

  #choose(logits: Float32Array, sampling: Sampling, unit: number): number | null {
    const best = likeliest(logits)
    if (best === null || sampling.temperature === 0) return best
    const { topK, topP } = sampling
    const most = logits[best] ?? 0
    if (topK > 0) {
      const kept = this.#best(logits, most, sampling)
      return draw(topP >= 1 ? kept : head(kept, this.#weights, massOf(kept, this.#weights) * topP), this.#weights, unit)
    }
    const total = this.#weigh(logits, most, sampling)
    if (topP >= 1) return drawAny(this.#weights, unit * total)
    return draw(nucleus(logits, this.#weights, total * topP), this.#weights, unit)
  }

  /** Probability of each token over that of the best, 0 where min_p drops it; their sum. */
  #weigh(logits: Float32Array, most: number, { temperature, minP }: Sampling): number {
    const weights = this.#room(logits.length)
    let total = 0
    for (let token = 0; token < logits.length; token++) {
      const weight = exponential(((logits[token] ?? -Infinity) - most) / temperature)
      const kept = weight >= minP ? weight : 0
      weights[token] = kept
      total += kept
    }
    return total
  }

  /** The `topK` likeliest that min_p leaves, best first; they alone are weighed. */
  #best(logits: Float32Array, most: number, { temperature, minP, topK }: Sampling): readonly number[] {
    const weights = this.#room(logits.length)
    const kept: number[] = []
    for (const token of likeliestOf(logits, most, temperature, topK)) {
      const weight = exponential(((logits[token] ?? -Infinity) - most) / temperature)
      if (!(weight > 0 && weight >= minP)) break
      weights[token] = weight
      kept.push(token)
    }
    return kept
  }

  #room(tokens: number): Float64Array {
    if (this.#weights.length !== tokens) this.#weights = new Float64Array(tokens)
    return this.#weights
  }
}

/** In [0, 1), the same for the same arguments on every machine. */
export function randomUnit(seed: number, choice: number, position: number, round: number): number {
  let hash = mix(seed ^ 0x9e3779b9)
  for (const word of [choice, position, round]) hash = mix(Math.imul(hash, 5) + word + 0x6ed9eba1)
  const high = mix(hash ^ 0x85ebca6b) >>> 5
  const low = mix(hash ^ 0xc2b2ae35) >>> 6
  return (high * 67_108_864 + low) / 9_007_199_254_740_992
}

/** Murmur3's finaliser. */
function mix(word: number): number {
  let hash = word | 0
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) | 0
}

/** Four maxima side by side: the processor need not wait for one before it looks at the next. */
function likeliest(logits: Float32Array): number | null {
  let most = -Infinity
  let second = -Infinity
  let third = -Infinity
  let fourth = -Infinity
  let token = 0
  for (; token + 3 < logits.length; token += 4) {
    const a = logits[token] ?? 0
    const b = logits[token + 1] ?? 0
    const c = logits[token + 2] ?? 0
    const d = logits[token + 3] ?? 0
    if (a > most) most = a
    if (b > second) second = b
    if (c > third) third = c
    if (d > fourth) fourth = d
  }
  for (; token < logits.length; token++) if ((logits[token] ?? 0) > most) most = logits[token] ?? 0
  most = Math.max(most, second, third, fourth)
  return most === -Infinity ? null : logits.indexOf(most)
}

/** Logits below the best, in units of temperature, at which candidates are looked for; each step only if needed. */
const REACHES = [4, 8, 16, 32, 64, Infinity] as const

const byLikelihood = (logits: Float32Array) => (a: number, b: number): number => (logits[b] ?? 0) - (logits[a] ?? 0) || a - b

/** The `count` likeliest tokens, best first. Sorts only as deep as it must. */
function likeliestOf(logits: Float32Array, most: number, temperature: number, count: number): readonly number[] {
  for (const reach of REACHES) {
    const floor = most - reach * temperature
    const found: number[] = []
    for (let token = 0; token < logits.length; token++) if ((logits[token] ?? -Infinity) >= floor) found.push(token)
    if (found.length >= count || reach === Infinity) return found.sort(byLikelihood(logits)).slice(0, count)
  }
  return []
}

/** The likeliest tokens whose mass together reaches `wanted`, best first. Sorts only as deep as it must. */
function nucleus(logits: Float32Array, weights: Float64Array, wanted: number): readonly number[] {
  for (const reach of REACHES) {
    const floor = exponential(-reach)
    const found: number[] = []
    let mass = 0
    for (let token = 0; token < weights.length; token++) {
      const weight = weights[token] ?? 0
      if (weight === 0 || weight < floor) continue
      found.push(token)
      mass += weight
    }
    if (mass >= wanted || reach === Infinity) return head(found.sort(byLikelihood(logits)), weights, wanted)
  }
  return []
}

/** The shortest head of `sorted` with at least so much mass. */
function head(sorted: readonly number[], weights: Float64Array, wanted: number): readonly number[] {
  let mass = 0
  const end = sorted.findIndex((token) => {
    mass += weights[token] ?? 0
    return mass >= wanted
  })
  return end === -1 ? sorted : sorted.slice(0, end + 1)
}

/** One of `tokens` in proportion to its weight. */
function draw(tokens: readonly number[], weights: Float64Array, unit: number): number | null {
  const target = unit * massOf(tokens, weights)
  let mass = 0
  const drawn = tokens.find((token) => {
    mass += weights[token] ?? 0
    return mass > target
  })
  return drawn ?? tokens.at(-1) ?? null
}

/** One of all tokens, in order of id: the one in which the mass passes `target`. */
function drawAny(weights: Float64Array, target: number): number | null {
  let mass = 0
  let last: number | null = null
  for (let token = 0; token < weights.length; token++) {
    const weight = weights[token] ?? 0
    if (weight === 0) continue
    mass += weight
    last = token
    if (mass > target) return token
  }
  return last
}

const massOf = (tokens: readonly number[], weights: Float64Array): number =>
  tokens.reduce((mass, token) => mass + (weights[token] ?? 0), 0)
