/**
 * Nonsense of every kind, at a core in any state it can reach: it is refused by name, ignored with a reason, or does
 * nothing; it never throws and breaks no law, and the world goes on afterwards as if it had not been.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import type { Fact } from '../../src/core/fact.ts'
import { malformed } from '../../src/core/malformed.ts'
import { KINDS, make, plans, type Plan } from './wild.ts'
import { BARE, BLOCKS, LANES, World } from './world.ts'

fc.configureGlobal({ seed: 1, includeErrorInReport: true })

const ENGINES = [[LANES], [BLOCKS], [BARE], [LANES, BLOCKS]]

/** A world that has lived for a while, with faults. */
function reached(seed: number): World {
  const world = new World(seed, { engines: ENGINES[seed % ENGINES.length] ?? [LANES], faults: 0.3, config: { residency: seed % 3 === 0 ? 'always-offload' : 'least-cost' } })
  world.agents(8)
  world.run(2_000_000 + (seed % 7) * 1_500_000)
  return world
}

function suffer(world: World, plan: Plan): void {
  const input = make(world.core, plan)
  for (let count = 0; count <= plan.repeats; count += 1) {
    world.nowUs = Math.max(0, world.nowUs + plan.aheadUs)
    world.feed(input)
  }
  world.nowUs = Math.max(world.nowUs, world.core.nowUs)
}

for (const kind of KINDS) {
  test(`${kind}: nonsense throws nothing and breaks no law`, () => {
    fc.assert(fc.property(fc.nat(10_000), fc.array(plans([kind]), { minLength: 1, maxLength: 8 }), (seed, nonsense) => {
      const world = reached(seed)
      for (const plan of nonsense) suffer(world, plan)
    }), { numRuns: 25 })
  })
}

test('after nonsense of every kind among its own events, everything that can finish does, and all memory is free', () => {
  fc.assert(fc.property(fc.nat(10_000), fc.array(plans(), { minLength: 10, maxLength: 60 }), (seed, nonsense) => {
    const world = reached(seed)
    for (const plan of nonsense) {
      suffer(world, plan)
      world.run(world.nowUs + 50_000)
    }
    world.heal()
    world.restart()
    world.run(world.nowUs + 8_000 * 1_000_000)
    assert.equal(world.core.openCalls, 0, 'a call is open for ever')
    assert.equal(world.core.states.size, 0, 'KV is left')
    assert.equal(world.core.host.ownedBytes + world.core.host.reservedBytes, 0)
  }), { numRuns: 40 })
})

const SAID: ReadonlySet<Fact['kind']> = new Set<Fact['kind']>(['result.ignored', 'call.refused', 'program.refused'])

test('a number that is no amount is refused by its name', () => {
  fc.assert(fc.property(fc.nat(100), plans(['submit', 'declareProgram', 'progress', 'engineJoined', 'restart']), (seed, plan) => {
    const world = reached(seed)
    const input = make(world.core, plan)
    const wrong = malformed(input)
    if (wrong === null) return
    const [first] = world.feed(input)
    assert.ok(first !== undefined && SAID.has(first.fact.kind) && 'why' in first.fact && first.fact.why === wrong, JSON.stringify(first))
  }), { numRuns: 60 })
})
