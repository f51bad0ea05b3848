import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Logged } from '../../src/core/fact.ts'
import type { CallId } from '../../src/core/ids.ts'
import type { Input } from '../../src/core/input.ts'
import { candidates, isInWindow } from '../../src/core/queue/queue.ts'
import { openTurn } from '../../src/core/step.ts'
import { Quiet, REPORT, only } from './quiet.ts'
import { LANES, World } from './world.ts'

const measured = (call: CallId): Input => ({ kind: 'measured', call, promptTokens: 60, matched: null, renderingWon: null })

function turnOf(at: Quiet, inputs: readonly Input[]): Logged[] {
  const turn = openTurn(at.core, at.nowUs)
  return at.took([...inputs.flatMap((input) => turn.take(input)), ...turn.end()])
}

test('of inputs of one moment all are known before anybody starts: the better call goes first, whichever was named first', () => {
  const startedFirst = (together: boolean): CallId | undefined => {
    const at = new Quiet(1, { config: { order: 'fcfs' }, engines: [{ ...LANES, runningMax: 1, preempt: false }] })
    const [older, younger] = [at.submit(), at.submit()] as const
    const inputs = [measured(younger), measured(older)]
    const facts = together ? turnOf(at, inputs) : inputs.flatMap((input) => at.feed(input))
    assert.equal(only(facts, 'call.scheduled').length, 1)
    return only(facts, 'call.scheduled')[0]?.call === older ? older : undefined
  }
  assert.equal(startedFirst(true), 'c1')
  assert.equal(startedFirst(false), undefined)
})

test('a call that joins and leaves within a turn leaves nothing behind', () => {
  const at = new Quiet(1)
  const call = at.submit()
  const facts = turnOf(at, [measured(call), { kind: 'hangUp', call }])
  assert.deepEqual(only(facts, 'call.scheduled'), [])
  assert.equal(at.core.openCalls, 0)
})

test('a turn of one input decides what a step does', () => {
  const [one, other] = [new Quiet(1), new Quiet(1)]
  for (const at of [one, other]) at.submit()
  const stepped = one.feed(measured('c1' as CallId))
  assert.deepEqual(turnOf(other, [measured('c1' as CallId)]), stepped)
})

test('a call is in the window just when a look would come to it', () => {
  let inside = 0
  let outside = 0
  for (let seed = 1; seed <= 6; seed += 1) {
    const world = new World(seed, { config: { order: 'plas', dispatchWindow: 2, preemptGainUs: 10 ** 12 }, engines: [{ ...LANES, runningMax: 1 }] })
    world.agents(14)
    for (let second = 1; second < 20; second += 1) {
      world.run(second * 1_000_000)
      for (const queue of world.core.queues.values()) {
        const line = [...candidates(queue)]
        const most = world.core.config.dispatchWindow + 1 + world.core.turns.reservations.size
        for (const [place, id] of line.entries()) {
          const call = world.core.calls.get(id)
          assert.ok(call !== undefined)
          assert.equal(isInWindow(world.core, call), place < most)
          if (place < most) inside += 1
          else outside += 1
        }
      }
    }
  }
  assert.ok(inside > 100 && outside > 100, `${inside} inside, ${outside} outside`)
})

test('a grant that was withheld is given once memory comes free, and is told as withheld once only', () => {
  const at = new Quiet(1, { config: { order: 'fcfs', grantTokens: 32, preemptGainUs: 10 ** 12 }, engines: [{ ...LANES, preempt: false, memory: { cells: 192, granule: 32, sequences: 8 }, contextTokens: 192 }] })
  const [grows, other] = [at.submit({ maxTokens: 100 }), at.submit({ maxTokens: 100 })] as const
  for (const call of [grows, other]) at.measure(call, 60)
  const progress: Input = { kind: 'progress', engine: [...at.core.engines.keys()][0] as never, reign: 1, speeds: null, calls: [{ call: grows, attempt: 1, run: 0, epoch: 1, report: { ...REPORT, tailDecoded: 35, outputTokens: 36 } }] }
  const told = [...at.feed(progress), ...at.feed(progress)]
  assert.deepEqual(only(told, 'grant.withheld').map(({ call }) => call), [grows])
  assert.equal(only(told, 'call.granted').length, 0)
  const freed = at.feed({ kind: 'hangUp', call: other })
  assert.deepEqual(only(freed, 'call.granted').map(({ call }) => call), [grows])
  assert.equal([...at.core.engines.values()][0]?.cramped.size, 0)
})

test('who was kept memory and leaves lets others have it, however far back in line it stands by then', () => {
  const at = new Quiet(1, { config: { order: 'fcfs', grantTokens: 32, dispatchWindow: 0, preemptGainUs: 10 ** 12 }, engines: [{ ...LANES, preempt: false, memory: { cells: 192, granule: 32, sequences: 8 }, contextTokens: 192 }] })
  const [runs, early, soon, large] = [at.submit(), at.submit(), at.submit(), at.submit()] as const
  at.measure(runs, 60)
  at.measure(large, 150)
  at.nowUs += at.config.reserveAfterUs
  at.feed({ kind: 'due', timer: 'dispatch:m' })
  assert.deepEqual(only(at.log, 'call.reserved').map(({ call }) => call), [large])
  for (const call of [early, soon]) at.measure(call, 10)
  assert.equal(at.core.calls.get(early)?.stage.kind, 'ready', 'the free memory is kept for the large one')
  const facts = at.feed({ kind: 'hangUp', call: large })
  assert.deepEqual(only(facts, 'call.scheduled').map(({ call }) => call), [early])
})
