/** Owns a heap of things that happen at a time: the earliest first, the earlier put first among equals. */
import type { Us } from '../src/core/units.ts'

interface Entry<T> { readonly atUs: Us; readonly seq: number; readonly what: T }

export class EventHeap<T> {
  readonly #entries: Entry<T>[] = []
  #seq = 0

  put(atUs: Us, what: T): void {
    this.#seq += 1
    const entry = { atUs, seq: this.#seq, what }
    let at = this.#entries.push(entry) - 1
    while (at > 0) {
      const up = (at - 1) >> 1
      if (!before(entry, this.#at(up))) break
      this.#entries[at] = this.#at(up)
      at = up
    }
    this.#entries[at] = entry
  }

  take(): { readonly atUs: Us; readonly what: T } | null {
    const [first] = this.#entries
    const last = this.#entries.pop()
    if (first === undefined || last === undefined) return null
    const { length } = this.#entries
    if (length === 0) return first
    let at = 0
    for (;;) {
      let down = 2 * at + 1
      if (down >= length) break
      if (down + 1 < length && before(this.#at(down + 1), this.#at(down))) down += 1
      if (!before(this.#at(down), last)) break
      this.#entries[at] = this.#at(down)
      at = down
    }
    this.#entries[at] = last
    return first
  }

  #at(index: number): Entry<T> {
    const entry = this.#entries[index]
    if (entry === undefined) throw new RangeError(`the heap has no entry ${index}`)
    return entry
  }
}

const before = <T>(a: Entry<T>, b: Entry<T>): boolean => a.atUs < b.atUs || (a.atUs === b.atUs && a.seq < b.seq)
