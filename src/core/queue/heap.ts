/**
 * Owns an indexed binary heap as plain data: ids, the numbers each is ordered by, and the place of each. Best first, the
 * smallest by the first number in which two differ; no two have the same. Numbers stand side by side in one list, `width`
 * an id, since a record for each would be most of what a waiting call takes in its queue. `push`, `remove` and `replace`
 * look at O(log n) ids; the best k are read in O(k log k), and nothing is popped for it.
 */
export interface Heap<Id extends string> {
  readonly width: number
  readonly ids: Id[]
  readonly numbers: number[]
  readonly places: Map<Id, number>
}

/** The numbers of an id; never equal to another's in one heap. */
export type Key = readonly number[]

export const emptyHeap = <Id extends string>(width: number): Heap<Id> => ({ width, ids: [], numbers: [], places: new Map() })

/** Undefined where nothing has that place; the best has 0. */
export function keyAt(heap: Readonly<Heap<string>>, place: number): Key | undefined {
  return heap.ids[place] === undefined ? undefined : heap.numbers.slice(place * heap.width, (place + 1) * heap.width)
}

export function push<Id extends string>(heap: Heap<Id>, id: Id, key: Key): void {
  heap.ids.push(id)
  rise(heap, id, key, heap.ids.length - 1)
}

/** False where it was not there. */
export function remove<Id extends string>(heap: Heap<Id>, id: Id): boolean {
  const place = heap.places.get(id)
  if (place === undefined) return false
  heap.places.delete(id)
  const key = keyAt(heap, heap.ids.length - 1)
  const last = heap.ids.pop()
  heap.numbers.length = heap.ids.length * heap.width
  if (last !== undefined && key !== undefined && last !== id) settle(heap, last, key, place)
  return true
}

/** An id that is there gets another key. */
export function replace<Id extends string>(heap: Heap<Id>, id: Id, key: Key): void {
  const place = heap.places.get(id)
  if (place !== undefined) settle(heap, id, key, place)
}

/** All ids, best first, lazily; the heap must not change meanwhile. */
export function* bestFirst<Id extends string>(heap: Heap<Id>): Generator<Id, void> {
  const { ids } = heap
  if (ids[0] === undefined) return
  yield ids[0]
  // Places whose parents were given, the best last: the next best is always among them, and they are few.
  const frontier: number[] = []
  const open = (place: number): void => {
    if (place >= ids.length) return
    let low = 0
    let high = frontier.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (isBetter(heap, place, frontier[middle] as number)) low = middle + 1
      else high = middle
    }
    frontier.splice(low, 0, place)
  }
  open(1)
  open(2)
  for (let place = frontier.pop(); place !== undefined; place = frontier.pop()) {
    yield ids[place] as Id
    open(2 * place + 1)
    open(2 * place + 2)
  }
}

/** How many are better than `id`; `most` where so many are, or it is not there. */
export function placeAmongBest<Id extends string>(heap: Heap<Id>, id: Id, most: number): number {
  let better = 0
  for (const other of bestFirst(heap)) {
    if (other === id || better === most) return better
    better += 1
  }
  return most
}

/** Whether what has one place is better than what has another. */
export function isBetter({ numbers, width }: Heap<string>, place: number, than: number): boolean {
  for (let at = 0; at < width; at += 1) {
    const difference = (numbers[place * width + at] as number) - (numbers[than * width + at] as number)
    if (difference !== 0) return difference < 0
  }
  return false
}

/** Negative: the id at this place is better than one with such a key. */
function compare({ numbers, width }: Heap<string>, place: number, key: Key): number {
  for (let at = 0; at < width; at += 1) {
    const difference = (numbers[place * width + at] as number) - (key[at] as number)
    if (difference !== 0) return difference
  }
  return 0
}

/** Puts an id into a place whose own has gone. */
function settle<Id extends string>(heap: Heap<Id>, id: Id, key: Key, place: number): void {
  if (place > 0 && compare(heap, (place - 1) >> 1, key) > 0) rise(heap, id, key, place)
  else sink(heap, id, key, place)
}

function rise<Id extends string>(heap: Heap<Id>, id: Id, key: Key, from: number): void {
  let place = from
  while (place > 0) {
    const above = (place - 1) >> 1
    if (compare(heap, above, key) < 0) break
    move(heap, above, place)
    place = above
  }
  put(heap, id, key, place)
}

function sink<Id extends string>(heap: Heap<Id>, id: Id, key: Key, from: number): void {
  const count = heap.ids.length
  let place = from
  for (;;) {
    let below = 2 * place + 1
    if (below >= count) break
    if (below + 1 < count && isBetter(heap, below + 1, below)) below += 1
    if (compare(heap, below, key) > 0) break
    move(heap, below, place)
    place = below
  }
  put(heap, id, key, place)
}

function move<Id extends string>(heap: Heap<Id>, from: number, to: number): void {
  const id = heap.ids[from] as Id
  heap.ids[to] = id
  for (let at = 0; at < heap.width; at += 1) heap.numbers[to * heap.width + at] = heap.numbers[from * heap.width + at] as number
  heap.places.set(id, to)
}

function put<Id extends string>(heap: Heap<Id>, id: Id, key: Key, place: number): void {
  heap.ids[place] = id
  for (let at = 0; at < heap.width; at += 1) heap.numbers[place * heap.width + at] = key[at] as number
  heap.places.set(id, place)
}
