/**
 * Plays cases of programs alone and then in company, each on a path: its State kept, on host, on disk, discarded and
 * recomputed, preempted, beside a twin, forked, moved to a second engine process, in an engine that is killed, or all of
 * it at random. Every token, shown part and origin and every byte of KV must be as it was alone. Cases add up over runs,
 * by model and settings. Exit code 1 where one differs though the probe says that none may.
 */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { ALL_TRIED, EXACT_ATTENTION, wordsOf } from '../src/cli/exact-settings.ts'
import type { EngineSettings } from '../src/engines/embedded-words.ts'
import { cacheDirectory, PROBES_FILE } from '../src/models/cache.ts'
import { drawRound, LANES } from './exact/cases.ts'
import { EngineInHand } from './exact/engine.ts'
import { playRound } from './exact/round.ts'
import { AloneStage, CompanyStage, type Folders } from './exact/stages.ts'
import { subjectsOf, type Subject } from './exact/subjects.ts'
import { add, casesOf, divergence, failuresOf, fresh, tableOf, TotalsFile, type Totals } from './exact/totals.ts'

const USAGE = `npm run test:exact -- [--minutes 15] [--model NAME[,NAME...]] [--cases N] [--seed N] [--out FILE] [--show]
  --minutes  of playing, divided among the models
  --model    default, tiny, dense, grouped, window, places, recurrent, hybrid, or what "entracte models ls" names;
             left out: these and the quantisations of the default model that "npm run quantise" has made
  --cases    of each model in this run, instead of the time
  --seed     of the first round, instead of the one after the last; plays it for --cases or one round, and counts nothing
  --out      the file of counts, instead of exactness.json in the cache
  --exact-attention  with flashAttention: exact, on two threads
  --show     prints the counts and plays nothing`
const CHUNK_TOKENS = 32
/** The least that it takes. */
const EXACT_CHUNK_TOKENS = 128
const DIFFERENCES_SHOWN_MAX = 5
/** Of the time of a model that is not exact as it comes. */
const DIVERGENCE_SHARE = 0.25
const MS_PER_MINUTE = 60_000

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '15' }, model: { type: 'string' }, cases: { type: 'string' }, seed: { type: 'string' },
    out: { type: 'string' }, show: { type: 'boolean', default: false }, 'exact-attention': { type: 'boolean', default: false }, help: { type: 'boolean', default: false },
  },
})

interface Run {
  readonly minutes: number
  readonly cases: number | null
  readonly seed: number | null
}

if (values.help) console.log(USAGE)
else process.exitCode = await main()

async function main(): Promise<number> {
  const file = new TotalsFile(values.out ?? join(cacheDirectory(process.env), 'exactness.json'))
  if (values.show) {
    console.log(tableOf(file.all()))
    return 0
  }
  const run: Run = { minutes: positive('minutes') ?? 15, cases: positive('cases'), seed: positive('seed') }
  const memory = mkdtempSync(join(process.platform === 'linux' ? '/dev/shm' : tmpdir(), 'entracte-exact-'))
  const disk = mkdtempSync(join(tmpdir(), 'entracte-exact-'))
  try {
    const subjects = await subjectsOf(values.model?.split(',') ?? null, disk)
    const shares = subjects.reduce((sum, { share }) => sum + share, 0)
    let failures = 0
    for (const subject of subjects) {
      const playMs = (run.minutes * MS_PER_MINUTE * subject.share) / shares
      failures += await play(subject, playMs, run, file, { host: memory, disk: join(disk, 'images') })
    }
    report(file, subjects)
    return failures === 0 ? 0 : 1
  } finally {
    for (const folder of [memory, disk]) rmSync(folder, { recursive: true, force: true })
  }
}

