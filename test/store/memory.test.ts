import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { bodyId, tenantId } from '../../src/core/ids.ts'
import { MemoryDisk, memoryStore } from '../../src/store/memory.ts'
import type { SnapshotFiles } from '../../src/store/snapshot-files.ts'
import type { StoreError } from '../../src/store/store-error.ts'
import { FLOW_COMMIT_MS } from '../../src/store/write-behind.ts'
import { flipped, pause, storeContract } from './contract.ts'
import { logged } from './facts.ts'
import { nextAfter, snapshotOf } from './made-up-snapshot.ts'

storeContract('memory', () => {
  const disk = new MemoryDisk()
  return {
    open: (given) => memoryStore({ disk, nextSnapshot: nextAfter(snapshotOf), ...given }),
    writeImage: () => undefined,
    digestOf: (content) => content,
    damageSnapshot: (seq) => void disk.snapshotFiles.write(seq, [flipped(disk.snapshotFiles.read(seq) ?? new Uint8Array())]),
    remove: () => undefined,
  }
})

/** Time that moves when told to. */
function handClock() {
  let nowMs = 0
  let waiting: { readonly atMs: number; readonly call: () => void }[] = []
  return {
    schedule: {
      soon: (call: () => void) => { waiting.push({ atMs: nowMs, call }) },
      after: (waitMs: number, call: () => void) => {
        const one = { atMs: nowMs + waitMs, call }
        waiting.push(one)
        return () => { waiting = waiting.filter((other) => other !== one) }
      },
    },
    advance(byMs: number) {
      nowMs += byMs
      const due = waiting.filter(({ atMs }) => atMs <= nowMs)
      waiting = waiting.filter(({ atMs }) => atMs > nowMs)
      for (const { call } of due) call()
    },
    get waiting() { return waiting.length },
  }
}

describe('the memory store', () => {
  test('loses at a crash what was not durable, and nothing else', () => {
    const clock = handClock()
    const disk = new MemoryDisk()
    const store = memoryStore({ disk, schedule: clock.schedule })
    store.bodies.put(bodyId('kept'), tenantId('t'), new Uint8Array([1]))
    store.log.append([logged(1)], true, () => undefined)
    clock.advance(0)
    store.bodies.put(bodyId('lost'), tenantId('t'), new Uint8Array([2]))
    let told = 0
    store.log.append([logged(2)], false, () => told++)
    store.log.append([logged(3)], true, () => told++)
    store.crash()
    clock.advance(FLOW_COMMIT_MS)
    assert.equal(told, 0)
    const next = memoryStore({ disk, schedule: clock.schedule })
    assert.deepEqual([...next.log.read()].map(({ seq }) => seq), [1])
    assert.deepEqual([next.bodies.get(bodyId('kept')), next.bodies.get(bodyId('lost'))], [new Uint8Array([1]), null])
  })

  test('asks for its time when something waits, once, and no longer than it must', () => {
    const clock = handClock()
    const store = memoryStore({ schedule: clock.schedule })
    assert.equal(clock.waiting, 0)
    let told = 0
    for (const seq of [1, 2, 3]) store.log.append([logged(seq)], false, () => told++)
    assert.equal(clock.waiting, 1)
    clock.advance(FLOW_COMMIT_MS - 1)
    assert.equal(told, 0)
    clock.advance(1)
    assert.equal(told, 3)
    assert.equal(clock.waiting, 0)
  })

  test('a commit for a barrier ends the wait of the flow facts', () => {
    const clock = handClock()
    const store = memoryStore({ schedule: clock.schedule })
    store.log.append([logged(1)], false, () => undefined)
    store.log.append([logged(2)], true, () => undefined)
    clock.advance(0)
    assert.equal(clock.waiting, 0)
  })

  test('a failed write is told once, nothing after it is written, and no durable is called', () => {
    const clock = handClock()
    const disk = new MemoryDisk()
    const failures: StoreError[] = []
    const store = memoryStore({ disk, schedule: clock.schedule, onFailure: (error) => failures.push(error) })
    let told = 0
    store.log.append([logged(2)], true, () => told++)
    store.log.append([logged(2)], true, () => told++)
    store.log.append([logged(3)], true, () => told++)
    clock.advance(0)
    clock.advance(0)
    assert.equal(told, 0)
    assert.deepEqual(failures.map(({ code }) => code), ['store_failed'])
    store.log.append([logged(4)], true, () => told++)
    clock.advance(0)
    assert.equal(told, 0)
    store.bodies.put('late' as never, 't' as never, Buffer.from('kept'))
    assert.equal(Buffer.from(store.bodies.get('late' as never) ?? []).toString(), 'kept', 'bodies are in memory from then on')
    assert.throws(() => [...store.log.read()], { code: 'store_failed' })
    clock.advance(FLOW_COMMIT_MS)
    assert.equal(failures.length, 1)
    assert.deepEqual(disk.facts(-1, 10), [], 'the whole group is gone, not half of it')
  })

  test('a snapshot that does not read back as it was written is taken away, and the log stays', async () => {
    const disk = new MemoryDisk()
    const files: SnapshotFiles = disk.snapshotFiles
    const write = files.write.bind(files)
    const losses: string[] = []
    const store = memoryStore({ disk, nextSnapshot: nextAfter(snapshotOf), logRetentionUs: 0, onLoss: ({ kind, id, why }) => losses.push(`${kind} ${id}: ${why}`) })
    const live = async (seq: number): Promise<void> => {
      store.log.append([logged(seq)], true, () => undefined)
      store.log.snapshot()
      await pause(5)
    }
    for (const seq of [1, 2]) await live(seq)
    files.write = (seq, pieces) => write(seq, [flipped(Buffer.concat([...pieces]))])
    await live(3)
    await store.close()
    assert.deepEqual([files.seqs(), [...disk.facts(-1, 10)].map(({ seq }) => seq)], [[2, 1], [2, 3]])
    assert.deepEqual([losses, store.snapshots.lost], [['snapshot next: it could not be made: it was written, and then its bytes are not those that were written'], 1])
  })

  test('a snapshot made anew in the place of a damaged one is kept', async () => {
    const disk = new MemoryDisk()
    const store = memoryStore({ disk, nextSnapshot: nextAfter(snapshotOf), logRetentionUs: 0 })
    for (const seq of [1, 2]) {
      store.log.append([logged(seq)], true, () => undefined)
      store.log.snapshot()
      await pause(5)
    }
    await disk.snapshotFiles.write(2, [flipped(Buffer.from(disk.snapshotFiles.read(2) ?? []))])
    store.log.snapshot()
    await store.close()
    assert.deepEqual([[...store.log.snapshots()].map(({ seq }) => seq), store.snapshots.lost], [[2, 1], 1])
  })

  test('a flood is written inside the call that brings it, so that what waits is bounded', () => {
    const clock = handClock()
    const disk = new MemoryDisk()
    const store = memoryStore({ disk, schedule: clock.schedule })
    let told = 0
    for (let seq = 0; seq < 10_000; seq++) store.log.append([logged(seq)], false, () => told++)
    assert.equal(disk.facts(-1, 20_000).length, 10_000)
    assert.equal(told, 0, 'and still nobody is called from inside')
    clock.advance(0)
    assert.equal(told, 10_000)
  })
})
