import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { CORE_DEFAULTS, ORDER_NAMES, type CoreConfig } from '../../src/core/config.ts'
import type { CallId } from '../../src/core/ids.ts'
import { orderOf } from '../../src/core/policy/orders.ts'
import { levelOf } from '../../src/core/policy/order/levels.ts'
import { must } from '../../src/core/assert.ts'
import { emptyLedger } from '../../src/core/state.ts'
import { E0, only, Quiet, REPORT } from './quiet.ts'
import { BLOCKS, CLAIMS } from './world.ts'

const SECOND_US = 1_000_000
const served = (us: number) => ({ ...REPORT, service: { ...emptyLedger(), useful: { residentUs: us, workUs: us } } })
const levels = { levelQuantumUs: 1_000, levelCount: 12 }
const call = (ownUs: number, promotedAtUs: number | null = null) => ({
  ledger: { ...emptyLedger(), useful: { residentUs: ownUs, workUs: 0 } }, standing: { inherited: null, waitedUs: 0, promotedAtUs },
}) as never

/** One engine that runs one call, or as many as said. */
const world = (order: CoreConfig['order'], config: Partial<CoreConfig> = {}, runningMax = 1): Quiet =>
  new Quiet(1, { engines: [{ ...BLOCKS, runningMax, preempt: false }], config: { order, ...config } })

/** A call of a program that is measured and, where the engine is free, runs. */
function ready(at: Quiet, program: string, thread: string | null = null, parent: string | null = null): CallId {
  const id = at.submit({ claims: { ...CLAIMS, program, thread, parent } })
  at.measure(id)
  return id
}
const stageOf = (at: Quiet, id: CallId): string => must(at.core.calls, id).stage.kind
const levelIn = (at: Quiet, id: CallId): number => must(at.core.calls, id).level
const programOf = (at: Quiet, id: string) => must(at.core.programs, `t/${id}` as never)

test('levels double, and a quantum is used up whole before the next begins', () => {
  assert.deepEqual([0, 999, 1_000, 2_999, 3_000, 6_999, 7_000].map((us) => levelOf(levels, call(us), 0)), [0, 0, 1, 1, 2, 2, 3])
  assert.equal(levelOf(levels, call(1_500), 1_000), 1)
  assert.equal(levelOf(levels, call(2_000), 2_900), 2, 'it entered level 1 with a whole quantum before it')
  assert.equal(levelOf({ ...levels, levelCount: 2 }, call(10 ** 9), 0), 1)
  fc.assert(fc.property(fc.nat(10 ** 9), fc.nat(10 ** 9), fc.nat(10 ** 9), (start, a, b) => {
    const before = levelOf(levels, call(Math.min(a, b)), start)
    assert.ok(before <= levelOf(levels, call(Math.max(a, b)), start), 'service never takes up')
    assert.ok(levelOf(levels, call(a), Math.min(start, b)) <= levelOf(levels, call(a), Math.max(start, b)))
  }))
})

test('a promoted call starts again from the top with what it is served since', () => {
  assert.deepEqual([5_000, 5_999, 6_000, 8_000].map((us) => levelOf(levels, call(us, 5_000), 10 ** 6)), [0, 0, 1, 2])
})

test('mlfq forgets the program, plas sums its ended calls, atlas takes their longest path', () => {
  const level = (order: CoreConfig['order']): number => {
    const at = world(order, {}, 8)
    const calls = ['one', 'two', 'three'].map((thread) => ready(at, 'p', thread))
    for (const id of calls) at.end(id, { finish: 'tool_calls', toolCalls: [{ id: `tool-of-${id}`, name: 'a' }], report: served(SECOND_US) })
    return levelIn(at, ready(at, 'p', 'four'))
  }
  assert.equal(level('mlfq'), 0)
  assert.equal(level('plas'), 2)
  assert.equal(level('atlas'), 1)
})

