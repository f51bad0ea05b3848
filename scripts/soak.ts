/**
 * `npm run test:soak -- --seeds A --steps B --minutes M`: many seeds, one after another, until all are done or the time is
 * up. Reports seeds a second, the faults that came, by kind, and each seed that failed, with the line that plays it again.
 */
import { parseArgs } from 'node:util'
import { settingsOf } from '../src/sim/settings.ts'
import { World } from '../src/sim/world.ts'

const SAY_EVERY_MS = 20_000
const USAGE = 'npm run test:soak -- [--from 1] [--seeds 10000] [--steps 10000] [--minutes 60]'

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      from: { type: 'string', default: '1' }, seeds: { type: 'string', default: '10000' },
      steps: { type: 'string', default: '10000' }, minutes: { type: 'string', default: '60' }, help: { type: 'boolean', default: false },
    },
  })
  if (values.help) {
    say(USAGE)
    return 0
  }
  const [from, seeds, steps, minutes] = [values.from, values.seeds, values.steps, values.minutes].map(Number)
  if (from === undefined || seeds === undefined || steps === undefined || minutes === undefined || !(from >= 0 && seeds > 0 && steps > 0 && minutes > 0)) {
    note(USAGE)
    return 2
  }
  say(`seeds ${from} to ${from + seeds - 1}, ${steps} steps each with every fault, at most ${minutes} minutes`)
  const sums = new Sums()
  const begunMs = performance.now()
  const spentS = (): number => (performance.now() - begunMs) / 1_000
  let saidMs = begunMs
  for (let seed = from; seed < from + seeds && spentS() < minutes * 60; seed += 1) {
    const outcome = await new World(settingsOf({ seed, steps })).run()
    sums.add(seed, outcome)
    if (outcome.failure !== null) say(`seed ${seed} FAILED at step ${outcome.failure.step}: ${outcome.failure.what.split('\n')[0] ?? ''}\n  npm run sim -- --seed ${seed} --steps ${steps}`)
    if (performance.now() - saidMs >= SAY_EVERY_MS) {
      saidMs = performance.now()
      note(`${sums.seeds} seeds, ${sums.failed.length} failed, ${(sums.seeds / spentS()).toFixed(2)} a second`)
    }
  }
  say(sums.report(spentS()))
  return sums.failed.length === 0 ? 0 : 1
}

class Sums {
  seeds = 0
  readonly failed: number[] = []
  #steps = 0
  #tokens = 0
  #refusals = 0
  readonly #faults = new Map<string, number>()

  add(seed: number, { failure, steps, tokensCompared, refusals, faultCounts }: Awaited<ReturnType<World['run']>>): void {
    this.seeds += 1
    this.#steps += steps
    this.#tokens += tokensCompared
    this.#refusals += refusals
    if (failure !== null) this.failed.push(seed)
    for (const [name, count] of Object.entries(faultCounts)) this.#faults.set(name, (this.#faults.get(name) ?? 0) + count)
  }

  report(seconds: number): string {
    const faults = [...this.#faults].sort((a, b) => b[1] - a[1]).map(([name, count]) => `  ${String(count).padStart(9)} ${name}`)
    return [
      `${this.seeds} seeds and ${this.#steps} steps in ${Math.round(seconds)} s: ${(this.seeds / seconds).toFixed(2)} seeds and ${Math.round(this.#steps / seconds)} steps a second`,
      `${this.#tokens} tokens compared with the undisturbed run's, ${this.#refusals} commands of old reigns refused`,
      'faults that came:', ...faults,
      this.failed.length === 0 ? 'no seed failed' : `failed: ${this.failed.join(', ')}`,
    ].join('\n')
  }
}

const say = (text: string): void => { process.stdout.write(`${text}\n`) }
const note = (text: string): void => { process.stderr.write(`${text}\n`) }

process.exitCode = await main()
