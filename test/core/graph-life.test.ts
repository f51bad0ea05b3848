/** Random graphs keep the laws after each step, and in the end nothing is open and all memory is free. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { JoinRule } from '../../src/core/graph/graph-state.ts'
import { restoreSnapshot, takeSnapshot } from '../../src/core/snapshot.ts'
import { GraphLife } from './graph-life.ts'
import { BLOCKS, LANES, World, type WorldOptions } from './world.ts'

function live(seed: number, options: WorldOptions): GraphLife {
  const world = new GraphLife(seed, options)
  world.begin(10)
  for (let second = 2; second < 45; second += 1) {
    world.run(second * 1_000_000)
    world.disturb()
  }
  world.heal()
  world.run(world.nowUs + 16_000 * 1_000_000)
  return world
}

const total = new Map<string, number>()

test('random graphs in a world with faults: the laws hold after each step, and in the end nothing is open and all memory is free', () => {
  for (const [index, engines] of [[LANES], [BLOCKS], [LANES, LANES]].entries()) {
    for (let seed = 1; seed <= 14; seed += 1) {
      const residency = (['least-cost', 'always-offload', 'always-preserve'] as const)[seed % 3] ?? 'least-cost'
      const world = live(index * 100 + seed, { engines, config: { residency }, faults: seed % 2 === 0 ? 0.6 : 0 })
      const { core } = world
      const name = `engines ${index} seed ${seed}`
      assert.equal(core.openCalls, 0, `${name}: a call is open for ever`)
      assert.deepEqual([core.states.size, core.segments.size, core.sharedRecords.size], [0, 0, 0], `${name}: KV is left`)
      assert.equal(core.host.ownedBytes + core.host.reservedBytes, 0, name)
      assert.deepEqual([...core.programs.values()].filter(({ stage }) => stage.kind === 'open'), [], name)
      for (const [kind, count] of world.counts) total.set(kind, (total.get(kind) ?? 0) + count)
    }
  }
})

test('what random graphs are for has happened often', () => {
  for (const kind of ['thread.joined', 'thread.forked', 'thread.cancelled', 'node.failed', 'node.cancelled', 'node.committed', 'program.refused', 'call.refused']) {
    assert.ok((total.get(kind) ?? 0) > 30, `${kind}: ${total.get(kind) ?? 0}`)
  }
})

test('a call of a random graph is ready only after its parents have committed, by the facts alone', () => {
  const world = live(4, { faults: 0.6 })
  const committed = new Set<string>()
  const parents = new Map<string, { from: string[]; join: JoinRule | null }>()
  const nodeOfCall = new Map<string, string>()
  for (const { fact } of world.log) {
    if (fact.kind === 'graph.reported') {
      for (const one of fact.nodes) parents.set(`${fact.program} ${one.node}`, { from: one.parents.map(({ from }) => `${fact.program} ${from}`), join: one.join })
      for (const { node: name, parents: more } of fact.grown) parents.get(`${fact.program} ${name}`)?.from.push(...more.map(({ from }) => `${fact.program} ${from}`))
    }
    if (fact.kind === 'call.arrived' && fact.node !== null) nodeOfCall.set(fact.call, `${fact.program} ${fact.node}`)
    if (fact.kind === 'call.ready') for (const parent of parents.get(nodeOfCall.get(fact.call) ?? '')?.from ?? []) assert.ok(committed.has(parent), `${fact.call} before ${parent}`)
    if (fact.kind === 'node.committed' || fact.kind === 'thread.joined') committed.add(`${fact.program} ${fact.node}`)
    if (fact.kind === 'call.completed' && nodeOfCall.has(fact.call)) committed.add(nodeOfCall.get(fact.call) ?? '')
  }
  assert.ok(committed.size > 20, `${committed.size} nodes have committed`)
})

test('a world of random graphs is rebuilt by its facts alone, by a snapshot of its midst, and by any part of its records', () => {
  const midst = new GraphLife(6, { faults: 0.6 })
  midst.begin(10)
  midst.run(9_000_000)
  assert.ok(midst.core.graphs.size > 5 && midst.core.sharedRecords.size > 0)
  assert.deepEqual(restoreSnapshot(midst.config, takeSnapshot(midst.core)), midst.core)
  const world = live(6, { faults: 0.6 })
  assert.deepEqual(world.replay(), world.core)
  for (const cut of world.records.filter((_, index) => index % 40 === 0)) {
    const again = new World(1)
    again.core = world.replay(world.log.slice(0, cut))
    again.nowUs = world.nowUs
    again.history = null
    again.feed({ kind: 'restart', reign: 100, wallOffsetUs: 0, images: [] })
  }
})
