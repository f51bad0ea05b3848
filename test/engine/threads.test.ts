import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { Threads } from '../../src/engine/threads.ts'

/** A machine on which work is shared by threads, some of which have to wait for a processor. */
const machine = (processors: number) => ({
  processors,
  /** Processors that others use. */
  busy: 0,
  /** Of one row: more rows take longer. */
  batchNs(threads: number, rows: number): number {
    const isHeldUp = threads > processors - this.busy
    return (1e6 * rows / threads) * (isHeldUp ? 8 : 1)
  },
})
type Machine = ReturnType<typeof machine>

/** Runs so many batches and says how many threads the last had, and how much longer all took than with the best. */
function run(threads: Threads, on: Machine, batches: number, rowsOf: (at: number) => number = () => 1): { count: number; over: number } {
  let [tookNs, bestNs, count] = [0, 0, 0]
  for (let at = 0; at < batches; at++) {
    const rows = rowsOf(at)
    count = threads.count
    const ns = on.batchNs(count, rows)
    threads.took(`decode ${rows}`, ns)
    tookNs += ns
    bestNs += Math.min(...Array.from({ length: on.processors }, (_, one) => on.batchNs(one + 1, rows)))
  }
  return { count, over: tookNs / bestNs }
}

describe('the number of threads', () => {
  test('a free machine has all of them, and trials cost little', () => {
    const { over } = run(new Threads(2, true), machine(2), 4_000)
    assert.ok(over < 1.02, `it took ${over} of the least`)
  })

  test('a busy machine is left with fewer within some batches, and has all again once it is free', () => {
    const [threads, on] = [new Threads(2, true), machine(2)]
    run(threads, on, 1_000)
    on.busy = 1
    const busy = run(threads, on, 1_000)
    assert.equal(busy.count, 1)
    assert.ok(busy.over < 1.2, `it took ${busy.over} of the least`)
    on.busy = 0
    assert.equal(run(threads, on, 2_100).count, 2)
  })

  test('of many threads it finds the number that has processors', () => {
    const [threads, on] = [new Threads(16, true), machine(16)]
    on.busy = 8
    assert.equal(run(threads, on, 3_000).count, 8)
    on.busy = 0
    assert.equal(run(threads, on, 6_000).count, 16)
  })

  test('batches of other shapes are never compared with each other', () => {
    const { over, count } = run(new Threads(2, true), machine(2), 4_000, (at) => [1, 16, 1, 4, 128][at % 5] ?? 1)
    assert.equal(count, 2)
    assert.ok(over < 1.03, `it took ${over} of the least`)
  })

  test('a trial in which nothing can be compared comes to an end', () => {
    const threads = new Threads(2, true)
    let fewer = 0
    for (let at = 0; at < 2_000; at++) {
      if (threads.count < 2) fewer += 1
      threads.took(at < 40 ? 'decode 1' : `prefill ${at}`, 1e6)
    }
    assert.ok(fewer <= 24, `${fewer} batches ran with fewer`)
  })

  test('one is one, and what may not vary does not', () => {
    const on = machine(2)
    on.busy = 1
    assert.equal(run(new Threads(1, true), on, 500).count, 1)
    assert.equal(run(new Threads(2, false), on, 500).count, 2)
  })
})
