import assert from 'node:assert/strict'
import { test } from 'node:test'
import { hashOf, mix } from '../../src/sim/chance.ts'
import { digestOf, sampled, Texts, type Piece } from '../../src/sim/content.ts'
import { allFaults, faultsNamed } from '../../src/sim/faults.ts'
import { generatedGraph } from '../../src/sim/graph-plan.ts'
import { generatedPlan } from '../../src/sim/plan.ts'
import { settingsOf } from '../../src/sim/settings.ts'
import { World, type Outcome } from '../../src/sim/world.ts'

const run = (seed: number, steps: number, faults = allFaults()): Promise<Outcome> => new World(settingsOf({ seed, steps, faults })).run()

test('the same seed gives the same run, another seed another', async () => {
  const [first, again, other] = [await run(7, 400), await run(7, 400), await run(8, 400)]
  assert.equal(first.digest, again.digest)
  assert.notEqual(first.digest, other.digest)
})

test('who sleeps in memory and who does not changes no decision', async () => {
  for (const seed of [31, 32, 33]) {
    const settings = settingsOf({ seed, steps: 400 })
    const digests = await Promise.all([0, 2, 512].map(async (programsAwakeMax) => (await new World({ ...settings, core: { ...settings.core, programsAwakeMax } }).run()).digest))
    assert.equal(new Set(digests).size, 1, `seed ${seed}: ${digests.join(' ')}`)
  }
})

test('where nothing goes wrong everybody is served and nothing is left', async () => {
  for (const seed of [1, 2, 3]) {
    const outcome = await run(seed, 500, faultsNamed([]))
    assert.equal(outcome.failure, null, outcome.failure?.what)
    assert.deepEqual(Object.keys(outcome.agents).filter((end) => end !== 'done' && end !== 'gave up: context_too_long'), [])
    assert.ok(outcome.tokensCompared > 500)
  }
})

test('what a fault is named for happens when it alone is on', async () => {
  for (const [fault, fact] of [['engine.crash', 'engine.lost'], ['control.crash', 'reign.begun'], ['image.corrupt', 'kv.move.failed'], ['client.cancel', 'program.cancelled'], ['tool.never', 'interrupt.expired']] as const) {
    let seen = 0
    for (let seed = 1; seen === 0 && seed < 12; seed += 1) {
      const tell = (line: string): void => { if (line.includes(`"kind":"${fact}"`) && (fact !== 'reign.begun' || !line.includes('"reign":1,'))) seen += 1 }
      const settings = settingsOf({ seed, steps: 600, faults: faultsNamed([fault]), residency: 'always-offload' })
      const outcome = await new World(settings, { tell }).run()
      assert.equal(outcome.failure, null, `seed ${seed}, ${fault}: ${outcome.failure?.what ?? ''}`)
      assert.deepEqual(Object.keys(outcome.faultCounts).filter((name) => name !== fault), [])
    }
    assert.ok(seen > 0, `${fault} never led to ${fact}`)
  }
})

/** The plans and the tokens of a run without faults are the same on every machine and every Node: nothing of a policy is in them. */
test('chance and content are what they always were', () => {
  const texts = new Texts()
  const { size } = settingsOf({ seed: 5, steps: 1 })
  const plans = Array.from({ length: 20 }, (_, at) => (at % 4 === 0 ? generatedGraph(5, at, size) : generatedPlan(5, at, size)))
  let digest = 0
  for (const plan of plans) {
    digest = mix(digest, hashOf(plan.number, JSON.stringify(plan)))
    const given: Piece = { kind: 'given', id: plan.number, tokens: 30 }
    digest = mix(digest, sampled(9, 0, digestOf(texts, [plan.prefix, given], [{ origin: 'prefilled', tokens: 20 }, { origin: 'decoded', tokens: 10 }])))
  }
  assert.equal(digest.toString(16), 'f570bdef')
})
