/**
 * Many seeds with every fault on; `npm test` plays 500 of 2,000 steps, in as many files as run well side by side. In each
 * run: every fact that became durable is held against the history of the log, over all lives (`invariants/history.ts`),
 * and nobody waits for seconds while what could serve him stands idle; every command is held against what lies on the
 * engine, and every token shown against the undisturbed run's; all laws of the state are checked every tenth turn, and at
 * the end everybody has finished and nothing is left. A law that is broken for less than ten turns and shows in none of
 * the others is found by `npm run test:soak`, which checks every law after every turn, as `npm run sim` does.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FAULT_NAMES } from '../../src/sim/faults.ts'
import { settingsOf } from '../../src/sim/settings.ts'
import { World } from '../../src/sim/world.ts'

const SEEDS_A_FILE = 125
const SEEDS_A_TEST = 25
const STEPS = 2_000
const CHECK_EVERY_TURNS = 10

/** `part`: 0 is seeds 1 to 125, and so on. */
export function seedsHold(part: number): void {
  const came = new Map<string, number>()
  const from = part * SEEDS_A_FILE + 1
  for (let first = from; first < from + SEEDS_A_FILE; first += SEEDS_A_TEST) {
    test(`seeds ${first} to ${first + SEEDS_A_TEST - 1}: ${STEPS} steps of every fault break no invariant, and after healing everything finishes`, async () => {
      for (let seed = first; seed < first + SEEDS_A_TEST; seed += 1) {
        const outcome = await new World({ ...settingsOf({ seed, steps: STEPS }), checkEveryTurns: CHECK_EVERY_TURNS }).run()
        assert.equal(outcome.failure, null, `npm run sim -- --seed ${seed} --steps ${STEPS}: ${outcome.failure?.what ?? ''}`)
        for (const [fault, count] of Object.entries(outcome.faultCounts)) came.set(fault, (came.get(fault) ?? 0) + count)
      }
    })
  }

  test('each fault came, and was survived', () => {
    assert.deepEqual(FAULT_NAMES.filter((fault) => !came.has(fault)), [])
  })
}
