/**
 * Puts each fault of `mutants/list.ts` into a copy of the built core, one at a time, and runs the suite against it. A table
 * says by which test each was caught. Exit code 1 where one survives, does not apply or does not run: the first is a missing
 * test, the others a list that is out of date.
 *
 *   npm run mutants -- [--only NAME]... [--jobs N] [--json] [--help]
 */
import { spawn } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { MUTANTS } from './mutants/list.ts'
import { Slot, type Mutant } from './mutants/mutant.ts'

/** A mutant that takes longer hangs, which is caught too. The suite alone takes a tenth of it. */
const RUN_MS_MAX = 240_000

type Result =
  | { readonly kind: 'caught'; readonly by: string }
  | { readonly kind: 'survived' }
  | { readonly kind: 'broken'; readonly why: string }

const { values } = parseArgs({
  options: {
    only: { type: 'string', multiple: true, default: [] }, jobs: { type: 'string', default: String(Math.min(2, availableParallelism())) },
    json: { type: 'boolean', default: false }, help: { type: 'boolean', default: false },
  },
})
if (values.help) {
  console.log('npm run mutants -- [--only NAME]... [--jobs N] [--json]\n\n'
    + '--only   mutants whose name holds NAME; may be given more than once\n--jobs   mutants at once (default 2, or as many as there are processors)\n'
    + '--json   one line of JSON a mutant instead of the table')
  process.exit(0)
}

const chosen = MUTANTS.filter(({ name }) => values.only.length === 0 || values.only.some((word) => name.includes(word)))
if (chosen.length === 0) {
  console.error('no mutant has such a name')
  process.exit(2)
}

/** Runs the suite in a slot until its first failure. */
function runSuite(slot: Slot): Promise<Result> {
  const child = spawn(process.execPath, ['--test-reporter=tap', join(slot.folder, 'scripts', 'mutants', 'suite.js')], {
    stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, SMALL_WORLDS: 'quick' },
  })
  return new Promise((resolve) => {
    let said = ''
    let complained = ''
    const end = (result: Result): void => {
      clearTimeout(timer)
      child.kill('SIGKILL')
      resolve(result)
    }
    const timer = setTimeout(() => end({ kind: 'caught', by: `no end within ${RUN_MS_MAX / 1_000} s` }), RUN_MS_MAX)
    child.stderr.on('data', (chunk: Buffer) => void (complained = (complained + chunk.toString()).slice(-2_000)))
    child.stdout.on('data', (chunk: Buffer) => {
      said = (said + chunk.toString()).slice(-20_000)
      const failed = /^ *not ok \d+ - (.*)$/m.exec(said)
      if (failed !== null) end({ kind: 'caught', by: failed[1] ?? '' })
    })
    child.on('close', (code) => end(code === 0 ? { kind: 'survived' } : { kind: 'broken', why: complained.split('\n').find((line) => line.includes('Error')) ?? `exit code ${code}` }))
  })
}

async function runMutant(slot: Slot, mutant: Mutant): Promise<Result> {
  const takeOut = slot.put(mutant)
  if (typeof takeOut === 'string') return { kind: 'broken', why: takeOut }
  try {
    return await runSuite(slot)
  } finally {
    takeOut()
  }
}

function say(mutant: Mutant, result: Result, tookMs: number): void {
  if (values.json) return console.log(JSON.stringify({ ...mutant, ...result, seconds: Math.round(tookMs / 100) / 10 }))
  const what = result.kind === 'caught' ? `caught by: ${result.by}` : result.kind === 'survived' ? 'SURVIVED: a test is missing' : `DOES NOT APPLY: ${result.why}`
  console.log(`${mutant.law === 0 ? '  ' : String(mutant.law).padStart(2)}  ${mutant.name.padEnd(62)} ${what}`)
}

async function main(): Promise<number> {
  const slots = Array.from({ length: Math.max(1, Number(values.jobs) || 1) }, (_, index) => new Slot(index))
  const begunMs = Date.now()
  try {
    if (values.only.length === 0) {
      const alone = await runSuite(slots[0] as Slot)
      if (alone.kind !== 'survived') throw new Error(`the suite fails without a mutant: ${alone.kind === 'caught' ? alone.by : alone.why}`)
      if (!values.json) console.log(`the suite passes without a mutant in ${((Date.now() - begunMs) / 1_000).toFixed(1)} s\n`)
    }
    const left = [...chosen]
    let bad = 0
    await Promise.all(slots.map(async (slot) => {
      for (let mutant = left.shift(); mutant !== undefined; mutant = left.shift()) {
        const fromMs = Date.now()
        const result = await runMutant(slot, mutant)
        if (result.kind !== 'caught') bad += 1
        say(mutant, result, Date.now() - fromMs)
      }
    }))
    if (!values.json) console.log(`\n${chosen.length - bad} of ${chosen.length} mutants caught in ${((Date.now() - begunMs) / 1_000).toFixed(0)} s`)
    return bad === 0 ? 0 : 1
  } finally {
    for (const slot of slots) slot.remove()
  }
}

process.exitCode = await main()
