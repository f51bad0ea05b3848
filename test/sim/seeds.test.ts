/**
 * Many seeds with every fault on: after each turn of the control plane the invariants hold, no client is shown a token
 * that the undisturbed run would not say, and when all was healed everybody has finished and nothing is left. More seeds
 * and longer runs: `npm run test:soak`.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FAULT_NAMES } from '../../src/sim/faults.ts'
import { settingsOf } from '../../src/sim/settings.ts'
import { World } from '../../src/sim/world.ts'

/** As many as fit into about ninety seconds of one core. */
const SEEDS = 80
const SEEDS_A_TEST = 10
const STEPS = 2_000

const came = new Map<string, number>()

for (let first = 1; first <= SEEDS; first += SEEDS_A_TEST) {
  test(`seeds ${first} to ${first + SEEDS_A_TEST - 1}: ${STEPS} steps of every fault break no invariant, and after healing everything finishes`, async () => {
    for (let seed = first; seed < first + SEEDS_A_TEST; seed += 1) {
      const outcome = await new World(settingsOf({ seed, steps: STEPS })).run()
      assert.equal(outcome.failure, null, `npm run sim -- --seed ${seed} --steps ${STEPS}: ${outcome.failure?.what ?? ''}`)
      for (const [fault, count] of Object.entries(outcome.faultCounts)) came.set(fault, (came.get(fault) ?? 0) + count)
    }
  })
}

test('each fault came, and was survived', () => {
  assert.deepEqual(FAULT_NAMES.filter((fault) => !came.has(fault)), [])
})
