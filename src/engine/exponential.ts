/**
 * Owns e to the power of what is not above zero, for weights of tokens: a third of the time of `Math.exp`, over a whole
 * vocabulary the larger part of a draw. Made of roundings that IEEE 754 fixes alone (`Math.exp` is whatever the runtime
 * has), so that a draw is the same on every machine and under every version of the runtime (E2).
 *
 *   e^x = 2^(-k / STEPS) * e^r    with k whole and |r| <= ln 2 / (2 * STEPS)
 */
const STEPS_BITS = 8
const STEPS = 1 << STEPS_BITS
const STEPS_PER_UNIT = STEPS * Math.LOG2E
/** ln 2 / STEPS in two parts, the first short enough that `k` times it is exact. */
const STEP = Math.fround(Math.LN2 / STEPS)
const STEP_REST = Math.LN2 / STEPS - STEP

/** Below it the answer is 0; `Math.exp` goes on to -745. */
const LEAST = -700

/** 2^-n for whole n. */
const HALVES = Float64Array.from({ length: 1 + Math.ceil(-LEAST * Math.LOG2E) }, (_, n) => 2 ** -n)
/** 2^(-j / STEPS), from square roots, which are rounded alike everywhere. */
const ROOTS = Float64Array.from({ length: STEPS }, (_, j) => {
  let product = 1
  let root = 0.5
  for (let bit = STEPS_BITS - 1; bit >= 0; bit--) {
    root = Math.sqrt(root)
    if ((j >> bit & 1) === 1) product *= root
  }
  return product
})

/** For x <= 0, within 1e-13 of the true value; NaN for NaN. */
export function exponential(x: number): number {
  if (x < LEAST) return 0
  const k = (0.5 - x * STEPS_PER_UNIT) | 0
  const r = x + k * STEP + k * STEP_REST
  const rest = 1 + r * (1 + r * (1 / 2 + r * (1 / 6 + r * (1 / 24))))
  return rest * (ROOTS[k & (STEPS - 1)] ?? 0) * (HALVES[k >> STEPS_BITS] ?? 0)
}
