/**
 * Owns the time account of one attempt: which of its time in the engine went where. Charges are whole microseconds and
 * never decrease (invariant 12). `resident` is wall time of the iterations it was in, `work` its share of them; both
 * are kept apart for tokens fed again because they had been evicted. What is no iteration of its own is waiting.
 */
import type { EngineEvent, WireReport } from '../protocol/engine.ts'

/** What an attempt did in one iteration. */
interface Share {
  readonly kind: 'prefill' | 'decode'
  readonly residentUs: number
  readonly workUs: number
  /** Rows it had in the batch, and how many of them had been fed before and evicted. */
  readonly rows: number
  readonly redoneRows: number
}

type Parts = Extract<EngineEvent, { kind: 'finished' }>['parts']
type Service = Pick<WireReport, 'usefulResidentUs' | 'usefulWorkUs' | 'recomputedResidentUs' | 'recomputedWorkUs'>

export class Account {
  readonly #startedUs: number
  #usefulResidentUs = 0
  #usefulWorkUs = 0
  #recomputedResidentUs = 0
  #recomputedWorkUs = 0
  #prefillUs = 0
  #decodeUs = 0
  #redoneTokens = 0
  #computedTokens = 0
  #reusedTokens = 0
  #restoredTokens = 0

  constructor(startedUs: number) {
    this.#startedUs = startedUs
  }

  charge(share: Share): void {
    const redone = (us: number): number => Math.floor((us * share.redoneRows) / share.rows)
    const redoneUs = redone(share.residentUs)
    this.#recomputedResidentUs += redoneUs
    this.#usefulResidentUs += share.residentUs - redoneUs
    this.#recomputedWorkUs += redone(share.workUs)
    this.#usefulWorkUs += share.workUs - redone(share.workUs)
    if (share.kind === 'prefill') this.#prefillUs += share.residentUs - redoneUs
    else this.#decodeUs += share.residentUs - redoneUs
    this.#redoneTokens += share.redoneRows
    this.#computedTokens += share.rows
  }

  /** So many tokens came out of another lane and went through no batch; so many of them had been fed before and evicted. */
  reused(tokens: number, redone: number): void {
    this.#reusedTokens += tokens
    this.#restoredTokens += redone
  }

  get redoneTokens(): number {
    return this.#redoneTokens
  }

  get computedTokens(): number {
    return this.#computedTokens
  }

  get reusedTokens(): number {
    return this.#reusedTokens
  }

  /** Fed before and evicted, and there again without being fed. */
  get restoredTokens(): number {
    return this.#restoredTokens
  }

  service(): Service {
    return {
      usefulResidentUs: this.#usefulResidentUs,
      usefulWorkUs: this.#usefulWorkUs,
      recomputedResidentUs: this.#recomputedResidentUs,
      recomputedWorkUs: this.#recomputedWorkUs,
    }
  }

  /** Adds up to the time since the start. */
  parts(nowUs: number): Parts {
    const fedUs = this.#usefulResidentUs + this.#recomputedResidentUs
    return {
      waitUs: Math.max(0, nowUs - this.#startedUs - fedUs),
      recomputeUs: this.#recomputedResidentUs,
      prefillUs: this.#prefillUs,
      decodeUs: this.#decodeUs,
    }
  }
}

/** `totalUs` divided in proportion to `weights`: whole numbers that sum to it exactly. */
export function divide(totalUs: number, weights: readonly number[]): readonly number[] {
  const whole = weights.reduce((sum, weight) => sum + weight, 0)
  let before = 0
  let given = 0
  return weights.map((weight, index) => {
    before += weight
    const upTo = index === weights.length - 1 ? totalUs : Math.round((totalUs * before) / whole)
    const share = upTo - given
    given = upTo
    return share
  })
}