test('atlas: a chain adds up, and a branch that was there all along does not', () => {
  const at = world('atlas', {}, 8)
  const side = ready(at, 'p', 'side')
  for (let index = 0; index < 3; index += 1) at.end(ready(at, 'p', 'main'), { finish: 'tool_calls', toolCalls: [{ id: `t${index}`, name: 'a' }], report: served(SECOND_US) })
  at.end(side, { finish: 'tool_calls', toolCalls: [{ id: 's', name: 'a' }], report: served(SECOND_US) })
  assert.equal(programOf(at, 'p').standing.past.pathUs, 3 * SECOND_US)
  assert.equal(programOf(at, 'p').standing.past.doneUs, 4 * SECOND_US)
})

test('a call that fails has been served all the same', () => {
  const at = world('plas', { attemptsMax: 1 })
  const id = ready(at, 'p')
  at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call: id, attempt: 1, run: 0, epoch: 1, report: served(SECOND_US) }] })
  at.feed({ kind: 'attemptFailed', engine: E0, reign: 1, call: id, attempt: 1, run: 0, epoch: 1, why: 'broken', retryable: true })
  assert.equal(programOf(at, 'p').standing.past.doneUs, SECOND_US)
  assert.equal(levelIn(at, ready(at, 'p')), 1)
})

test('sub-agents fold to the root: plas sums them in, and the root itself stands where they do', () => {
  const at = world('plas', {}, 8)
  at.end(ready(at, 'root'), { finish: 'tool_calls', toolCalls: [{ id: 'r', name: 'a' }], report: served(SECOND_US) })
  at.end(ready(at, 'child', null, 'root'), { report: served(2 * SECOND_US) })
  assert.equal(programOf(at, 'root').standing.past.doneUs, 3 * SECOND_US)
  assert.equal(programOf(at, 'root').standing.servedUs, 3 * SECOND_US)
  assert.equal(levelIn(at, ready(at, 'other', null, 'root')), 2)
  assert.equal(levelIn(at, ready(at, 'root', 'next')), 2)
})

test('fcfs-program: a sub-agent\'s calls keep the place of its root', () => {
  const at = world('fcfs-program')
  ready(at, 'root')
  ready(at, 'between')
  const id = ready(at, 'child', null, 'root')
  assert.equal(must(at.core.calls, id).tie, programOf(at, 'root').seq)
})

test('the running call\'s own service takes it down, never up', () => {
  const at = world('plas')
  const id = ready(at, 'p')
  const report = (us: number) => at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call: id, attempt: 1, run: 0, epoch: 1, report: served(us) }] })
  assert.equal(only(report(SECOND_US - 1), 'call.demoted').length, 0)
  assert.equal(only(report(SECOND_US), 'call.demoted')[0]?.level, 1)
  assert.equal(only(report(SECOND_US), 'call.demoted').length, 0)
})

// ---------------------------------------------------------------- promotion

/** A program that was served a second, with `count` calls that wait behind a stranger. */
function waitingBehind(count: number, promoteRatio = 3): { at: Quiet; calls: CallId[] } {
  const at = world('plas', { promoteRatio })
  at.end(ready(at, 'p'), { finish: 'tool_calls', toolCalls: [{ id: 'x', name: 'a' }], report: served(SECOND_US) })
  ready(at, 'stranger')
  return { at, calls: Array.from({ length: count }, (_, index) => ready(at, 'p', `thread-${index}`)) }
}

function due(at: Quiet, id: CallId): number {
  const timer = `promote:${id}`
  const atUs = must(at.core.timers, timer)
  at.nowUs = atUs
  at.feed({ kind: 'due', timer })
  return atUs
}

test('a call goes to the top the moment what it waited is promoteRatio times what it was served, and its ledger stays', () => {
  const { at, calls } = waitingBehind(1)
  const [id] = calls as [CallId]
  const sinceUs = at.nowUs
  assert.equal(levelIn(at, id), 1)
  assert.equal(due(at, id), sinceUs + 3 * SECOND_US)
  assert.deepEqual(only(at.log, 'call.promoted'), [{ kind: 'call.promoted', call: id, level: 0, tie: must(at.core.calls, id).tie, waitedUs: 3 * SECOND_US, servedUs: SECOND_US }])
  assert.equal(programOf(at, 'p').standing.servedUs, SECOND_US)
  assert.equal(programOf(at, 'p').standing.past.doneUs, SECOND_US)
})

