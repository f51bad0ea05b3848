/**
 * Writes the golden log of this fact version: the facts of a random world with faults, and a digest of the state that
 * they give. A released golden log is never written again: a later version gets a file of its own beside it.
 *   node dist/scripts/golden-log.js
 */
import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { FACT_VERSION } from '../src/core/fact.ts'
import { World } from '../test/core/world.ts'
import { stateText } from '../test/core/state-text.ts'

const world = new World(2_026, { faults: 0.4, config: { order: 'plas' } })
world.agents(8)
for (let second = 2; second < 40; second += 1) {
  world.run(second * 1_000_000)
  world.disturb()
}
const digest = createHash('sha256').update(stateText(world.core)).digest('hex')
const path = `test/golden/log-v${FACT_VERSION}.jsonl`
writeFileSync(path, [JSON.stringify({ facts: world.log.length, digest }), ...world.log.map((logged) => JSON.stringify(logged))].join('\n') + '\n')
process.stdout.write(`${path}: ${world.log.length} facts, state ${digest}\n`)
