/**
 * Owns the bench of quantisations: the default model as `npm run quantise` has written it, each opened once and all fed in
 * turn, so that what else the machine does meets them alike. Says what a file holds, what is resident, how quickly it is
 * fed and how quickly it puts out, and whether it resumes exactly as it is.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { columns } from '../src/core/explain/explain-text.ts'
import { Lanes } from '../src/engine/lanes.ts'
import { Llama } from '../src/engine/llama/llama.ts'
import type { Row } from '../src/engine/llama/llama.ts'
import { Probe } from '../src/engine/probe.ts'
import type { Exact } from '../src/engine/probe.ts'
import { median } from '../src/eval/stats.ts'
import { cacheDirectory } from '../src/models/cache.ts'
import { LOCAL_FOLDER } from '../src/models/cached.ts'
import { resolveModel } from '../src/models/resolve.ts'
import { CannotRun, type Bench, type BenchResult, type BenchWorld } from './bench.ts'
import { FED_TOKENS, openedAs } from './quantised.ts'

const CHUNKS = 2
const OUTPUTS = 16
const ROUNDS = 7
const ROUNDS_QUICK = 2
const QUANTISATION = /[.-]((?:I?Q\d\w*)|B?F16|F32)\.gguf$/i

const NOT_MEASURED = [
  'what a quantisation does to the quality of answers: all are made from one file, and none is above it',
  'other models and other processors: the order of the speeds differs between them', 'flash attention, accelerators',
]

interface Arm { readonly name: string; readonly path: string; readonly llama: Llama; readonly prefill: number[]; readonly decode: number[] }

interface Figures {
  readonly name: string
  readonly fileMb: number
  readonly residentMb: number
  readonly prefill: number
  readonly decode: number
  readonly kvBytes: number
  /** Null: not asked. */
  readonly exact: Exact | null
}

export const quantisations: Bench = {
  name: 'quantisations',
  what: 'the default model in each quantisation: file, memory, prefill and decode tokens/s, exact or not',
  needsModel: true,
  run: async (world) => {
    const { path } = await resolveModel({ model: world.model, env: process.env, signal: world.signal })
    const arms = filesBeside(path).map((file): Arm => ({
      name: QUANTISATION.exec(file)?.[1] ?? basename(file), path: file, llama: Llama.load({ modelPath: file, ...openedAs }), prefill: [], decode: [],
    }))
    for (let round = 0; round < (world.quick ? ROUNDS_QUICK : ROUNDS); round++) {
      for (const arm of arms) await feed(arm)
      world.say(`round ${round + 1}`)
    }
    const figures: Figures[] = []
    for (const arm of arms) figures.push(await figuresOf(arm, world))
    for (const { llama } of arms) llama.dispose()
    return resultOf(figures)
  },
}

/** The model and what was made of it. */
function filesBeside(path: string): string[] {
  const folder = join(cacheDirectory(process.env), LOCAL_FOLDER)
  const stem = basename(path).replace(QUANTISATION, '')
  const made = existsSync(folder) ? readdirSync(folder).filter((name) => name.startsWith(stem) && QUANTISATION.test(name)).sort() : []
  if (made.length === 0) throw new CannotRun('Nothing was made of the model yet: npm run quantise')
  return [path, ...made.map((name) => join(folder, name))]
}

async function feed({ llama, prefill, decode }: Arm): Promise<void> {
  const timed = async (rows: readonly Row[], into: number[]): Promise<void> => {
    const begunMs = performance.now()
    await llama.decode(rows)
    into.push(rows.length / (performance.now() - begunMs) * 1_000)
  }
  for (let chunk = 0; chunk < CHUNKS; chunk++) {
    await timed(Array.from({ length: FED_TOKENS }, (_, i) => {
      const position = chunk * FED_TOKENS + i
      return { token: 100 + position, position, lane: 0, logits: position === CHUNKS * FED_TOKENS - 1 }
    }), prefill)
  }
  for (let i = 0; i < OUTPUTS; i++) await timed([{ token: 500 + i, position: CHUNKS * FED_TOKENS + i, lane: 0, logits: true }], decode)
  llama.cut(0, 0)
}

async function figuresOf({ name, path, llama, prefill, decode }: Arm, world: BenchWorld): Promise<Figures> {
  const child = fileURLToPath(new URL('./model-memory.js', import.meta.url))
  const resident = Number(execFileSync(process.execPath, [child, path], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }))
  const exact = world.quick ? null : await probe(llama)
  world.say(`${name}: ${exact?.because ?? 'not asked whether it is exact'}`)
  return {
    name, exact, fileMb: statSync(path).size / 1e6, residentMb: resident / 1e6,
    prefill: median(prefill), decode: median(decode), kvBytes: llama.info.kvBytesPerToken,
  }
}

async function probe(llama: Llama): Promise<Exact> {
  const asked = new Probe(llama, new Lanes(llama.info.lanes), FED_TOKENS)
  for (;;) {
    const found = await asked.advance()
    if (found !== null) return found
  }
}

function resultOf(figures: readonly Figures[]): BenchResult {
  const rows = figures.map(({ name, fileMb, residentMb, prefill, decode, kvBytes, exact }) => [
    name, `${fileMb.toFixed(1)} MB`, `${residentMb.toFixed(0)} MB`, prefill.toFixed(0), decode.toFixed(1), String(kvBytes), exact?.answer ?? 'not asked',
  ])
  const text = columns([['', 'file', 'resident', 'prefill tok/s', 'decode tok/s', 'KV bytes a token', 'exact as it is'], ...rows], 'lrrrrrl').join('\n')
  return { bars: [], text, figures, notMeasured: NOT_MEASURED }
}
