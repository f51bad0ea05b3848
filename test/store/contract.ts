/** What every store keeps to. One suite over all of them: `store.test.ts` and `memory.test.ts` say which. */
import assert from 'node:assert/strict'
import { afterEach, beforeEach, describe, test } from 'node:test'
import { bodyId, moveId, tenantId } from '../../src/core/ids.ts'
import type { Loss } from '../../src/store/bodies.ts'
import type { Store } from '../../src/store/store.ts'
import type { StoreError } from '../../src/store/store-error.ts'
import { FLOW_COMMIT_MS } from '../../src/store/write-behind.ts'
import { logged } from './facts.ts'
import { snapshotOf } from './made-up-snapshot.ts'

export interface Given {
  readonly bodyBytesMax: number
  readonly logRetentionUs: number
  readonly onFailure: (error: StoreError) => void
  readonly onLoss: (loss: Loss) => void
}

/** One place that stores can be opened in, one after the other. */
export interface Place {
  open(given: Given): Store
  /** Writes the image that `keep` is told of; its digest is `digestOf`. */
  writeImage(store: Store, image: string, content: string): void
  digestOf(content: string): string
  /** Changes a bit in the middle of that snapshot. */
  damageSnapshot(seq: number): void
  remove(): void
}

const tenant = tenantId('acme')
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)
const textOf = (found: Uint8Array | null): string | null => (found === null ? null : new TextDecoder().decode(found))

export const pause = (waitMs: number): Promise<void> => new Promise((resolve) => { setTimeout(resolve, waitMs) })
/** The same bytes but for one bit in the middle. */
export function flipped(whole: Uint8Array): Uint8Array {
  const bytes = Uint8Array.from(whole)
  bytes[bytes.length >> 1] = (bytes[bytes.length >> 1] ?? 0) ^ 1
  return bytes
}
const nextTurn = (): Promise<void> => new Promise((resolve) => { setImmediate(resolve) })

export function storeContract(name: string, place: () => Place): void {
  describe(`${name}: the store's contract`, () => {
    let here: Place
    let store: Store
    let losses: Loss[] = []
    let failures: StoreError[] = []
    let retentionUs = Number.MAX_SAFE_INTEGER
    const open = (bodyBytesMax = 1_000_000): Store => here.open({
      bodyBytesMax, logRetentionUs: retentionUs, onFailure: (error) => failures.push(error), onLoss: (loss) => losses.push(loss),
    })
    const reopen = async (bodyBytesMax?: number, logRetentionUs = retentionUs): Promise<Store> => {
      retentionUs = logRetentionUs
      await store.close()
      store = open(bodyBytesMax)
      return store
    }
    beforeEach(() => {
      retentionUs = Number.MAX_SAFE_INTEGER
      losses = []
      failures = []
      here = place()
      store = open()
    })
    afterEach(async () => {
      await store.close()
      here.remove()
      assert.deepEqual(failures, [])
    })
    logTests(() => store, reopen)
    snapshotTests(() => store, reopen, () => here, () => losses)
    durableTests(() => store, reopen)
    bodyTests(() => store, reopen, () => losses)
    imageTests(() => store, reopen, () => here)
  })
}

const append = (store: Store, seqs: readonly number[], barrier: boolean, durable = (): void => undefined): void =>
  store.log.append(seqs.map((seq) => logged(seq)), barrier, durable)

function logTests(store: () => Store, reopen: () => Promise<Store>): void {
  test('facts come back in order, with version and time, after a close', async () => {
    const refused = logged(5, { kind: 'program.refused', tenant, program: 'p', code: 'c', why: 'ä€😀\n"\0' })
    const facts = [logged(1), { ...refused, version: 7 }]
    store().log.append(facts, true, () => undefined)
    await reopen()
    assert.deepEqual([...store().log.read()], facts)
  })

  test('a read sees what was appended before it, and calls no durable from inside', () => {
    let told = 0
    append(store(), [1, 2], false, () => told++)
    append(store(), [3], true, () => told++)
    assert.deepEqual([...store().log.read()].map(({ seq }) => seq), [1, 2, 3])
    assert.equal(told, 0)
  })

  test('a long log is read page by page, whole and in order', async () => {
    for (let seq = 0; seq < 25_000; seq += 500) {
      append(store(), Array.from({ length: 500 }, (_, index) => seq + index), false)
    }
    let next = 0
    for (const { seq } of store().log.read()) assert.equal(seq, next++)
    assert.equal(next, 25_000)
  })

  test('each reign is the next one, over restarts too', async () => {
    assert.equal(store().log.nextReign(), 1)
    assert.equal(store().log.nextReign(), 2)
    await reopen()
    assert.equal(store().log.nextReign(), 3)
  })
}

