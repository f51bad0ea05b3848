/**
 * Runs the tests from the build, the same way on every Node from 20.19: the files are listed by name, because Node 20
 * takes no globs. `npm test -- tidy explain` runs the files whose path holds one of the words; arguments that begin with
 * a dash go to Node. Its last lines are Node's own summary.
 */
import { spawn } from 'node:child_process'
import { relative } from 'node:path'
import { buildFolder, removeStale, testFiles } from './checkout.ts'

/** Test files at once. They start engines of their own, and two cores is the least we promise to run on. */
const FILES_AT_ONCE = 2
/** Half of the young generation: the simulator makes much that lives shortly. */
const YOUNG_MIB = 32
/** A test that takes longer hangs. */
const TEST_MS_MAX = 420_000

const words = process.argv.slice(2).filter((argument) => !argument.startsWith('-'))
const flags = process.argv.slice(2).filter((argument) => argument.startsWith('-'))

for (const stale of removeStale()) console.log(`removed ${stale}: its source is gone`)
const chosen = testFiles().filter((file) => {
  const path = relative(buildFolder, file)
  return words.length === 0 || words.some((word) => path.includes(word))
})
if (chosen.length === 0) {
  console.error(`no test file has ${words.map((word) => `"${word}"`).join(' or ') || '".test.js"'} in its path below ${buildFolder}`)
  process.exit(2)
}

console.log(`${chosen.length} test files on Node ${process.version}`)
const runner = spawn(process.execPath, [
  `--max-semi-space-size=${YOUNG_MIB}`,
  '--test', '--test-reporter=spec', `--test-concurrency=${FILES_AT_ONCE}`, `--test-timeout=${TEST_MS_MAX}`, ...flags, ...chosen,
], { stdio: 'inherit' })
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => runner.kill(signal))
runner.on('exit', (code, signal) => {
  process.exitCode = signal === null ? code ?? 1 : 1
})
