import assert from 'node:assert/strict'
import { test } from 'node:test'
import { apply, emptyCore } from '../../src/core/apply.ts'
import type { CoreConfig } from '../../src/core/config.ts'
import { isBarrier, type Logged } from '../../src/core/fact.ts'
import type { Input } from '../../src/core/input.ts'
import { stateText } from './state-text.ts'
import { BLOCKS, LANES, World } from './world.ts'

/** Beside the core of a world, a second one that hears only facts; returns how often the two were compared. */
function follow(world: World): () => number {
  const follower = emptyCore(world.config)
  let heard = 0
  const feed = world.feed.bind(world)
  let followed = 0
  world.feed = (input: Input): Logged[] => {
    const facts = feed(input)
    for (const logged of world.log.slice(heard)) apply(follower, logged)
    heard = world.log.length
    assert.equal(stateText(follower), stateText(world.core), `after ${input.kind}`)
    followed += 1
    return facts
  }
  return () => followed
}

const CONFIGS: readonly Partial<CoreConfig>[] = [{}, { order: 'plas', residency: 'always-offload' }, { order: 'atlas', residency: 'lru-host' }]

test('facts alone, applied one after another, are the live state after every step', () => {
  for (const [index, config] of CONFIGS.entries()) {
    const world = new World(60 + index, { config, engines: index === 1 ? [BLOCKS, LANES] : [LANES], faults: 0.4, tenants: 2 })
    const followed = follow(world)
    world.agents(8)
    for (let second = 2; second < 16; second += 2) {
      world.run(second * 1_000_000)
      world.disturb()
    }
    assert.ok(followed() > 90, `${followed()} steps`)
  }
})

/** Lengths of the log that a crash may leave when the last record decided is `at`: no barrier fact after it is missing. */
function survivors(world: World, at: number): number[] {
  const lengths: number[] = []
  for (let record = at; record >= 0; record -= 1) {
    lengths.push(world.records[record] ?? 0)
    if (world.log.slice(world.records[record - 1] ?? 0, world.records[record]).some(({ fact }) => isBarrier(fact))) break
  }
  return lengths
}

test('a crash may lose any number of the last flow facts: the next reign goes on, nothing commits twice, and in the end all memory is free', () => {
  let lost = 0
  for (let cut = 20; cut < 200; cut += 23) {
    const seed = cut % 3
    const build = (): World => {
      const world = new World(seed, { config: { residency: seed === 0 ? 'always-offload' : 'least-cost' }, engines: [LANES, BLOCKS], faults: 0.2 })
      world.agents(8)
      while (world.records.length < cut && !world.idle) world.run(world.nowUs + 20_000)
      return world
    }
    for (const length of survivors(build(), build().records.length - 1)) {
      const world = build()
      lost += world.log.length - length
      const committed = committedIn(world.log)
      world.crash(length)
      world.heal()
      world.run(world.nowUs + 8_000 * 1_000_000)
      assert.deepEqual(committed.filter((call) => !committedIn(world.log).includes(call)), [], 'what was committed stays so')
      assert.equal(new Set(committedIn(world.log)).size, committedIn(world.log).length, 'nothing commits twice')
      assert.equal(world.core.openCalls + world.core.states.size + world.core.moves.size, 0)
      assert.equal(world.core.host.ownedBytes + world.core.host.reservedBytes, 0)
    }
  }
  assert.ok(lost > 20, `${lost} facts lost`)
})

const committedIn = (log: readonly Logged[]): string[] => log.flatMap(({ fact }) => (fact.kind === 'call.completed' ? [fact.call] : []))
