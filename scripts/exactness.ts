/**
 * Measures on this machine what changes the logits of a token and what does not (laws E1 to E3 of `docs/exactness.md`).
 *
 *   node dist/scripts/exactness.js [--model PATH] [--json]
 *     --tokens N          of the prompt (300)
 *     --threads N         (2)
 *     --plain-weights     weights not repacked
 *     --rows N            of a lane in a batch: 1 as they come, 2 at least two, 4 a multiple of four (1)
 *     --flash-attention   on in every schedule
 *     --library DIR       of the shared libraries; one with a single ggml-cpu variant shows that kernel
 *     --chunk N           the largest chunk of a prefill (512)
 *
 * Feeds one life under many schedules and compares every logit row and the KV, bit for bit, with the first run. Exits
 * with 1 where a schedule that must make no difference made one. Without a model it takes the tiny one.
 */
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { imageKey, readImage, writeImage } from '../src/engine/kv-image.ts'
import { Llama } from '../src/engine/llama/llama.ts'
import type { LlamaOptions } from '../src/engine/llama/llama.ts'
import { ROW_UNITS, type RowUnit } from '../src/engine/llama/padding.ts'
import { writeTinyGguf } from '../src/models/tiny-gguf.ts'
import { CHUNK, live } from './exactness-life.ts'
import type { Life, Schedule, Script } from './exactness-life.ts'

type Settings = Omit<LlamaOptions, 'modelPath' | 'libraryDir'>

interface Case {
  readonly name: string
  readonly schedule: Schedule
  /** Other settings than the reference's: an engine of its own. */
  readonly settings?: Partial<Settings>
  /** Compared with a first run under its own settings. */
  readonly ownReference?: boolean
  /** Whether the law says that nothing changes, or that something does; null where it says nothing. */
  readonly equal: boolean | null
}

interface Verdict {
  readonly name: string
  readonly expected: 'equal' | 'differs' | 'either'
  readonly rows: number
  readonly rowsEqual: number
  readonly largestDifference: number
  readonly kvEqual: boolean
  readonly logitsDigest: string
  readonly holds: boolean
}

const TEXT = 'Entr\'acte: the time between two acts, while the stage is kept for the same play. The agent reads the '
  + 'file, thinks, calls a tool and waits; what it had in mind waits with it. When the answer comes it goes on in the '
  + 'middle of its sentence, as if nobody had been served meanwhile. '

const shortCompany = (lanes: number): Schedule => ({ company: { lanes, tokens: 20 } })

type Move = (llama: Llama, from: number, to: number) => Promise<void>

