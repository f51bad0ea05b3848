import assert from 'node:assert/strict'
import { test } from 'node:test'
import { explore } from './small-world.ts'
import { smallWorlds } from './small-worlds.ts'

const level = process.env['SMALL_WORLDS'] === 'quick' ? 'quick' : 'usual'

for (const world of smallWorlds(level)) {
  test(`every interleaving to depth ${world.depth} keeps the laws, and every leaf can be drained: ${world.name}`, (t) => {
    const { states, steps, leaves, deepest } = explore(world)
    t.diagnostic(`${states} states, ${steps} steps, ${leaves} leaves drained, depth ${deepest}`)
    assert.ok(states > 100 && leaves > 0)
  })
}
