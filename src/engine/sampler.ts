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

/** Null: the grammar allows no token at all. */
export function sampleToken(
  logits: Float32Array, sampling: Sampling, seed: number, position: number, grammar: TokenGrammar | null,
): number | null {
  const first = choose(logits, sampling, randomUnit(seed, 0, position, 0))
  if (grammar === null) return first
  if (first !== null && grammar.allows(first)) return first
  const masked = Float32Array.from(logits)
  grammar.mask(masked)
  return choose(masked, sampling, randomUnit(seed, 0, position, 1))
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

function choose(logits: Float32Array, sampling: Sampling, unit: number): number | null {
  const best = greedy(logits)
  if (best === null || sampling.temperature === 0) return best
  const weights = weightsOf(logits, logits[best] ?? 0, sampling)
  if (sampling.topK === 0 && sampling.topP >= 1) return draw(weights, null, unit)
  return draw(weights, candidates(logits, weights, sampling), unit)
}

function greedy(logits: Float32Array): number | null {
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

/** Probability of each token over that of the best; 0 where min_p drops it. */
function weightsOf(logits: Float32Array, most: number, sampling: Sampling): Float64Array {
  const weights = new Float64Array(logits.length)
  for (let token = 0; token < logits.length; token++) {
    const weight = Math.exp(((logits[token] ?? -Infinity) - most) / sampling.temperature)
    if (weight >= sampling.minP) weights[token] = weight
  }
  return weights
}

/** Logits below the best, in units of temperature, at which candidates are looked for; each step only if needed. */
const REACHES = [4, 8, 16, 32, 64, Infinity] as const

/** The tokens that top_k and top_p leave, best first. Sorts only as deep as it must. */
function candidates(logits: Float32Array, weights: Float64Array, sampling: Sampling): readonly number[] {
  const kMax = sampling.topK === 0 ? logits.length : sampling.topK
  const total = sampling.topK === 0 ? sum(weights) : Infinity
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
    if (reach !== Infinity && found.length < kMax && !(mass >= total * sampling.topP)) continue
    found.sort((a, b) => (logits[b] ?? 0) - (logits[a] ?? 0) || a - b)
    return nucleus(found.slice(0, kMax), weights, sampling.topP, total)
  }
  return []
}

/** The shortest head of `sorted` whose mass reaches top_p of the whole. */
function nucleus(sorted: readonly number[], weights: Float64Array, topP: number, total: number): readonly number[] {
  const whole = total === Infinity ? sorted.reduce((mass, token) => mass + (weights[token] ?? 0), 0) : total
  let mass = 0
  const end = sorted.findIndex((token) => {
    mass += weights[token] ?? 0
    return mass >= whole * topP
  })
  return end === -1 ? sorted : sorted.slice(0, end + 1)
}

/** One of `tokens` (of all, in order of id, where null) in proportion to its weight. */
function draw(weights: Float64Array, tokens: readonly number[] | null, unit: number): number | null {
  const count = tokens === null ? weights.length : tokens.length
  const whole = tokens === null ? sum(weights) : tokens.reduce((mass, token) => mass + (weights[token] ?? 0), 0)
  const target = unit * whole
  let mass = 0
  let last: number | null = null
  for (let at = 0; at < count; at++) {
    const token = tokens === null ? at : tokens[at] ?? 0
    const weight = weights[token] ?? 0
    if (weight === 0) continue
    mass += weight
    last = token
    if (mass > target) return token
  }
  return last
}

function sum(weights: Float64Array): number {
  let mass = 0
  for (const weight of weights) mass += weight
  return mass
}
