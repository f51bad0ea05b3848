/** Owns what is learned of waits: a curve for each tool class, from the waits seen so far and a stated prior. */
export interface WaitCurve {
  /** Waits that ended, by bucket (bucket b holds waits below 2^b milliseconds). */
  readonly counts: number[]
  total: number
  /** Waits that never ended. */
  lost: number
}
