/**
 * Owns a link that copies share fairly: of n copies under way each gets an n-th of its speed, so one that begins slows the
 * others and one that ends speeds them up. Whole bytes, whole microseconds, rounded against the copy.
 */
import type { Bytes, Us } from '../core/units.ts'
import type { Events } from './events.ts'

interface Transfer { leftBytes: Bytes; readonly done: () => void }

export class Transfers {
  readonly #events: Events
  readonly #bytesPerUs: number
  #active: Transfer[] = []
  #sinceUs: Us = 0
  #cancel: () => void = () => undefined

  constructor(events: Events, bytesPerUs: number) {
    this.#events = events
    this.#bytesPerUs = bytesPerUs
  }

  begin(bytes: Bytes, done: () => void): void {
    this.#advance()
    this.#active.push({ leftBytes: bytes, done })
    this.#arm()
  }

  /** What is under way never ends. */
  clear(): void {
    this.#active = []
    this.#cancel()
  }

  #advance(): void {
    const share = this.#active.length === 0 ? 0 : Math.floor(((this.#events.nowUs - this.#sinceUs) * this.#bytesPerUs) / this.#active.length)
    this.#sinceUs = this.#events.nowUs
    for (const transfer of this.#active) transfer.leftBytes -= share
  }

  #arm(): void {
    this.#cancel()
    if (this.#active.length === 0) return
    const least = Math.max(0, Math.min(...this.#active.map(({ leftBytes }) => leftBytes)))
    this.#cancel = this.#events.after(Math.max(1, Math.ceil((least * this.#active.length) / this.#bytesPerUs)), () => this.#tick())
  }

  #tick(): void {
    this.#advance()
    const over = this.#active.filter(({ leftBytes }) => leftBytes <= 0)
    this.#active = this.#active.filter(({ leftBytes }) => leftBytes > 0)
    this.#arm()
    for (const { done } of over) done()
  }
}