/** Returns how many cases of this run differ and must not. Where the settings as they come are not exact, what that comes to is counted for a part of the time. */
async function play(subject: Subject, playMs: number, run: Run, file: TotalsFile, folders: Folders): Promise<number> {
  mkdirSync(folders.disk, { recursive: true })
  let left = 1
  const attention = values['exact-attention']
  for (const tried of attention ? [EXACT_ATTENTION] : ALL_TRIED.filter(({ flashAttention }) => !flashAttention)) {
    const settings: EngineSettings = {
      modelPath: subject.path, lanes: LANES, laneTokens: subject.laneTokens, threads: attention ? 2 : 1, chunkTokens: attention ? EXACT_CHUNK_TOKENS : CHUNK_TOKENS,
      libraryDir: null, probeCachePath: join(cacheDirectory(process.env), PROBES_FILE), ...tried,
    }
    const known = await asked(settings, folders)
    if (known.exact === 'yes') return await playWith(settings, subject, known, wordsOf(tried), playMs * left, run, file, folders)
    if (left < 1) continue
    left -= DIVERGENCE_SHARE
    await playWith(settings, subject, known, wordsOf(tried), playMs * DIVERGENCE_SHARE, run, file, folders)
    if (known.exact === 'unknown' || !known.trims) break
  }
  console.log(`${subject.name}: no settings were found with which it is exact`)
  return 0
}

/** Returns how many cases of this run differ and must not. */
async function playWith(
  settings: EngineSettings, subject: Subject, { exact, key, images }: Known, words: string, playMs: number, run: Run, file: TotalsFile, folders: Folders,
): Promise<number> {
  const totals = file.of(`${subject.name}/${key}`, { model: subject.name, settings: words, exact })
  const counts = fresh(totals)
  let seed = run.seed ?? totals.nextSeed
  const played = { ...settings, probeCachePath: null, probe: false }
  const alone = await AloneStage.open(played, folders)
  const company = await CompanyStage.open(played, folders)
  const untilMs = performance.now() + playMs
  const isOver = (): boolean => run.cases !== null ? casesOf(counts) >= run.cases : run.seed !== null || performance.now() > untilMs
  let shown = 0
  try {
    do {
      const results = await playRound(drawRound(seed++, subject.scale, images), alone, company)
      add(counts, results)
      if (run.seed === null) {
        add(totals, results)
        totals.nextSeed = seed
        file.write()
      }
      for (const { difference } of results) if (difference !== '' && exact === 'yes' && shown++ < DIFFERENCES_SHOWN_MAX) console.log(difference)
    } while (!isOver())
  } finally {
    await Promise.all([alone.close(), company.close()])
  }
  const failures = failuresOf(counts)
  console.log(`${subject.name}, ${words}: ${casesOf(counts)} cases, ${failures} differ (exact: ${exact})`)
  return exact === 'yes' ? failures : 0
}

interface Known { readonly exact: string; readonly key: string; readonly images: boolean; readonly trims: boolean }

/** What the probe says, and what an image of these settings depends on. */
async function asked(settings: EngineSettings, folders: Folders): Promise<Known> {
  const engine = await EngineInHand.start(settings, 1, folders.disk)
  try {
    const { answer } = await engine.probed()
    return { exact: answer, key: engine.imageKey, images: engine.images, trims: engine.is.can.trim }
  } finally {
    await engine.kill()
  }
}

function report(file: TotalsFile, subjects: readonly Subject[]): void {
  const all = file.all()
  const known = (name: string): readonly Totals[] => all.filter(({ model }) => model === name)
  console.log(`\nall runs (cases; after a bar those whose tokens differ):\n${tableOf(subjects.flatMap(({ name }) => known(name)))}`)
  const noes = subjects.flatMap(({ name }) => known(name)).filter(({ exact }) => exact !== 'yes')
  for (const totals of noes) console.log(divergence(totals))
  const far = subjects.map(({ name, wanted }) =>
    `${name} ${known(name).filter(({ exact }) => exact === 'yes').reduce((sum, totals) => sum + casesOf(totals), 0)} of ${wanted}`)
  console.log(`exact cases of those wanted: ${far.join(', ')}`)
}

function positive(name: 'minutes' | 'cases' | 'seed'): number | null {
  const given = values[name]
  if (given === undefined) return null
  const value = Number(given)
  if (value > 0 && (name === 'minutes' || Number.isSafeInteger(value))) return value
  throw new Error(`--${name} is ${given}; it must be a number above 0\n${USAGE}`)
}
