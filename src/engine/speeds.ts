/**
 * Owns how fast this engine is, as measured while it works: exponential averages, integers, nanoseconds. A decode
 * iteration is fitted as `base + row * rows + cell * cells attended`, from which work is shared among its members.
 */
import type { WireSpeeds } from '../protocol/engine.ts'

/** Weight of a new observation in an average. */
const AVERAGE_WEIGHT = 0.1
/** The same of a copy: they are rare, and the calibration wrote no file. */
const COPY_WEIGHT = 0.3
/** What an observation of a decode keeps of its weight when the next one comes. */
const FIT_DECAY = 0.98
/** How strongly a fit holds to the calibration, in observations. */
const PRIOR_WEIGHT = 0.2
/** Cells are counted in this many, so that the three coefficients are of like size. */
const CELLS_UNIT = 256
/** A prefill of fewer tokens says little about the cost of one. */
const PREFILL_TOKENS_MIN = 16

type Three = readonly [number, number, number]

export interface Calibration {
  readonly prefillNsPerToken: number
  readonly decodeOneNs: number
  /** Time of a decode of `rows` rows. */
  readonly decodeManyNs: number
  readonly rows: number
  readonly copyOutNsPerToken: number
  readonly copyInNsPerToken: number
}

export class Speeds {
  #prefillNs: number
  #copyOutNs: number
  #copyInNs: number
  readonly #decode: DecodeFit

  constructor(calibration: Calibration) {
    this.#prefillNs = calibration.prefillNsPerToken
    this.#copyOutNs = calibration.copyOutNsPerToken
    this.#copyInNs = calibration.copyInNsPerToken
    this.#decode = new DecodeFit(calibration)
  }

  prefilled(tokens: number, tookNs: number): void {
    if (tokens >= PREFILL_TOKENS_MIN) this.#prefillNs = average(this.#prefillNs, tookNs / tokens, AVERAGE_WEIGHT)
  }

  /** `held`: tokens each row attended to. */
  decoded(held: readonly number[], tookNs: number): void {
    this.#decode.observe([1, held.length, cells(held)], tookNs)
  }

  copiedOut(tokens: number, tookNs: number): void {
    if (tokens > 0) this.#copyOutNs = average(this.#copyOutNs, tookNs / tokens, COPY_WEIGHT)
  }

  copiedIn(tokens: number, tookNs: number): void {
    if (tokens > 0) this.#copyInNs = average(this.#copyInNs, tookNs / tokens, COPY_WEIGHT)
  }

  /** Relative cost of each row of a decode: an equal share of the batch, and one by the cells it attends to. */
  weights(held: readonly number[]): readonly number[] {
    const [base, row, cell] = this.#decode.coefficients()
    return held.map((tokens) => 1 + base / held.length + row + (cell * tokens) / CELLS_UNIT)
  }

  snapshot(): WireSpeeds {
    const [base, row, cell] = this.#decode.coefficients()
    return {
      prefillNsPerToken: Math.max(1, Math.round(this.#prefillNs)),
      decodeBaseNs: Math.round(base),
      decodeRowNs: Math.max(1, Math.round(row + cell * this.#decode.meanCells())),
      copyOutNsPerToken: Math.max(1, Math.round(this.#copyOutNs)),
      copyInNsPerToken: Math.max(1, Math.round(this.#copyInNs)),
    }
  }
}

const average = (old: number, seen: number, weight: number): number => old + weight * (seen - old)

const cells = (held: readonly number[]): number => held.reduce((sum, tokens) => sum + tokens, 0) / CELLS_UNIT

/** Least squares with decay over (1, rows, cells); the calibration stands in for what was not seen yet. */
class DecodeFit {
  readonly #prior: Three
  /** Sums of products of the features, row by row, and of feature times time. */
  readonly #products = new Float64Array(9)
  readonly #right = new Float64Array(3)
  #fitted: Three | null = null

  constructor({ decodeOneNs, decodeManyNs, rows }: Calibration) {
    const row = Math.max(0, rows > 1 ? (decodeManyNs - decodeOneNs) / (rows - 1) : decodeOneNs / 2)
    this.#prior = [Math.max(0, decodeOneNs - row), row, 0]
  }

  observe(seen: Three, tookNs: number): void {
    for (let at = 0; at < 9; at++) {
      this.#products[at] = (this.#products[at] ?? 0) * FIT_DECAY + (seen[Math.floor(at / 3)] ?? 0) * (seen[at % 3] ?? 0)
    }
    for (let at = 0; at < 3; at++) this.#right[at] = (this.#right[at] ?? 0) * FIT_DECAY + (seen[at] ?? 0) * tookNs
    this.#fitted = null
  }

  meanCells(): number {
    const rows = this.#products[1] ?? 0
    return rows === 0 ? 0 : (this.#products[2] ?? 0) / rows
  }

  coefficients(): Three {
    this.#fitted ??= this.#fit()
    return this.#fitted
  }

  /** A coefficient below zero is noise: the others are fitted without it. */
  #fit(): Three {
    const active = [true, true, true]
    for (;;) {
      const fitted = solve(this.#equations(active))
      const negative = fitted.findIndex((value) => value < 0)
      if (negative === -1) return fitted
      active[negative] = false
    }
  }

  /** The normal equations with the prior in the diagonal; an inactive coefficient is held at zero. */
  #equations(active: readonly boolean[]): number[][] {
    return [0, 1, 2].map((i) => [0, 1, 2, 3].map((j) => {
      if (active[i] !== true) return i === j ? 1 : 0
      if (j === 3) return (this.#right[i] ?? 0) + PRIOR_WEIGHT * (this.#prior[i] ?? 0)
      if (active[j] !== true) return 0
      return (this.#products[i * 3 + j] ?? 0) + (i === j ? PRIOR_WEIGHT : 0)
    }))
  }
}

/** Gauss on three equations; the prior makes them positive definite, so no pivot is ever zero. */
function solve(equations: number[][]): Three {
  for (let step = 0; step < 3; step++) {
    const head = equations[step]?.[step] ?? 1
    const pivot = (equations[step] ?? []).map((value) => value / head)
    equations = equations.map((row, i) => {
      if (i === step) return pivot
      const factor = row[step] ?? 0
      return row.map((value, j) => value - factor * (pivot[j] ?? 0))
    })
  }
  return [equations[0]?.[3] ?? 0, equations[1]?.[3] ?? 0, equations[2]?.[3] ?? 0]
}
