import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { OrderName } from '../../src/core/config.ts'
import type { Logged } from '../../src/core/fact.ts'
import type { CallId } from '../../src/core/ids.ts'
import { emptyLedger } from '../../src/core/state.ts'
import { E0, only, Quiet, REPORT } from './quiet.ts'
import { LANES } from './world.ts'

/** Seconds of service of each call; the next call comes the moment the one before it ends. */
const PROGRAMS: Readonly<Record<string, readonly number[]>> = { A: [4, 3, 1, 1], B: [3, 3, 4], C: [1, 2], D: [4] }
const SECOND_US = 1_000_000
const TICK_US = SECOND_US / 2
const ENGINE = { ...LANES, runningMax: 2, memory: { cells: 16_384, granule: 1_024, sequences: 16 } }

/** The toy of Autellix, Figure 2: all programs at once, an engine that runs two calls; what all calls waited, in seconds. */
function waitedSeconds(order: OrderName, quantumSeconds: number): number {
  const at = new Quiet(1, { engines: [ENGINE], config: { order, preemptionsMax: 9, levelQuantumUs: quantumSeconds * SECOND_US } })
  const open = new Map<CallId, { program: string; index: number; servedUs: number }>()
  let waitedUs = 0
  const arrive = (program: string, index: number, results: string[]): void => {
    const call = at.named(program, results, { maxTokens: 400 })
    open.set(call, { program, index, servedUs: 0 })
    at.measure(call)
  }
  const report = (servedUs: number) => ({ ...REPORT, service: { ...emptyLedger(), useful: { residentUs: servedUs, workUs: servedUs } } })
  const runOf = (call: CallId): number => at.core.calls.get(call)?.preemptions ?? 0
  const pause = (facts: readonly Logged[]): void => {
    for (const { call } of only(facts, 'call.preempted')) {
      pause(at.feed({ kind: 'paused', engine: E0, reign: 1, call, attempt: 1, run: runOf(call), epoch: 1, report: report(open.get(call)?.servedUs ?? 0) }))
    }
  }
  const feed = (run: () => unknown): void => {
    const before = at.log.length
    run()
    pause(at.log.slice(before))
  }
  for (const program of Object.keys(PROGRAMS)) feed(() => arrive(program, 0, []))
  while (open.size > 0) {
    assert.ok(waitedUs < 1_000 * SECOND_US, 'nobody gets on')
    const running = [...open].filter(([call]) => at.core.calls.get(call)?.stage.kind === 'running')
    waitedUs += TICK_US * (open.size - running.length)
    at.nowUs += TICK_US
    for (const [, one] of running) one.servedUs += TICK_US
    const isDone = ([, one]: (typeof running)[number]): boolean => one.servedUs === SECOND_US * (PROGRAMS[one.program]?.[one.index] ?? 0)
    for (const [call, { program, index, servedUs }] of running.filter(isDone)) {
      open.delete(call)
      const more = index + 1 < (PROGRAMS[program]?.length ?? 0)
      const toolCalls = more ? [{ id: `tool-of-${call}`, name: 'next' }] : []
      feed(() => at.end(call, { finish: more ? 'tool_calls' : 'stop', toolCalls, report: report(servedUs) }))
      if (more) feed(() => arrive(program, index + 1, [`tool-of-${call}`]))
    }
    const calls = running.filter((one) => !isDone(one)).map(([call, { servedUs }]) => ({ call, attempt: 1, run: runOf(call), epoch: 1, report: report(servedUs) }))
    feed(() => at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls }))
  }
  return waitedUs / SECOND_US
}

test('the toy of Autellix gives its total waits: fcfs 18, mlfq 18, plas 12', () => {
  // The paper gives no quanta, and with levels that double no one quantum gives both: mlfq waits 18 where every call ends
  // inside its first, from 3.75 s on, and there plas takes a program down too late to win more than one of them.
  assert.equal(waitedSeconds('fcfs', 1), 18)
  assert.equal(waitedSeconds('mlfq', 4), 18)
  assert.equal(waitedSeconds('plas', 2.5), 12)
  for (let quantum = 0.5; quantum <= 8; quantum += 0.5) assert.ok(waitedSeconds('mlfq', quantum) !== 18 || waitedSeconds('plas', quantum) > 12, `${quantum} s`)
})

test('a chain stands under atlas as it does under plas', () => {
  for (const quantum of [0.5, 1, 2.5, 4]) assert.equal(waitedSeconds('atlas', quantum), waitedSeconds('plas', quantum))
})
