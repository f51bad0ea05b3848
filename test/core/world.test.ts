import assert from 'node:assert/strict'
import { test } from 'node:test'
import { BARE, BLOCKS, LANES, World } from './world.ts'
import { ORDER_NAMES, type CoreConfig } from '../../src/core/config.ts'

const RESIDENCIES: readonly CoreConfig['residency'][] = ['least-cost', 'lru-host', 'always-preserve', 'always-offload', 'always-discard']

function live(seed: number, order: CoreConfig['order'], residency: CoreConfig['residency'], faults: number, engines = [LANES]): World {
  const world = new World(seed, { config: { order, residency }, engines, faults })
  world.agents(14)
  for (let second = 2; second < 60; second += 1) {
    world.run(second * 1_000_000)
    world.disturb()
  }
  world.heal()
  world.run(world.nowUs + 8_000 * 1_000_000)
  return world
}

test('in a random world under every policy the invariants hold after each step, and in the end all memory is free', () => {
  let steps = 0
  for (const order of ORDER_NAMES) {
    for (const residency of RESIDENCIES) {
      for (let seed = 1; seed <= 8; seed += 1) {
        const world = live(seed, order, residency, seed % 2 === 0 ? 0.5 : 0)
        steps += world.steps
        assert.equal(world.core.openCalls, 0, `${order} ${residency} seed ${seed}: a call is open for ever`)
        assert.equal(world.core.states.size, 0, `${order} ${residency} seed ${seed}: KV is left`)
        assert.equal(world.core.segments.size, 0)
        assert.equal(world.core.host.ownedBytes + world.core.host.reservedBytes, 0)
      }
    }
  }
  assert.ok(steps > 20_000, `${steps} steps`)
})

test('engines of blocks and engines that keep their own counsel obey the same laws', () => {
  for (const engines of [[BLOCKS], [BARE], [LANES, LANES], [BLOCKS, BLOCKS]]) {
    for (let seed = 20; seed < 26; seed += 1) {
      const world = live(seed, 'fcfs-program', 'least-cost', 0.4, engines)
      assert.equal(world.core.openCalls, 0, `seed ${seed}`)
      assert.equal(world.core.states.size, 0, `seed ${seed}`)
    }
  }
})

test('the same seed gives the same facts, another seed others', () => {
  assert.equal(live(7, 'plas', 'least-cost', 0.5).digest(), live(7, 'plas', 'least-cost', 0.5).digest())
  assert.notEqual(live(7, 'plas', 'least-cost', 0.5).digest(), live(8, 'plas', 'least-cost', 0.5).digest())
})

test('the log replayed by apply alone is the live state, whatever the policy says today', () => {
  const world = live(3, 'plas', 'least-cost', 0.5)
  assert.deepEqual(world.replay(), world.core)
})

test('losing any number of the last records leaves a state from which a restart goes on with every invariant held', () => {
  const world = live(5, 'fcfs-program', 'least-cost', 0.3)
  for (const cut of world.records.filter((_, index) => index % 7 === 0)) {
    const again = new World(1, { config: { order: 'fcfs-program' } })
    again.history = null
    again.core = world.replay(world.log.slice(0, cut))
    again.nowUs = world.nowUs
    again.feed({ kind: 'restart', reign: 100, wallOffsetUs: 0, images: [] })
  }
})
