import assert from 'node:assert/strict'
import { test } from 'node:test'
import { allFaults, faultsNamed } from '../../src/sim/faults.ts'
import { settingsOf } from '../../src/sim/settings.ts'
import { World, type Outcome } from '../../src/sim/world.ts'

const run = (seed: number, steps: number, faults = allFaults()): Promise<Outcome> => new World(settingsOf({ seed, steps, faults })).run()

test('the same seed gives the same run, another seed another', async () => {
  const [first, again, other] = [await run(7, 400), await run(7, 400), await run(8, 400)]
  assert.equal(first.digest, again.digest)
  assert.notEqual(first.digest, other.digest)
})

test('where nothing goes wrong everybody is served and nothing is left', async () => {
  for (const seed of [1, 2, 3]) {
    const outcome = await run(seed, 500, faultsNamed([]))
    assert.equal(outcome.failure, null, outcome.failure?.what)
    assert.deepEqual(Object.keys(outcome.agents).filter((end) => end !== 'done' && end !== 'gave up: context_too_long'), [])
    assert.ok(outcome.tokensCompared > 500)
  }
})
