import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import type { EngineCommand } from '../../src/driver/ports.ts'
import { settingsOf, type Settings } from '../../src/sim/settings.ts'
import { scriptOf, settingsOfScript, shrink } from '../../src/sim/shrink.ts'
import { World, type Outcome } from '../../src/sim/world.ts'

/** A resumed call forgets the last token that it has shown: it says it again. */
const forgetful = (command: EngineCommand): EngineCommand =>
  (command.kind === 'start' && command.forced.length > 1 ? { ...command, forced: command.forced.slice(0, -1) } : command)

test('a planted bug is found, and shrunk to a short script that fails the same way', async () => {
  const play = (settings: Settings): Promise<Outcome> => new World(settings, { planted: forgetful }).run()
  let settings = settingsOf({ seed: 1, steps: 300 })
  let failed = await play(settings)
  for (let seed = 2; failed.failure === null; seed += 1) failed = await play(settings = settingsOf({ seed, steps: 300 }))
  assert.equal(failed.failure.invariant, 10, failed.failure.what)

  const shrunk = await shrink(settings, failed, play, 60, () => undefined)
  const script = scriptOf(shrunk)
  assert.ok(shrunk.settings.steps < failed.failure.step + 1, `${shrunk.settings.steps} steps`)
  assert.ok((shrunk.settings.faults.only?.length ?? 99) <= failed.faults.length / 2)
  assert.ok((shrunk.settings.agents?.length ?? 99) < failed.agentNumbers.length)

  const again = await play(settingsOfScript(script))
  assert.equal(again.failure?.invariant, 10)
  assert.equal(again.digest, shrunk.outcome.digest)
  const healthy = await new World(settingsOfScript(script)).run()
  assert.equal(healthy.failure, null, healthy.failure?.what)
})

const folder = join(import.meta.dirname, '../../../test/sim/scripts')
for (const name of readdirSync(folder).sort()) {
  test(`the script ${name} does not show again what it showed`, async () => {
    const { failure } = await new World(settingsOfScript(readFileSync(join(folder, name), 'utf8'))).run()
    assert.equal(failure, null, failure?.what)
  })
}
