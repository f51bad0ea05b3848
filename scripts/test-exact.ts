/**
 * Plays random scripts of programs alone and then in disturbed company, and says where a token, a shown part, a span or
 * a byte of KV differs. Adds up over runs in `.entracte/exactness.json`, by model. Exit code 1 on any difference.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { parseArgs } from 'node:util'
import { resolveModel } from '../src/models/resolve.ts'
import { REAL, TINY } from '../test/engine/exact-plot.ts'
import { runScript } from '../test/engine/exact-script.ts'

interface Totals {
  runs: number
  scripts: number
  calls: number
  tokens: number
  differences: number
  disturbed: Record<string, number>
}

const STORE = join('.entracte', 'exactness.json')
const LANE_TOKENS = 2_048

const { values } = parseArgs({
  options: {
    cases: { type: 'string', default: '20' },
    seed: { type: 'string', default: '1' },
    model: { type: 'string', default: 'default' },
    threads: { type: 'string', default: '1' },
    help: { type: 'boolean', default: false },
  },
})

if (values.help) {
  console.log('npm run test:exact -- [--cases 20] [--seed 1] [--model default|tiny|PATH] [--threads 1]')
} else {
  const whole = (name: 'cases' | 'seed' | 'threads'): number => {
    const value = Number(values[name])
    if (Number.isSafeInteger(value) && value > 0) return value
    throw new Error(`--${name} is ${values[name]}; it must be a whole number of 1 or more`)
  }
  process.exitCode = await main(whole('cases'), whole('seed'), values.model, whole('threads'))
}

async function main(cases: number, firstSeed: number, model: string, threads: number): Promise<number> {
  const { path } = await resolveModel({ model, env: process.env })
  const scale = model === 'tiny' ? TINY : REAL
  const directory = mkdtempSync(join(tmpdir(), 'entracte-exact-'))
  const run: Totals = { runs: 1, scripts: 0, calls: 0, tokens: 0, differences: 0, disturbed: {} }
  try {
    for (let seed = firstSeed; seed < firstSeed + cases; seed++) {
      const begunMs = performance.now()
      const script = { modelPath: path, scale, laneTokens: LANE_TOKENS, threads, directory }
      const { calls, tokens, differences, disturbed } = await runScript(seed, script)
      add(run, { runs: 0, scripts: 1, calls, tokens, differences: differences.length, disturbed })
      const said = differences.length === 0 ? 'equal' : `DIFFERENT\n${differences.join('\n')}`
      console.log(`seed ${seed}: ${calls} calls, ${tokens} tokens, ${Math.round(performance.now() - begunMs)} ms: ${said}`)
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
  const totals = keep(basename(path), run)
  console.log(`this run:  ${say(run)}`)
  console.log(`all runs:  ${say(totals)} (${STORE}, ${basename(path)})`)
  return run.differences === 0 ? 0 : 1
}

function say({ scripts, calls, tokens, differences, disturbed }: Totals): string {
  const kinds = Object.entries(disturbed).map(([kind, count]) => `${kind} ${count}`).join(', ')
  return `${scripts} scripts, ${calls} calls, ${tokens} tokens, ${differences} differences; ${kinds}`
}

function add(into: Totals, more: Totals): void {
  for (const key of ['runs', 'scripts', 'calls', 'tokens', 'differences'] as const) into[key] += more[key]
  for (const [kind, count] of Object.entries(more.disturbed)) into.disturbed[kind] = (into.disturbed[kind] ?? 0) + count
}

/** Adds the run to what is kept for the model, and returns the sum. */
function keep(model: string, run: Totals): Totals {
  const kept = readStore()
  const totals = kept[model] ?? { runs: 0, scripts: 0, calls: 0, tokens: 0, differences: 0, disturbed: {} }
  add(totals, run)
  mkdirSync('.entracte', { recursive: true })
  writeFileSync(STORE, `${JSON.stringify({ ...kept, [model]: totals }, null, 2)}\n`)
  return totals
}

function readStore(): Record<string, Totals> {
  try {
    return JSON.parse(readFileSync(STORE, 'utf8')) as Record<string, Totals>
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return {}
    throw error
  }
}
