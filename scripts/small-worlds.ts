/**
 * Explores the small worlds of `test/core/small-worlds.ts` and prints what was found: `npm run small-worlds` as deep as the
 * tests, with `--deep` deeper or whole, `--quick` as the suite for mutants. Exit code 1 where a law is broken.
 */
import { explore } from '../test/core/small-world.ts'
import { smallWorlds } from '../test/core/small-worlds.ts'

const flags = process.argv.slice(2)
const unknown = flags.filter((flag) => !['--deep', '--quick'].includes(flag))
if (unknown.length > 0) {
  console.log('npm run small-worlds [-- --quick | --deep]')
  process.exit(flags.includes('--help') ? 0 : 2)
}

let total = 0
for (const world of smallWorlds(flags.includes('--deep') ? 'deep' : flags.includes('--quick') ? 'quick' : 'usual')) {
  const begunMs = Date.now()
  const { states, steps, leaves, deepest } = explore(world)
  total += states
  console.log(`${world.name}: ${states} states, ${steps} steps, ${leaves} leaves drained, depth ${deepest}, ${Math.round((Date.now() - begunMs) / 1_000)} s`)
}
console.log(`${total} states in all, every law held after every step, every leaf drained`)