function cases(image: Move, longTokens: number, chunkMax: number): readonly Case[] {
  const equal = (name: string, schedule: Schedule, settings?: Partial<Settings>): Case => (
    { name, schedule, equal: true, ...(settings === undefined ? {} : { settings }) })
  const differs = (name: string, schedule: Schedule): Case => ({ name, schedule, equal: false })
  const flash = (name: string, schedule: Schedule): Case => (
    { name: `flash attention: ${name}`, schedule, settings: { flashAttention: true }, ownReference: true, equal: null })
  return [
    equal('again', {}),
    equal('lane 5', { lane: 5 }),
    ...[512, 300, 64, 63, 33, 8, 2].filter((chunk) => chunk <= chunkMax)
      .map((chunk) => equal(`chunks of ${chunk}`, { chunk })),
    ...[1, 3, 7].map((lanes) => equal(`company of ${lanes}`, shortCompany(lanes))),
    equal(`company of 7, ${longTokens} tokens long`, { company: { lanes: 7, tokens: longTokens } }),
    equal('company of 3, chunks of 33, lane 4', { ...shortCompany(3), chunk: 33, lane: 4 }),
    equal('a move by image half-way', { move: image, moveTo: 6 }),
    equal('a move by image half-way, company of 3', { ...shortCompany(3), move: image, moveTo: 6 }),
    equal('a lane used before', { usedLane: true }),
    equal('a prefix copied from a longer lane', { copied: true }),
    equal('decodes cut and fed again', { retried: true }),
    { name: 'logits of the last row only', schedule: { lastRowOnly: true }, equal: null },
    equal('1 thread', {}, { threads: 1 }),
    equal('batches of 64', { chunk: Math.min(64, chunkMax) }, { batchTokens: 64 }),
    equal('an engine of 2 lanes of another length', {}, { lanes: 2, laneTokens: longTokens + 256 }),
    differs('given tokens one by one', { oneByOne: true }),
    differs('decoded tokens prefilled (plain recompute)', { plain: true }),
    { name: 'decode rows in the prefill\'s batch', schedule: { ...shortCompany(1), mixed: true }, equal: null },
    { name: 'flash attention on against off', schedule: {}, settings: { flashAttention: true }, equal: null },
    flash('again', {}),
    flash('chunks of 33', { chunk: 33 }),
    flash('company of 3', shortCompany(3)),
    flash('a move by image half-way', { move: image, moveTo: 6 }),
  ]
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      model: { type: 'string' }, tokens: { type: 'string', default: '300' }, threads: { type: 'string', default: '2' },
      'plain-weights': { type: 'boolean', default: false }, rows: { type: 'string', default: '1' },
      'flash-attention': { type: 'boolean', default: false }, chunk: { type: 'string', default: '512' },
      library: { type: 'string' }, json: { type: 'boolean', default: false },
    },
  })
  const folder = mkdtempSync(join(tmpdir(), 'entracte-exactness-'))
  try {
    const tiny = join(folder, 'tiny.gguf')
    if (values.model === undefined) writeTinyGguf(tiny)
    const report = await measure({
      modelPath: values.model ?? tiny, folder, promptTokens: Number(values.tokens), threads: Number(values.threads),
      extraBuffers: !values['plain-weights'], rowUnit: rowUnitOf(values.rows), flashAttention: values['flash-attention'],
      chunkMax: Number(values.chunk), libraryDir: values.library ?? null,
    })
    process.stdout.write(values.json ? `${JSON.stringify(report, null, 2)}\n` : table(report))
    process.exitCode = report.verdicts.every((verdict) => verdict.holds) ? 0 : 1
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

function rowUnitOf(given: string): RowUnit {
  const found = ROW_UNITS.find((unit) => String(unit) === given)
  if (found !== undefined) return found
  throw new Error(`--rows is ${given}; it must be one of ${ROW_UNITS.join(', ')}`)
}

interface Report {
  readonly model: string
  readonly library: string
  readonly cpuKernel: string
  readonly settings: Settings
  readonly tokens: number
  readonly verdicts: readonly Verdict[]
}

interface Plan {
  readonly modelPath: string
  /** For images; in memory where the system's temporary folder is. */
  readonly folder: string
  readonly promptTokens: number
  readonly threads: number
  readonly extraBuffers: boolean
  readonly flashAttention: boolean
  readonly rowUnit: RowUnit
  /** The largest chunk of a prefill. */
  readonly chunkMax: number
  readonly libraryDir: string | null
}

const DECODES = 10
const GIVEN_TOKENS = 40
const LONG_COMPANY_TOKENS = 1_300

export async function measure(plan: Plan): Promise<Report> {
  const longTokens = Math.max(LONG_COMPANY_TOKENS, plan.promptTokens + GIVEN_TOKENS + 2 * DECODES + 1)
  const settings: Settings = {
    lanes: 8, laneTokens: longTokens + 256, batchTokens: 512, threads: plan.threads,
    flashAttention: plan.flashAttention, extraBuffers: plan.extraBuffers, rowUnit: plan.rowUnit,
  }
  const digest = createHash('sha256').update(readFileSync(plan.modelPath)).digest('hex')
  const load = (change: Partial<Settings>): Llama => (
    Llama.load({ ...settings, ...change, modelPath: plan.modelPath, libraryDir: plan.libraryDir }))
  const base = load({})
  try {
    const script = scriptOf(base, plan.promptTokens)
    const reference = await live(base, script, fill(plan, {}), null)
    const image = mover(join(plan.folder, 'image'), digest)
    const verdicts: Verdict[] = []
    for (const group of bySettings(cases(image, longTokens - 1, plan.chunkMax))) {
      const llama = group[0]?.settings === undefined ? base : load(group[0].settings)
      try {
        let own: Life | null = null
        for (const { name, schedule, equal, ownReference } of group) {
          if (ownReference === true) own ??= await live(llama, script, fill(plan, {}), known(reference, script))
          const life = await live(llama, script, fill(plan, schedule), known(reference, script))
          verdicts.push(compare(name, life, ownReference === true && own !== null ? own : reference, equal))
        }
      } finally {
        if (llama !== base) llama.dispose()
      }
    }
    const { library, cpuKernel } = base.info
    return { model: digest.slice(0, 16), library, cpuKernel, settings, tokens: reference.tokens.length, verdicts }
  } finally {
    base.dispose()
  }
}

const fill = (plan: Plan, schedule: Schedule): Schedule => (
  { chunk: Math.min(CHUNK, plan.chunkMax), ...schedule })

/** The decoded tokens of a life, which are all that is not given. */
const known = (life: Life, script: Script): number[] => {
  const first = script.prompt.length
  const second = first + script.decodes + script.given.length
  return [...life.tokens.slice(first, first + script.decodes), ...life.tokens.slice(second)]
}

function scriptOf(llama: Llama, promptTokens: number): Script {
  let text = TEXT
  while (llama.tokenize(text, false).length < promptTokens + GIVEN_TOKENS) text += TEXT
  const tokens = [...llama.tokenize(text, false)]
  return {
    prompt: tokens.slice(0, promptTokens), given: tokens.slice(promptTokens, promptTokens + GIVEN_TOKENS),
    decodes: DECODES,
  }
}

/** Cases in order, those of one engine together. */
function bySettings(all: readonly Case[]): Case[][] {
  const groups = new Map<string, Case[]>()
  for (const one of all) {
    const key = JSON.stringify(one.settings ?? null)
    groups.set(key, [...groups.get(key) ?? [], one])
  }
  return [...groups.values()]
}

/** Out of one lane into a file of several spans, and into another lane. */
function mover(path: string, modelDigest: string): Move {
  return async (llama, from, to) => {
    const tokens = llama.laneUsed(from)
    const key = imageKey(llama.info, modelDigest)
    const identity = { tenant: 'none', state: 'none', owner: 'none', epoch: 1, reign: 1 }
    const { digest } = await writeImage(path, llama.stateBytes(from), {
      key, identity, library: llama.info.library, cpuKernel: llama.info.cpuKernel,
      model: { digest: modelDigest, tokenizer: '', template: '', adapter: '' },
      spans: [
        { id: 'prompt', tokens: tokens - DECODES, origin: 'prefilled' },
        { id: 'answer', tokens: DECODES, origin: 'decoded' },
      ],
    })
    llama.cut(from, 0)
    const { blob } = await readImage(path, { key, digest, identity }, llama.info.lanes)
    if (!llama.loadState(to, blob)) throw new Error(`the library refused the image for lane ${to}`)
  }
}

function compare(name: string, life: Life, reference: Life, equal: boolean | null): Verdict {
  let rows = 0
  let rowsEqual = 0
  let largest = 0
  const hash = createHash('sha256')
  life.rows.forEach((row, index) => {
    const want = reference.rows[index]
    if (row.length === 0 || want === undefined) return
    rows++
    hash.update(bytesOf(row))
    if (bytesOf(row).equals(bytesOf(want))) rowsEqual++
    else largest = Math.max(largest, difference(row, want))
  })
  const kvEqual = life.kvDigest === reference.kvDigest
  const same = rows === rowsEqual && kvEqual
  return {
    name, expected: equal === null ? 'either' : equal ? 'equal' : 'differs', rows, rowsEqual,
    largestDifference: largest, kvEqual, logitsDigest: hash.digest('hex').slice(0, 16), holds: equal !== true || same,
  }
}

const bytesOf = (row: Float32Array): Buffer => Buffer.from(row.buffer, row.byteOffset, row.byteLength)

function difference(row: Float32Array, want: Float32Array): number {
  let largest = 0
  for (let token = 0; token < row.length; token++) {
    largest = Math.max(largest, Math.abs((row[token] ?? 0) - (want[token] ?? 0)))
  }
  return largest
}

function table(report: Report): string {
  const width = Math.max(...report.verdicts.map((verdict) => verdict.name.length))
  const lines = report.verdicts.map((verdict) => [
    verdict.name.padEnd(width), `${verdict.rowsEqual}/${verdict.rows}`.padStart(9),
    verdict.largestDifference === 0 ? '       0' : verdict.largestDifference.toFixed(4).padStart(8),
    verdict.kvEqual ? 'equal  ' : 'differs', verdict.logitsDigest, sentence(verdict),
  ].join('  '))
  const { settings } = report
  const broken = report.verdicts.filter((verdict) => !verdict.holds)
  return [
    `model ${report.model}, ${report.library}, kernel ${report.cpuKernel}, `
      + `${settings.lanes} lanes of ${settings.laneTokens}, `
      + `${settings.threads} threads, weights ${settings.extraBuffers ? 'repacked' : 'plain'}, rows ${settings.rowUnit ?? 1}, `
      + `flash attention ${settings.flashAttention ? 'on' : 'off'}, a life of ${report.tokens} tokens`,
    '',
    `${'schedule'.padEnd(width)}  rows same   largest  KV       logits            verdict`,
    ...lines,
    '',
    broken.length === 0 ? `exact: yes. ${howMuch(report)} changed a bit.`
      : `exact: no, because of: ${broken.map((verdict) => verdict.name).join('; ')}`,
    '',
  ].join('\n')
}

function howMuch({ verdicts }: Report): string {
  const origins = verdicts.filter((verdict) => verdict.expected === 'differs')
  return origins.every((verdict) => verdict.rows === verdict.rowsEqual && verdict.kvEqual)
    ? 'Nothing, not even the way a token is fed,' : 'Nothing but the way a token is fed'
}

function sentence(verdict: Verdict): string {
  const same = verdict.rows === verdict.rowsEqual && verdict.kvEqual
  if (verdict.expected === 'equal') return same ? 'equal, as it must be' : 'DIFFERS, and must not'
  if (verdict.expected === 'differs') return same ? 'equal here' : 'differs, as it may'
  return same ? 'equal here' : 'differs'
}

if (process.argv[1] === import.meta.filename) await main()