function snapshotTests(
  store: () => Store, reopen: (bytesMax?: number, logRetentionUs?: number) => Promise<Store>, place: () => Place, losses: () => readonly Loss[],
): void {
  const seqs = (): readonly number[] => [...store().log.snapshots()].map(({ seq }) => seq)
  const first = (): number | undefined => [...store().log.read()][0]?.seq
  /** Ten facts, then a snapshot after the last of them. */
  const live = async (last: number): Promise<void> => {
    append(store(), Array.from({ length: 10 }, (_, index) => last - 9 + index), true)
    store().log.snapshot()
    await reopen()
  }

  test('a snapshot comes back as it was taken, with every character, and the newest first', async () => {
    await live(10)
    await live(20)
    const kept = [...store().log.snapshots()].map(({ texts, ...rest }) => ({ ...rest, texts: [...texts] }))
    assert.deepEqual(kept, [snapshotOf(20), snapshotOf(10)])
    assert.deepEqual([...store().log.read(15)].map(({ seq }) => seq), [16, 17, 18, 19, 20])
  })

  test('what waits in the log is on disk before a snapshot is made of it', async () => {
    append(store(), [1, 2, 3], false)
    let durable = 0
    append(store(), [4], false, () => durable++)
    store().log.snapshot()
    await nextTurn()
    await nextTurn()
    assert.equal(durable, 1)
  })

  test('two snapshots are kept, and a second that is asked for while the first is made is left to the next', async () => {
    for (const last of [10, 20, 30]) await live(last)
    assert.deepEqual(seqs(), [30, 20])
    append(store(), [31], true)
    store().log.snapshot()
    append(store(), [32], true)
    store().log.snapshot()
    await reopen()
    const [newest, fallback] = seqs()
    assert.ok((newest ?? 0) > 30)
    assert.equal(fallback, 30, 'the second would have had the first to fall back on')
  })

  test('a damaged snapshot is told, counted and passed over, and does not count among those kept', async () => {
    for (const last of [10, 20, 30]) await live(last)
    place().damageSnapshot(30)
    assert.deepEqual(seqs(), [20])
    assert.deepEqual(losses().map(({ kind, id }) => [kind, id]), [['snapshot', '30']])
    assert.equal(store().snapshots.lost, 1)
    await live(40)
    assert.deepEqual(seqs(), [40, 20])
  })

  test('facts go when both kept snapshots hold them and they are older than the retention', async () => {
    await reopen(undefined, 0)
    await live(10)
    assert.equal(first(), 1, 'one snapshot could be damaged')
    await live(20)
    await live(30)
    assert.equal(first(), 21)
  })

  test('a log is not trimmed for a snapshot that does not read back: the one before it is what is fallen back on', async () => {
    await reopen(undefined, 0)
    for (const last of [10, 20]) await live(last)
    place().damageSnapshot(20)
    await live(30)
    assert.deepEqual(seqs(), [30, 10])
    assert.equal(first(), 11)
    assert.deepEqual(losses().map(({ kind, id }) => [kind, id]), [['snapshot', '20']])
  })

  test('where nothing has happened since the last one, no snapshot is made and none is lost', async () => {
    await live(10)
    store().log.snapshot()
    await reopen()
    assert.deepEqual([seqs(), losses()], [[10], []])
  })

  test('facts that are not old enough stay, whoever holds them', async () => {
    await reopen(undefined, 25_000)
    for (const last of [10, 20, 30, 40]) await live(last)
    assert.equal(first(), 15, 'fact 15 happened 25 ms before fact 40')
  })
}

function durableTests(store: () => Store, reopen: () => Promise<Store>): void {
  test('a barrier is durable soon, but never inside the append', async () => {
    let isDurable = false
    append(store(), [1], true, () => { isDurable = true })
    assert.equal(isDurable, false)
    await nextTurn()
    await nextTurn()
    assert.equal(isDurable, true)
  })

  test('a flow fact waits for company, at most its time', async () => {
    let isDurable = false
    append(store(), [1], false, () => { isDurable = true })
    await pause(FLOW_COMMIT_MS / 5)
    assert.equal(isDurable, false)
    await pause(FLOW_COMMIT_MS * 3)
    assert.equal(isDurable, true)
  })

  test('a barrier takes the flow facts before it along, and all are told in order', async () => {
    const told: number[] = []
    for (let seq = 1; seq <= 50; seq++) append(store(), [seq], seq === 50, () => told.push(seq))
    await nextTurn()
    await nextTurn()
    assert.deepEqual(told, Array.from({ length: 50 }, (_, index) => index + 1))
  })

  test('what a durable call appends is not lost and comes after', async () => {
    const told: number[] = []
    await new Promise<void>((resolve) => {
      append(store(), [1], true, () => {
        told.push(1)
        append(store(), [2], true, () => {
          told.push(2)
          resolve()
        })
      })
    })
    assert.deepEqual(told, [1, 2])
    assert.deepEqual([...store().log.read()].map(({ seq }) => seq), [1, 2])
  })

  test('a close writes what waits and tells it', async () => {
    let told = 0
    append(store(), [1], false, () => told++)
    append(store(), [2], true, () => told++)
    await reopen()
    assert.equal(told, 2)
    assert.equal([...store().log.read()].length, 2)
  })

  test('a closed store refuses instead of losing', async () => {
    await store().close()
    assert.throws(() => append(store(), [1], true), { code: 'store_closed' })
    await reopen()
    assert.equal([...store().log.read()].length, 0)
  })
}

