/**
 * Owns when an engine that was lost is started again.
 *
 * X1 the pause doubles with every life that ends early, from `pauseMs` to `pauseMsMax`; a life of `steadyMs` starts the
 *    count anew.
 * X2 from `loopAfter` such lives in a row on it is in a crash loop. It is started again all the same, for ever: what ends
 *    it (memory, a disk, the calls of one program) may be gone the next time, and a call that no engine takes is ended by
 *    its own limits.
 */
interface RestartLimits {
  readonly pauseMs: number
  readonly pauseMsMax: number
  readonly steadyMs: number
  readonly loopAfter: number
}

export const RESTART_LIMITS: RestartLimits = { pauseMs: 250, pauseMsMax: 60_000, steadyMs: 60_000, loopAfter: 5 }

export class Restarts {
  readonly #limits: RestartLimits
  #early = 0
  #joinedMs: number | null = null

  constructor(limits: RestartLimits) {
    this.#limits = limits
  }

  /** Lives in a row that ended early. */
  get early(): number { return this.#early }
  get isLoop(): boolean { return this.#early >= this.#limits.loopAfter }

  joined(nowMs: number): void {
    this.#joinedMs = nowMs
  }

  /** How long to wait before the next start. */
  lost(nowMs: number): number {
    const { pauseMs, pauseMsMax, steadyMs } = this.#limits
    const steady = this.#joinedMs !== null && nowMs - this.#joinedMs >= steadyMs
    this.#joinedMs = null
    this.#early = steady ? 1 : this.#early + 1
    return Math.min(pauseMsMax, pauseMs * 2 ** (this.#early - 1))
  }
}