test('a promoted call keeps the top for a quantum of what it is served since, then goes down from there', () => {
  const { at, calls } = waitingBehind(1)
  const [id] = calls as [CallId]
  due(at, id)
  const [stranger] = [...must(at.core.engines, E0).running]
  at.end(stranger as CallId)
  assert.equal(stageOf(at, id), 'running')
  const report = (us: number) => at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call: id, attempt: 1, run: 0, epoch: 1, report: served(us) }] })
  assert.equal(only(report(SECOND_US - 1), 'call.demoted').length, 0)
  assert.equal(only(report(SECOND_US), 'call.demoted')[0]?.level, 1)
})

test('every sibling crosses with it, and one that comes later is promoted at once', () => {
  const { at, calls } = waitingBehind(3)
  for (const id of calls) due(at, id)
  assert.deepEqual(calls.map((id) => levelIn(at, id)), [0, 0, 0])
  const late = ready(at, 'p', 'late')
  assert.equal(levelIn(at, late), 0)
  assert.equal(at.core.timers.has(`promote:${late}`), false)
})

test('a program\'s waiting is the union of its calls\' waits: three that wait together wait once', () => {
  const { at, calls } = waitingBehind(3)
  at.nowUs += SECOND_US
  for (const id of calls) at.feed({ kind: 'hangUp', call: id })
  assert.equal(programOf(at, 'p').standing.waitedUs, SECOND_US)
  assert.equal(programOf(at, 'p').standing.waiting, 0)
  assert.deepEqual([...at.core.timers.keys()].filter((timer) => timer.startsWith('promote:')), [], 'and no timer is left')
})

test('service that the program receives meanwhile moves the crossing further away', () => {
  const at = world('plas', { promoteRatio: 3 }, 2)
  at.end(ready(at, 'p'), { finish: 'tool_calls', toolCalls: [{ id: 'x', name: 'a' }], report: served(SECOND_US) })
  ready(at, 'stranger')
  const runs = ready(at, 'p', 'runs')
  const waits = ready(at, 'p', 'waits')
  assert.deepEqual([stageOf(at, runs), stageOf(at, waits)], ['running', 'ready'])
  const sinceUs = at.nowUs
  at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call: runs, attempt: 1, run: 0, epoch: 1, report: served(SECOND_US) }] })
  due(at, waits)
  assert.equal(levelIn(at, waits), 1)
  assert.equal(due(at, waits), sinceUs + 6 * SECOND_US)
  assert.equal(levelIn(at, waits), 0)
})

test('under mlfq only the call\'s own waiting and service count', () => {
  const at = world('mlfq', { promoteRatio: 3 })
  at.end(ready(at, 'p'), { finish: 'tool_calls', toolCalls: [{ id: 'x', name: 'a' }], report: served(SECOND_US) })
  ready(at, 'stranger')
  const id = ready(at, 'p')
  assert.equal(levelIn(at, id), 0)
  assert.equal(at.core.timers.has(`promote:${id}`), false)
})

test('a sub-agent linked late takes what waits in it along, and the sums come out even', () => {
  const at = world('plas')
  ready(at, 'stranger')
  ready(at, 'root')
  const id = ready(at, 'child')
  at.nowUs += SECOND_US
  at.submit({ claims: { ...CLAIMS, program: 'child', thread: 'again', parent: 'root' } })
  assert.equal(programOf(at, 'child').parent, 't/root')
  assert.deepEqual([programOf(at, 'child').standing.waiting, programOf(at, 'root').standing.waiting], [0, 2])
  at.feed({ kind: 'hangUp', call: id })
  assert.equal(programOf(at, 'root').standing.waiting, 1)
})

test('every name is an order of that name, and observing is always first come, first served', () => {
  for (const order of ORDER_NAMES) {
    assert.equal(orderOf({ config: { ...CORE_DEFAULTS, order } } as never).name, order)
    assert.equal(orderOf({ config: { ...CORE_DEFAULTS, order, mode: 'observe' } } as never).name, 'fcfs')
  }
})
