/**
 * Owns an indexed binary heap as plain data: entries that carry their own key, and the place of each by id. Best first by
 * a total order that the caller gives, always the same for one heap. `push`, `remove` and `replace` read O(log n)
 * entries; the best k are read in O(k log k), and nothing is popped for it.
 */
interface Entry { readonly id: string }

export interface Heap<T extends Entry> {
  readonly entries: T[]
  readonly places: Map<T['id'], number>
}

/** Negative: `a` before `b`; never 0 for two entries of one heap. */
export type Compare<T> = (a: T, b: T) => number

export const emptyHeap = <T extends Entry>(): Heap<T> => ({ entries: [], places: new Map() })

export function push<T extends Entry>(heap: Heap<T>, entry: T, compare: Compare<T>): void {
  heap.entries.push(entry)
  rise(heap, entry, heap.entries.length - 1, compare)
}

/** False where it was not there. */
export function remove<T extends Entry>(heap: Heap<T>, id: T['id'], compare: Compare<T>): boolean {
  const place = heap.places.get(id)
  if (place === undefined) return false
  heap.places.delete(id)
  const last = heap.entries.pop()
  if (last !== undefined && last.id !== id) settle(heap, last, place, compare)
  return true
}

/** The entry of the same id, which is there, gets another key. */
export function replace<T extends Entry>(heap: Heap<T>, entry: T, compare: Compare<T>): void {
  const place = heap.places.get(entry.id)
  if (place !== undefined) settle(heap, entry, place, compare)
}

/** All entries, best first, lazily; the heap must not change meanwhile. */
export function* bestFirst<T extends Entry>(heap: Heap<T>, compare: Compare<T>): Generator<T, void> {
  const { entries } = heap
  if (entries[0] === undefined) return
  yield entries[0]
  // Places whose parents were given, the best last: the next best is always among them, and they are few.
  const frontier: number[] = []
  const open = (place: number): void => {
    const entry = entries[place]
    if (entry === undefined) return
    let low = 0
    let high = frontier.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (compare(entry, entries[frontier[middle] as number] as T) < 0) low = middle + 1
      else high = middle
    }
    frontier.splice(low, 0, place)
  }
  open(1)
  open(2)
  for (let place = frontier.pop(); place !== undefined; place = frontier.pop()) {
    yield entries[place] as T
    open(2 * place + 1)
    open(2 * place + 2)
  }
}

/** How many entries are better than that of `id`; `most` where so many are, or it is not there. */
export function placeAmongBest<T extends Entry>(heap: Heap<T>, id: T['id'], compare: Compare<T>, most: number): number {
  let better = 0
  for (const entry of bestFirst(heap, compare)) {
    if (entry.id === id || better === most) return better
    better += 1
  }
  return most
}

/** Puts an entry into a place whose own has gone. */
function settle<T extends Entry>(heap: Heap<T>, entry: T, place: number, compare: Compare<T>): void {
  const parent = heap.entries[(place - 1) >> 1]
  if (place > 0 && parent !== undefined && compare(entry, parent) < 0) rise(heap, entry, place, compare)
  else sink(heap, entry, place, compare)
}

function rise<T extends Entry>(heap: Heap<T>, entry: T, from: number, compare: Compare<T>): void {
  let place = from
  while (place > 0) {
    const above = (place - 1) >> 1
    const parent = heap.entries[above]
    if (parent === undefined || compare(parent, entry) < 0) break
    put(heap, parent, place)
    place = above
  }
  put(heap, entry, place)
}

function sink<T extends Entry>(heap: Heap<T>, entry: T, from: number, compare: Compare<T>): void {
  let place = from
  for (;;) {
    const left = 2 * place + 1
    let child = heap.entries[left]
    if (child === undefined) break
    const right = heap.entries[left + 1]
    let below = left
    if (right !== undefined && compare(right, child) < 0) {
      child = right
      below = left + 1
    }
    if (compare(entry, child) < 0) break
    put(heap, child, place)
    place = below
  }
  put(heap, entry, place)
}

function put<T extends Entry>(heap: Heap<T>, entry: T, place: number): void {
  heap.entries[place] = entry
  heap.places.set(entry.id, place)
}
