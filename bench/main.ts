/**
 * Owns `npm run bench`: which benches there are, their table, their JSON, and an exit code of 1 where a bar does not
 * hold and 2 where it cannot run. All figures compare arms inside one run; between machines or days they say nothing.
 */
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { defaultConfig } from '../src/config.ts'
import { columns } from '../src/core/explain/explain-text.ts'
import { start } from '../src/main.ts'
import { resolveModel } from '../src/models/resolve.ts'
import { CannotRun, type Bar, type Bench } from './bench.ts'
import { core } from './core.ts'
import { demoMix } from './demo-mix.ts'
import { engineParity } from './engine-parity.ts'
import { interference } from './interference.ts'
import { loadModel } from './load-model.ts'
import { log } from './log.ts'
import { orders } from './orders.ts'
import { preempt } from './preempt.ts'
import { prefix } from './prefix.ts'
import { quantisations } from './quantisations.ts'
import { recovery } from './recovery.ts'
import { resume } from './resume.ts'
import { sim } from './sim.ts'

const BENCHES: readonly Bench[] = [resume, demoMix, core, orders, log, recovery, sim, engineParity, preempt, interference, loadModel, prefix, quantisations]
const USAGE = 'npm run bench -- NAME [--quick] [--only PART] [--json FILE] [--model MODEL], or npm run bench -- list'

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { quick: { type: 'boolean', default: false }, only: { type: 'string' }, json: { type: 'string' }, model: { type: 'string', default: 'default' }, help: { type: 'boolean', default: false } },
  })
  const [name] = positionals
  if (values.help) {
    say(USAGE)
    return 0
  }
  if (name === 'list') {
    say(columns(BENCHES.map((bench) => [bench.name, bench.what]), 'll').join('\n'))
    return 0
  }
  const bench = BENCHES.find((one) => one.name === name)
  if (bench === undefined || positionals.length > 1) {
    note(`${name === undefined ? 'Which bench?' : `There is no bench ${JSON.stringify(positionals.join(' '))}.`} ${USAGE}`)
    return 2
  }
  if (values.only !== undefined && !bench.parts?.includes(values.only)) {
    note(bench.parts === undefined ? `${bench.name} has no parts. ${USAGE}` : `${bench.name} has no part ${JSON.stringify(values.only)}; its parts are ${bench.parts.join(', ')}.`)
    return 2
  }
  const ended = new AbortController()
  process.once('SIGINT', () => ended.abort())
  if (bench.needsModel) await resolveModel({ model: values.model, env: process.env, onProgress: () => {}, signal: ended.signal })
  const result = await bench.run({
    quick: values.quick, only: values.only ?? null, model: values.model, start: (raw) => start(defaultConfig(raw)), say: note, signal: ended.signal,
  })
  const { bars, notMeasured, figures, text } = result
  say(`${text}\n\n${barTable(bars)}\n\nnot measured: ${notMeasured.join('; ')}`)
  if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify({ name: bench.name, commit: commit(), bars, notMeasured, figures }, null, 2)}\n`)
  return bars.every(({ holds }) => holds) ? 0 : 1
}

const barTable = (bars: readonly Bar[]): string => columns([
  ['bar', 'value', '95 %', 'wanted', ''],
  ...bars.map(({ id, value, low, high, unit, want, holds }) =>
    [id, `${figure(value)} ${unit}`, `${figure(low)} to ${figure(high)}`, want, holds ? 'holds' : 'DOES NOT HOLD']),
], 'lrrll').join('\n')

const figure = (value: number): string => (Number.isInteger(value) ? String(value) : value.toFixed(2))

/** With `+` where the tree is not what the commit says. */
function commit(): string {
  const git = (...words: string[]): string => execFileSync('git', words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim()
  try {
    return git('rev-parse', 'HEAD') + (git('status', '--porcelain') === '' ? '' : '+')
  } catch (error) {
    note(`no commit is known: ${error instanceof Error ? error.message : String(error)}`)
    return 'unknown'
  }
}

const say = (text: string): void => { process.stdout.write(`${text}\n`) }
const note = (text: string): void => { process.stderr.write(`${text}\n`) }

try {
  process.exitCode = await main()
} catch (error) {
  if (!(error instanceof CannotRun)) throw error
  note(error.message)
  process.exitCode = 2
}
