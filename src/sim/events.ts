/**
 * Owns virtual time: what happens next, and when. The order is total: by time, then by the order of the asking. Time is an
 * integer of microseconds and never goes back. Nothing here knows what an event does.
 */
import type { Us } from '../core/units.ts'

interface Event {
  readonly atUs: Us
  readonly seq: number
  /** Null: called off. */
  run: (() => void) | null
}

export class Events {
  nowUs: Us = 1_000_000
  /** Events that happened. */
  count = 0
  /** What just happened waits for no promise, so the next may follow at once. */
  alone = false
  readonly #heap: Event[] = []
  #seq = 0

  /** Happens once, not before `atUs`; returns what calls it off. */
  at(atUs: Us, run: () => void): () => void {
    this.#seq += 1
    const event: Event = { atUs: Math.max(this.nowUs, atUs), seq: this.#seq, run }
    this.#push(event)
    return () => { event.run = null }
  }

  after(waitUs: Us, run: () => void): () => void {
    return this.at(this.nowUs + waitUs, run)
  }

  /** When the next event is due; null where there is none. */
  nextUs(): Us | null {
    for (let head = this.#heap[0]; head !== undefined; head = this.#heap[0]) {
      if (head.run !== null) return head.atUs
      this.#pop()
    }
    return null
  }

  /** Lets the next event happen; false where there is none. */
  step(): boolean {
    if (this.nextUs() === null) return false
    const event = this.#pop()
    if (event?.run == null) return false
    this.nowUs = event.atUs
    this.count += 1
    this.alone = false
    event.run()
    return true
  }

  /** As `step`, and everybody who waited for it has gone on. */
  async happen(): Promise<boolean> {
    if (!this.step()) return false
    if (!this.alone) await settled()
    return true
  }

  #push(event: Event): void {
    const heap = this.#heap
    let at = heap.length
    heap.push(event)
    while (at > 0) {
      const above = (at - 1) >> 1
      const parent = heap[above]
      if (parent === undefined || !isBefore(event, parent)) break
      heap[at] = parent
      at = above
    }
    heap[at] = event
  }

  #pop(): Event | undefined {
    const heap = this.#heap
    const top = heap[0]
    const last = heap.pop()
    if (last === undefined || heap.length === 0) return top
    let at = 0
    for (;;) {
      let below = 2 * at + 1
      const left = heap[below]
      const right = heap[below + 1]
      if (left === undefined) break
      if (right !== undefined && isBefore(right, left)) below += 1
      const child = heap[below]
      if (child === undefined || !isBefore(child, last)) break
      heap[at] = child
      at = below
    }
    heap[at] = last
    return top
  }
}

/** A tick comes when no promise is left to go on, and before anything of the real world. */
export const settled = (): Promise<void> => new Promise((resolve) => { process.nextTick(resolve) })

const isBefore = (a: Event, b: Event): boolean => a.atUs < b.atUs || (a.atUs === b.atUs && a.seq < b.seq)
