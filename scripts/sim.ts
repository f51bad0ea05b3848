/**
 * `npm run sim -- --seed N --steps M`: one run of the simulator. Prints all that decides it first and a digest last.
 */
import { openSync, readFileSync, writeFileSync, writeSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { ORDER_NAMES, RESIDENCY_NAMES } from '../src/core/config.ts'
import { allFaults, FAULT_NAMES, faultsNamed, type FaultPlan } from '../src/sim/faults.ts'
import { settingsOf, type EngineKind, type Settings } from '../src/sim/settings.ts'
import { scriptOf, settingsOfScript, shrink } from '../src/sim/shrink.ts'
import { World, type Outcome } from '../src/sim/world.ts'

/** At it, what was reached is written. */
const SHRINK_RUNS_MAX = 600
const USAGE = `npm run sim -- [options]

  --seed N          1 by default; the same seed gives the same run, to the digest
  --steps M         turns of the control plane before everything is healed; 2000 by default
  --faults LIST     all (default), none, or names, or first words of names, with commas between:
                    ${FAULT_NAMES.join(' ')}
  --order NAME      ${ORDER_NAMES.join(' | ')}; drawn by default
  --residency NAME  ${RESIDENCY_NAMES.join(' | ')}; drawn by default
  --engines LIST    lanes and paged, with commas between; drawn by default
  --script FILE     plays a script that --shrink wrote; the other options say nothing then
  --shrink FILE     when the run fails: makes it as small as it goes and writes it there
  --log FILE        every fact, command and fault as it comes, a line each
  --json            the outcome as one line of JSON before the digest
  --help            this
`

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seed: { type: 'string', default: '1' }, steps: { type: 'string', default: '2000' }, faults: { type: 'string', default: 'all' },
      order: { type: 'string' }, residency: { type: 'string' }, engines: { type: 'string' }, script: { type: 'string' }, log: { type: 'string' },
      shrink: { type: 'string' }, json: { type: 'boolean', default: false }, help: { type: 'boolean', default: false },
    },
  })
  if (values.help) {
    say(USAGE)
    return 0
  }
  const settings = values.script !== undefined ? settingsOfScript(readFileSync(values.script, 'utf8')) : settingsOf({
    seed: whole('--seed', values.seed), steps: whole('--steps', values.steps), faults: faultPlan(values.faults),
    ...(values.order === undefined ? {} : { order: oneOf('--order', values.order, ORDER_NAMES) }),
    ...(values.residency === undefined ? {} : { residency: oneOf('--residency', values.residency, RESIDENCY_NAMES) }),
    ...(values.engines === undefined ? {} : { engines: values.engines.split(',').map((kind) => oneOf('--engines', kind, ['lanes', 'paged'] as const)) }),
  })
  say(JSON.stringify(settings, null, 2))
  const log = values.log === undefined ? null : openSync(values.log, 'w')
  const outcome = await new World(settings, { tell: log === null ? null : (line) => void writeSync(log, `${line}\n`) }).run((steps) => note(`${steps} steps`))
  report(outcome)
  if (outcome.failure !== null && values.shrink !== undefined) {
    const shrunk = await shrink(settings, outcome, (smaller) => new World(smaller).run(), SHRINK_RUNS_MAX, note)
    writeFileSync(values.shrink, scriptOf(shrunk))
    say(`${values.shrink}: ${shrunk.settings.steps} steps, ${shrunk.settings.faults.only?.length ?? 0} faults, ${shrunk.settings.agents?.length ?? 0} agents, after ${shrunk.plays} runs`)
  }
  if (values.json) say(JSON.stringify({ ...outcome, faults: outcome.faults.length }))
  say(`digest ${outcome.digest}`)
  return outcome.failure === null ? 0 : 1
}

function report(outcome: Outcome): void {
  const { failure, steps, events, facts, virtualUs, tokensCompared, refusals } = outcome
  say(`${steps} steps, ${events} events, ${facts} facts, ${Math.round(virtualUs / 1e6)} s of virtual time; ${tokensCompared} tokens compared, ${refusals} commands of old reigns refused`)
  say(`agents: ${Object.entries(outcome.agents).map(([what, count]) => `${count} ${what}`).join(', ')}`)
  say(`faults: ${Object.entries(outcome.faultCounts).map(([name, count]) => `${name} ${count}`).join(', ') || 'none'}`)
  if (failure !== null) say(`FAILED at step ${failure.step}${failure.invariant > 0 ? `, invariant ${failure.invariant}` : ''}: ${failure.what}`)
}

function faultPlan(wish: string): FaultPlan {
  if (wish === 'all') return allFaults()
  return faultsNamed(wish === 'none' ? [] : wish.split(','))
}

function whole(option: string, text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value) || value < 0) throw new Error(`${option} wants a whole number, and "${text}" is none`)
  return value
}

function oneOf<T extends string>(option: string, text: string, names: readonly T[]): T {
  const found = names.find((name) => name === text)
  if (found === undefined) throw new Error(`${option} wants one of ${names.join(', ')}, and "${text}" is none`)
  return found
}

const say = (text: string): void => { process.stdout.write(`${text}\n`) }
const note = (text: string): void => { process.stderr.write(`${text}\n`) }

try {
  process.exitCode = await main()
} catch (error) {
  note(error instanceof Error ? error.message : String(error))
  process.exitCode = 2
}
