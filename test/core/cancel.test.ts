/** Cancel to its last step: nothing starts, what runs stops, waits end with their effects told, and KV goes when it is quiet. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { moveId, type MoveId } from '../../src/core/ids.ts'
import type { Logged } from '../../src/core/fact.ts'
import type { Input } from '../../src/core/input.ts'
import { E0, kinds, only, Quiet } from './quiet.ts'
import { LANES } from './world.ts'

const cancel = (at: Quiet): Logged[] => at.feed({ kind: 'cancelProgram', tenant: at.tenant, program: 'p' })

/** A program whose State is on its way to host. */
function leaving(): { at: Quiet; move: MoveId } {
  const at = new Quiet(1, { config: { residency: 'always-offload' }, engines: [{ ...LANES, memory: { cells: 1_024, granule: 1_024, sequences: 1 } }] })
  at.waiting('p')
  return { at, move: only(at.log, 'kv.offload.begun')[0]?.move ?? moveId('') }
}

/** A program whose State is on its way back, for a call that waits for it. */
function coming(): { at: Quiet; move: MoveId } {
  const { at, move } = leaving()
  at.feed({ kind: 'moveDone', engine: E0, reign: 1, move, bytes: 7_000, digest: 'x', copyUs: 5 })
  const [first] = at.core.calls.keys()
  const next = at.named('p', [`tool-of-${first ?? ''}`])
  at.feed({ kind: 'measured', call: next, promptTokens: 80, matched: { record: first as never, tokens: 69 }, renderingWon: null })
  return { at, move: only(at.log, 'kv.onboard.begun')[0]?.move ?? moveId('') }
}

const quiet = (move: MoveId): Input[] => [
  { kind: 'moveDone', engine: E0, reign: 1, move, bytes: 7_000, digest: 'x', copyUs: 5 },
  { kind: 'moveFailed', engine: E0, reign: 1, move, why: 'x', sourceLost: false },
  { kind: 'moveFailed', engine: E0, reign: 1, move, why: 'x', sourceLost: true },
  { kind: 'engineLost', engine: E0, reign: 1, why: 'gone' },
  { kind: 'restart', reign: 2, wallOffsetUs: 0, images: [] },
]

test('a transfer under way is isolated: what it holds stays accounted until it is quiet, however it ends, and then all is free', () => {
  for (const moving of [leaving, coming]) {
    for (let ending = 0; ending < quiet(moveId('')).length; ending += 1) {
      const { at, move } = moving()
      const engine = at.core.engines.get(E0)
      const held = [engine?.ownedGranules, engine?.reservedGranules, at.core.host.ownedBytes, at.core.host.reservedBytes]
      cancel(at)
      assert.deepEqual([engine?.ownedGranules, engine?.reservedGranules, at.core.host.ownedBytes, at.core.host.reservedBytes], held, moving.name)
      const other = at.named('q')
      at.measure(other)
      assert.equal(at.core.calls.get(other)?.stage.kind, 'ready', 'the memory is nobody else\'s yet')
      const facts = at.feed(quiet(move)[ending] as Input)
      assert.equal([...at.core.states.values()].filter(({ owner }) => owner.kind === 'nobody').length, 0, `${moving.name} ${ending}`)
      assert.equal(at.core.moves.size + at.core.host.ownedBytes + at.core.host.reservedBytes, 0)
      assert.equal(only(facts, 'kv.moved').length, 0, 'nothing is published for nobody')
      if (ending < 3) assert.equal(at.core.calls.get(other)?.stage.kind, 'running', 'and then it is')
    }
  }
})

test('the order of a cancel: the program first, then its calls, its waits, its KV; whoever waited in line is out of it', () => {
  const at = new Quiet(1, { engines: [{ ...LANES, runningMax: 1 }] })
  at.submit({ claims: { ...at.claims('p'), thread: 'waits' } })
  const [waits] = at.core.calls.keys()
  at.measure(waits as never)
  at.endWithTool(waits as never)
  for (const thread of ['runs', 'ready', 'arrived']) {
    const call = at.submit({ claims: { ...at.claims('p'), thread } })
    if (thread !== 'arrived') at.measure(call)
  }
  const facts = cancel(at)
  const order = ['program.cancelled', 'call.cancelled', 'interrupt.cancelled', 'kv.settled']
  const first = order.map((kind) => kinds(facts).indexOf(kind as never))
  assert.deepEqual(first, [...first].sort((a, b) => a - b))
  assert.equal(only(facts, 'call.cancelled').length, 3)
  assert.deepEqual([at.core.openCalls, at.core.states.size, at.core.engines.get(E0)?.ownedGranules, at.core.engines.get(E0)?.running.size], [0, 0, 0, 0])
  const stranger = at.named('q')
  at.measure(stranger)
  assert.equal(at.core.calls.get(stranger)?.stage.kind, 'running')
})

test('a late tool result, a late output and a due timer of a cancelled program make nothing of it', () => {
  const at = new Quiet(1)
  const call = at.waiting('p')
  const running = at.submit({ claims: { ...at.claims('p'), thread: 'other' } })
  at.measure(running)
  const timers = [...at.core.timers.keys()]
  cancel(at)
  at.nowUs += 10_000 * 1_000_000
  const before = at.log.length
  at.named('p', [`tool-of-${call}`])
  at.end(running)
  for (const timer of timers) at.feed({ kind: 'due', timer })
  assert.deepEqual(kinds(at.log.slice(before)).filter((kind) => kind.startsWith('call.')), ['call.refused'])
  assert.equal(at.core.openCalls, 0)
})

test('after a start, a program whose timers were lost with the last flow facts still has an end, and one that waits for a tool needs no second', () => {
  const at = new Quiet(1)
  at.waiting('waits')
  at.feed({ kind: 'declareProgram', tenant: at.tenant, program: 'p', session: null, agent: 'a', priorityClass: 'default', deadlineUs: null, parent: null, steps: null })
  at.core.timers.delete('close:t/p')
  const facts = at.feed({ kind: 'restart', reign: 2, wallOffsetUs: 0, images: [] })
  assert.deepEqual(only(facts, 'timer.set').map(({ timer }) => timer), ['close:t/p'])
  assert.ok(at.core.timers.has(`expire:${[...at.core.interrupts.keys()][0] ?? ''}`))
})