function bodyTests(
  store: () => Store, reopen: (bytesMax?: number) => Promise<Store>, losses: () => readonly Loss[],
): void {
  const put = (id: string, text: string): void => store().bodies.put(bodyId(id), tenant, bytes(text))
  const get = (id: string): string | null => textOf(store().bodies.get(bodyId(id)))
  const amount = (): readonly number[] => [store().bodies.count, store().bodies.bytes]

  test('a body is there at once and after a restart, and gone when dropped', async () => {
    put('b1', 'hello')
    put('b2', '')
    assert.equal(get('b1'), 'hello')
    await reopen()
    assert.equal(get('b1'), 'hello')
    assert.equal(get('b2'), '')
    store().bodies.drop(bodyId('b1'))
    assert.equal(get('b1'), null)
    await reopen()
    assert.equal(get('b1'), null)
    assert.deepEqual(amount(), [1, 0])
    assert.deepEqual(losses(), [])
  })

  test('a body put again replaces the first, and is counted once', async () => {
    put('b', 'first')
    put('b', 'second')
    assert.equal(get('b'), 'second')
    await pause(FLOW_COMMIT_MS * 3)
    put('b', 'the third')
    assert.equal(get('b'), 'the third')
    await reopen()
    assert.equal(get('b'), 'the third')
    assert.deepEqual(amount(), [1, 9])
  })

  test('a body is a copy: what the caller does to its bytes later changes nothing', () => {
    const mine = bytes('hello')
    store().bodies.put(bodyId('b'), tenant, mine)
    mine.fill(0)
    assert.equal(get('b'), 'hello')
  })

  test('what was never put is null, and dropping it is nothing', () => {
    assert.equal(get('nobody'), null)
    store().bodies.drop(bodyId('nobody'))
    assert.deepEqual(amount(), [0, 0])
  })

  test('at the budget the longest unwritten go first, told and counted', async () => {
    await reopen(10)
    put('a', '1234')
    put('b', '1234')
    put('a', '4321')
    put('c', '1234')
    assert.deepEqual([get('a'), get('b'), get('c')], ['4321', null, '1234'])
    assert.deepEqual(losses().map(({ kind, id }) => [kind, id]), [['body', 'b']])
    assert.deepEqual(amount(), [2, 8])
    await reopen(5)
    assert.deepEqual([get('a'), get('c')], [null, '1234'], 'the order outlives a restart')
  })

  test('a body larger than the whole budget is not kept, and nobody else suffers', async () => {
    await reopen(10)
    put('a', '1234')
    put('big', 'x'.repeat(11))
    assert.deepEqual([get('a'), get('big')], ['1234', null])
    assert.match(losses()[0]?.why ?? '', /11 bytes.*may have 10/)
  })
}

function imageTests(store: () => Store, reopen: () => Promise<Store>, place: () => Place): void {
  const keep = (name: string, content: string): void => {
    place().writeImage(store(), name, content)
    store().images.keep(moveId(name), content.length, place().digestOf(content))
  }

  test('a kept image verifies after a restart, a dropped one does not', async () => {
    keep('m1', 'one')
    keep('m2', 'two!')
    assert.deepEqual([store().images.count, store().images.bytes], [2, 7])
    store().images.drop(moveId('m1'))
    await reopen()
    assert.deepEqual(await store().images.verify(), ['m2'])
    assert.deepEqual([store().images.count, store().images.bytes], [1, 4])
  })

  test('an image that was never kept may be dropped', () => {
    store().images.drop(moveId('m9'))
    assert.equal(store().images.count, 0)
  })

  test('two images never share a path, and there is room to tell', () => {
    assert.notEqual(store().images.path(moveId('m1')), store().images.path(moveId('m2')))
    assert.ok(store().images.freeBytes() > 0)
  })
}
