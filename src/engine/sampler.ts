/**
 * Owns the choice of a token from its logits. Greedy at temperature 0; else temperature, then min_p, top_k and top_p.
 * Randomness is a function of the call's seed, the choice and the position, so a resume needs no generator state (E2).
 * Orders are total: of equal logits the lower token id comes first. A grammar is asked about the first candidate only;
 * where it says no, everything it forbids is masked and the token is drawn again with fresh randomness, which together
 * gives each allowed token its share.
 */
import type { Sampling } from '../protocol/chat.ts'

/** What a grammar must be able to do here. */
export interface TokenGrammar {
  allows(token: number): boolean
  /** Sets the logit of every token it does not allow to -Infinity. */
  mask(logits: Float32Array): void
}

/** Keeps its working memory from one token to the next, and nothing else. */
export class Sampler {
  #weights = new Float64Array(0)

  /** Null: the grammar allows no token at all. Masks `logits` in place where the grammar says no. */
  sample(
    logits: Float32Array, sampling: Sampling, seed: number, position: number, grammar: TokenGrammar | null,
  ): number | null {
    const first = this.#choose(logits, sampling, randomUnit(seed, 0, position, 0))
    if (grammar === null || (first !== null && grammar.allows(first))) return first
    grammar.mask(logits)
    return this.#choose(logits, sampling, randomUnit(seed, 0, position, 1))
  }

  #choose(logits: Float32Array, sampling: Sampling, unit: number): number | null {
    const best = likeliest(logits)
    if (best === null || sampling.temperature === 0) return best
    const total = this.#weigh(logits, logits[best] ?? 0, sampling)
    const weights = this.#weights
    if (sampling.topK === 0 && sampling.topP >= 1) return drawAny(weights, unit * total)
    return draw(candidates(logits, weights, total, sampling), weights, unit)
  }

  /** Probability of each token over that of the best, 0 where min_p drops it; their sum. */
  #weigh(logits: Float32Array, most: number, { temperature, minP }: Sampling): number {
    if (this.#weights.length !== logits.length) this.#weights = new Float64Array(logits.length)
    const weights = this.#weights
    let total = 0
    for (let token = 0; token < logits.length; token++) {
      const weight = Math.exp(((logits[token] ?? -Infinity) - most) / temperature)
      const kept = weight >= minP ? weight : 0
      weights[token] = kept
      total += kept
    }
    return total
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

function likeliest(logits: Float32Array): number | null {
  let best: number | null = null
  let most = -Infinity
  for (let token = 0; token < logits.length; token++) {
    const logit = logits[token] ?? -Infinity
    if (logit > most) {
      most = logit
      best = token
    }
  }
  return best
}

/** Logits below the best, in units of temperature, at which candidates are looked for; each step only if needed. */
const REACHES = [4, 8, 16, 32, 64, Infinity] as const

/** The tokens that top_k and then top_p leave, best first. Sorts only as deep as it must. */
function candidates(
  logits: Float32Array, weights: Float64Array, total: number, { topK, topP }: Sampling,
): readonly number[] {
  for (const reach of REACHES) {
    const floor = Math.exp(-reach)
    const found: number[] = []
    let mass = 0
    for (let token = 0; token < weights.length; token++) {
      const weight = weights[token] ?? 0
      if (weight === 0 || weight < floor) continue
      found.push(token)
      mass += weight
    }
    const isEnough = topK === 0 ? mass >= total * topP : found.length >= topK
    if (!isEnough && reach !== Infinity) continue
    found.sort((a, b) => (logits[b] ?? 0) - (logits[a] ?? 0) || a - b)
    if (topK === 0) return head(found, weights, total * topP)
    const kept = found.slice(0, topK)
    return head(kept, weights, massOf(kept, weights) * topP)
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
