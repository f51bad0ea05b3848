/** What becomes of the KV of branches that a join needs no more, and of calls that are given up. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { engineId, type CallId } from '../../src/core/ids.ts'
import type { NodeReport } from '../../src/core/input.ts'
import { ANY, GraphWorld, join, kinds, node, only } from './graph-world.ts'

const begun = (): GraphWorld => new GraphWorld(1, { config: { residency: 'always-offload' } }).begin()

/** Two branches: a join of `any` over a new thread and one that goes on with what it has; `more` is declared beside them. */
function twoBranches(...more: readonly NodeReport[]): { at: GraphWorld; wins: CallId; loses: CallId } {
  const at = begun()
  const root = at.done('root', [], 'b')
  const settle = (): void => {
    for (const { id, engine } of [...at.core.moves.values()]) at.feed({ kind: 'moveDone', engine, reign: 1, move: id, bytes: 6_900, digest: 'x', copyUs: 5 })
  }
  settle()
  at.nodes(node('x1'), node('x2', ['root']), ...more, join('j', ANY, ['x1', 'x2']))
  const [wins, loses] = [at.call('x1', [], 'a'), at.call('x2', [], 'b')]
  at.measure(wins)
  at.measure(loses, root, 69)
  settle()
  assert.deepEqual([at.callStage(wins), at.callStage(loses)], ['running', 'running'])
  return { at, wins, loses }
}

test('no copy is begun of the KV of a branch that lost: it is released in the turn in which its join fires', () => {
  const { at, wins, loses } = twoBranches()
  const lost = at.stateOf('b')?.id
  const facts = at.end(wins)
  assert.equal(at.callStage(loses), 'cancelled')
  assert.ok(!only(facts, 'kv.offload.begun').some(({ state }) => state === lost))
  assert.deepEqual(only(facts, 'kv.forgotten').map(({ state }) => state), [lost])
})

test('where the thread of a branch that lost is still needed, the residency says where its KV waits', () => {
  const { at, wins, loses } = twoBranches(node('later', [], { thread: 'b' }))
  const facts = at.end(wins)
  assert.equal(at.callStage(loses), 'cancelled')
  const kept = at.stateOf('b')?.id
  assert.equal(only(facts, 'kv.offload.begun').filter(({ state }) => state === kept).length, 1)
})

test('of a call that is given up before it fed anything nothing is copied: its room is free at once', () => {
  const at = begun()
  const call = at.call('a')
  at.measure(call)
  const facts = at.feed({ kind: 'hangUp', call })
  assert.deepEqual(kinds(facts).filter((kind) => kind.startsWith('kv.')), ['kv.discarded'])
  assert.equal(at.core.engines.get(engineId('e0'))?.ownedGranules, 0)
})
