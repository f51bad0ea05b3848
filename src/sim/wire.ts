/**
 * Owns the wire between one life of the control plane and one engine. Commands arrive in their order; what the engine says
 * arrives in order for each subject (a call, a move), but subjects overtake one another. Messages come late, twice, or not
 * at all; a lost one that matters is noticed, as a gap in a stream is, and breaks the connection. What comes late may come
 * when the engine was long declared dead.
 */
import type { Us } from '../core/units.ts'
import { Chance } from './chance.ts'
import type { Events } from './events.ts'
import type { Faults } from './faults.ts'

export class Wire {
  readonly #events: Events
  readonly #faults: Faults
  readonly #name: string
  readonly #chance: Chance
  /** Runs what arrives when its receiver is awake, or never where it is dead. */
  readonly #receive: (run: () => void) => void
  readonly #broken: (why: string) => void
  #commandUs: Us = 0
  readonly #subjectUs = new Map<string, Us>()
  #cutUntilUs: Us = 0
  #drops = false
  /** Subjects in whose stream something is missing: nothing after it is taken. */
  readonly #gaps = new Set<string>()

  constructor(events: Events, faults: Faults, seed: number, name: string, receive: (run: () => void) => void, broken: (why: string) => void) {
    this.#events = events
    this.#faults = faults
    this.#name = name
    this.#chance = new Chance(seed, `wire ${name}`)
    this.#receive = receive
    this.#broken = broken
  }

  /** Nothing passes until then; what is said meanwhile comes afterwards, or is lost. */
  cut(untilUs: Us, drops: boolean): void {
    this.#cutUntilUs = Math.max(this.#cutUntilUs, untilUs)
    this.#drops = drops
  }

  /** A new connection: what the last one lost is settled. */
  renew(): void {
    this.#gaps.clear()
  }

  /** From the control plane to the engine. */
  command(deliver: () => void): void {
    if (this.#isCut() && this.#drops) return
    this.#commandUs = Math.max(this.#commandUs, this.#arrivalUs())
    this.#events.at(this.#commandUs, () => {
      this.#events.alone = true
      deliver()
    })
  }

  /** From the engine to the control plane. `matters`: a report of progress does not. */
  say(subject: string, matters: boolean, deliver: () => void): void {
    const lost = this.#faults.at('message.lost', this.#name) !== null || (this.#isCut() && this.#drops)
    if (lost && matters) {
      this.#gaps.add(subject)
      this.#broken('a message was lost')
    }
    if (lost || this.#gaps.has(subject)) return
    const late = this.#faults.at('message.late', this.#name)
    const before = this.#subjectUs.get(subject) ?? 0
    const atUs = Math.max(before, this.#arrivalUs() + (late?.tail(1_000, 8_000_000) ?? 0))
    if (atUs > this.#events.nowUs) this.#subjectUs.set(subject, atUs)
    if (this.#subjectUs.size > SUBJECTS_MAX) this.#forget()
    this.#events.at(atUs, () => this.#receive(deliver))
    const twice = this.#faults.at('message.duplicate', this.#name)
    if (twice !== null) this.#events.at(atUs + twice.tail(100, 10_000_000), () => this.#receive(deliver))
  }

  #isCut(): boolean {
    return this.#events.nowUs < this.#cutUntilUs
  }

  #arrivalUs(): Us {
    return Math.max(this.#events.nowUs, this.#cutUntilUs) + this.#chance.between(80, 400)
  }

  /** Subjects whose last word has arrived have no order to keep. */
  #forget(): void {
    for (const [subject, atUs] of this.#subjectUs) if (atUs <= this.#events.nowUs) this.#subjectUs.delete(subject)
  }
}

const SUBJECTS_MAX = 1_000
