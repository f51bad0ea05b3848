import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { bestFirst, emptyHeap, push, remove, replace, type Compare, type Heap } from '../../src/core/queue/heap.ts'

interface Item { readonly id: string; readonly key: number }
const byKey: Compare<Item> = (a, b) => a.key - b.key || (a.id < b.id ? -1 : 1)

const operation = fc.record({ what: fc.constantFrom('push', 'remove', 'replace'), id: fc.integer({ min: 0, max: 30 }), key: fc.integer({ min: 0, max: 9 }) })

/** The same operations on a heap and on a list that is sorted each time. */
function both(operations: readonly { what: string; id: number; key: number }[], after: (heap: Heap<Item>, sorted: Item[]) => void): void {
  const heap: Heap<Item> = emptyHeap()
  const list = new Map<string, Item>()
  for (const { what, id: number, key } of operations) {
    const item = { id: `i${number}`, key }
    const there = list.has(item.id)
    if (what === 'push' && !there) push(heap, item, byKey)
    if (what === 'replace') replace(heap, item, byKey)
    if ((what === 'push' && !there) || (what === 'replace' && there)) list.set(item.id, item)
    if (what === 'remove') assert.equal(remove(heap, item.id, byKey), list.delete(item.id))
    after(heap, [...list.values()].sort(byKey))
  }
}

test('a heap gives what a sorted list gives, whatever is pushed, removed or given another key', () => {
  fc.assert(fc.property(fc.array(operation, { maxLength: 60 }), (operations) => both(operations, (heap, sorted) => {
    assert.deepEqual([...bestFirst(heap, byKey)], sorted)
    for (const [place, { id }] of heap.entries.entries()) assert.equal(heap.places.get(id), place)
    assert.equal(heap.places.size, sorted.length)
  })))
})

test('push, remove and replace read O(log n) entries, and the best k are read without a look at the rest', () => {
  const compares = { count: 0 }
  const counted: Compare<Item> = (a, b) => {
    compares.count += 1
    return byKey(a, b)
  }
  const heap: Heap<Item> = emptyHeap()
  const n = 20_000
  const most = 2 * Math.log2(n) + 2
  const within = (what: string, max: number, run: () => void): void => {
    compares.count = 0
    run()
    assert.ok(compares.count <= max, `${what}: ${compares.count} compares, at most ${max}`)
  }
  for (let i = 0; i < n; i += 1) within('push', most, () => push(heap, { id: `i${i}`, key: (i * 7_919) % 10_007 }, counted))
  for (let i = 0; i < n; i += 97) within('replace', most, () => replace(heap, { id: `i${i}`, key: (i * 31) % 10_007 }, counted))
  for (let i = 0; i < n; i += 89) within('remove', most, () => void remove(heap, `i${i}`, counted))
  within('the best 64', 64 * 2 * Math.log2(130), () => {
    const best = bestFirst(heap, counted)
    for (let i = 0; i < 64; i += 1) best.next()
  })
})
