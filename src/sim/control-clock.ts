/**
 * Owns the time that the control plane's machine believes in: it drifts, its wall clock steps, and it sleeps, so that what
 * is due comes late. Monotonic time never goes back, as the port promises; what is due is what this clock says.
 */
import type { Us } from '../core/units.ts'
import type { Clock } from '../driver/ports.ts'
import { PPM } from './chance.ts'
import type { Events } from './events.ts'

/** From the end of one turn to the beginning of the next. */
const TURN_US: Us = 20

export class ControlClock implements Clock {
  #wallSkewUs: Us = 1_700_000_000_000_000
  readonly #events: Events
  readonly #isAlive: () => boolean
  /** Local time was `#localUs` at `#worldUs`. */
  #localUs: Us
  #worldUs: Us
  #driftPpm = 0
  #asleepUntilUs: Us = 0

  constructor(events: Events, isAlive: () => boolean) {
    this.#events = events
    this.#isAlive = isAlive
    this.#worldUs = events.nowUs
    this.#localUs = events.nowUs
  }

  /** The log last said `fromUs`: time goes on from there. */
  begin(fromUs: Us): void {
    this.#localUs = Math.max(fromUs, this.#localUs)
  }

  nowUs(): Us {
    const passedUs = this.#events.nowUs - this.#worldUs
    return this.#localUs + passedUs + Math.floor((passedUs * this.#driftPpm) / PPM)
  }

  wallOffsetUs(): Us {
    return this.#wallSkewUs + this.#events.nowUs - this.nowUs()
  }

  at(atUs: Us, call: () => void): () => void {
    let cancel = (): void => undefined
    const arm = (): void => {
      const leftUs = Math.max(1, atUs - this.nowUs())
      cancel = this.#events.after(leftUs, () => this.receive(() => (this.nowUs() < atUs ? arm() : call())))
    }
    let cancelled = false
    const once = call
    call = () => { if (!cancelled) once() }
    arm()
    return () => {
      cancelled = true
      cancel()
    }
  }

  soon(call: () => void): void {
    this.#events.after(TURN_US, () => this.receive(call))
  }

  /** What reaches this machine is seen when it is awake, and never where it is dead. */
  receive(run: () => void): void {
    if (!this.#isAlive()) return
    if (this.#events.nowUs < this.#asleepUntilUs) this.#events.at(this.#asleepUntilUs, () => this.receive(run))
    else run()
  }

  // ---------------------------------------------------------------- what goes wrong

  drift(ppm: number): void {
    this.#localUs = this.nowUs()
    this.#worldUs = this.#events.nowUs
    this.#driftPpm = ppm
  }

  stepWall(us: Us): void {
    this.#wallSkewUs += us
  }

  sleep(us: Us): void {
    this.#asleepUntilUs = Math.max(this.#asleepUntilUs, this.#events.nowUs + us)
  }
}
