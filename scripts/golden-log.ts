/**
 * Writes the golden log of this fact version: the facts of a random world with faults, and a digest of the state that
 * they give; and the same once more in the made-up older version that tests lift. A released golden log is never written again: a later version gets a file of its own beside it.
 *   node dist/scripts/golden-log.js
 */
import { createHash } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { FACT_VERSION } from '../src/core/fact.ts'
import type { Logged } from '../src/core/fact.ts'
import { lower, MADE_UP_VERSION } from '../test/core/made-up-version.ts'
import { World } from '../test/core/world.ts'
import { stateText } from '../test/core/state-text.ts'

const world = new World(2_026, { faults: 0.4, config: { order: 'plas' } })
world.agents(8)
for (let second = 2; second < 40; second += 1) {
  world.run(second * 1_000_000)
  world.disturb()
}
const digest = createHash('sha256').update(stateText(world.core)).digest('hex')
write(`test/golden/log-v${FACT_VERSION}.jsonl`, world.log)
write(`test/golden/made-up-log-v${MADE_UP_VERSION}.jsonl`, world.log.map(lower))

function write(path: string, log: readonly Logged[]): void {
  writeFileSync(path, [JSON.stringify({ facts: log.length, digest }), ...log.map((logged) => JSON.stringify(logged))].join('\n') + '\n')
  process.stdout.write(`${path}: ${log.length} facts, state ${digest}\n`)
}
