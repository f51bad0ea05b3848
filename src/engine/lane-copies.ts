/**
 * Owns the copying of what one lane holds into another, and what it takes: measured by each copy, begun from the
 * calibration. No file is in it. A library that once refused is not asked again.
 */
import { LlamaError } from './llama/llama.ts'
import type { Llama } from './llama/llama.ts'
import type { Calibration } from './speeds.ts'

/** Weight of a new copy in the average of what they take. */
const COPY_WEIGHT = 0.3
/** A copy counts for at most so many times the average: a pause of the process is no price, and it would end all copying. */
const SEEN_MOST = 2

export class LaneCopies {
  readonly #llama: Llama
  /** Out of one lane and into another. */
  #nsPerToken: number

  constructor(llama: Llama, calibration: Calibration) {
    this.#llama = llama
    const { copyOutNsPerToken, copyInNsPerToken } = calibration
    this.#nsPerToken = llama.info.copies ? copyOutNsPerToken + copyInNsPerToken : Infinity
  }

  /** Infinite where there are none. */
  costNs(tokens: number): number {
    return tokens * this.#nsPerToken
  }

  /** Overwrites `to`. False: the library refused, and `to` is empty. */
  copy(from: number, to: number, tokens: number): boolean {
    const begunMs = performance.now()
    try {
      this.#llama.copyLane(from, to)
    } catch (error) {
      if (!(error instanceof LlamaError)) throw error
      this.#nsPerToken = Infinity
      return false
    }
    const seenNs = ((performance.now() - begunMs) * 1e6) / tokens
    this.#nsPerToken += COPY_WEIGHT * (Math.min(seenNs, SEEN_MOST * this.#nsPerToken) - this.#nsPerToken)
    return true
  }
}
