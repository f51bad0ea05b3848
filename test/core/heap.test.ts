import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { bestFirst, emptyHeap, keyAt, placeAmongBest, push, remove, replace, type Heap } from '../../src/core/queue/heap.ts'

interface Item { readonly id: string; readonly key: readonly [number, number] }
const byKey = (a: Item, b: Item): number => a.key[0] - b.key[0] || a.key[1] - b.key[1]

const operation = fc.record({ what: fc.constantFrom('push', 'remove', 'replace'), id: fc.integer({ min: 0, max: 30 }), key: fc.integer({ min: 0, max: 9 }) })

/** The same operations on a heap and on a list that is sorted each time. */
function both(operations: readonly { what: string; id: number; key: number }[], after: (heap: Heap<string>, sorted: Item[]) => void): void {
  const heap = emptyHeap<string>(2)
  const list = new Map<string, Item>()
  for (const { what, id: number, key } of operations) {
    const item: Item = { id: `i${number}`, key: [key, number] }
    const there = list.has(item.id)
    if (what === 'push' && !there) push(heap, item.id, item.key)
    if (what === 'replace') replace(heap, item.id, item.key)
    if ((what === 'push' && !there) || (what === 'replace' && there)) list.set(item.id, item)
    if (what === 'remove') assert.equal(remove(heap, item.id), list.delete(item.id))
    after(heap, [...list.values()].sort(byKey))
  }
}

test('a heap gives what a sorted list gives, whatever is pushed, removed or given another key', () => {
  fc.assert(fc.property(fc.array(operation, { maxLength: 60 }), (operations) => both(operations, (heap, sorted) => {
    assert.deepEqual([...bestFirst(heap)], sorted.map(({ id }) => id))
    for (const { id, key } of sorted) assert.deepEqual(keyAt(heap, heap.places.get(id) ?? -1), key)
    assert.equal(heap.places.size, sorted.length)
    assert.equal(heap.numbers.length, 2 * sorted.length)
    for (const [place, { id }] of sorted.entries()) {
      assert.equal(placeAmongBest(heap, id, 100), place)
      assert.equal(placeAmongBest(heap, id, 3), Math.min(place, 3))
    }
    assert.equal(placeAmongBest(heap, 'none', 100), 100)
    assert.equal(keyAt(heap, sorted.length), undefined)
  })))
})

test('push, remove and replace read O(log n) keys, and the best k are read without a look at the rest', () => {
  const heap = emptyHeap<string>(2)
  const read = { count: 0 }
  Object.assign(heap, {
    numbers: new Proxy<number[]>([], {
      get: (list, key, receiver): unknown => {
        if (typeof key === 'string' && Number(key) % 2 === 0) read.count += 1
        return Reflect.get(list, key, receiver)
      },
    }),
  })
  const n = 20_000
  // Two children are compared with each other, the better one with what sinks, and its key is moved.
  const most = 5 * Math.log2(n) + 5
  const within = (what: string, max: number, run: () => void): void => {
    read.count = 0
    run()
    assert.ok(read.count <= max, `${what}: ${read.count} keys read, at most ${max}`)
  }
  for (let i = 0; i < n; i += 1) within('push', most, () => push(heap, `i${i}`, [(i * 7_919) % 10_007, i]))
  for (let i = 0; i < n; i += 97) within('replace', most, () => replace(heap, `i${i}`, [(i * 31) % 10_007, i]))
  for (let i = 0; i < n; i += 89) within('remove', most, () => void remove(heap, `i${i}`))
  within('the best 64', 64 * 4 * Math.log2(130), () => {
    const best = bestFirst(heap)
    for (let i = 0; i < 64; i += 1) best.next()
  })
})
