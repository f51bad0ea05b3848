/**
 * Owns the bench of a cold start: from the start of the process until a call can be taken and until the first token, and the
 * memory that the server's processes hold then and after eight calls. llama-server beside it, with as many cells.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { columns } from '../src/core/explain/explain-text.ts'
import { Corpus } from '../src/eval/corpus.ts'
import { estimate, median, ratio, type Interval } from '../src/eval/stats.ts'
import { resolveModel } from '../src/models/resolve.ts'
import { bar, CannotRun, type Bar, type Bench, type BenchResult, type BenchWorld } from './bench.ts'
import { peerProgram, startPeer } from './peer.ts'
import { serve } from './served.ts'
import { streamed } from './token-stream.ts'

const ARMS = ['entracte serve', 'llama-server'] as const
type ArmName = (typeof ARMS)[number]

const LANES = 8
const LANE_TOKENS = 2_048
const CALLS = 8
const CONTEXT_TOKENS = 512
const OUTPUT_TOKENS = 16
const CHARACTERS_PER_TOKEN = 4.57
const REPEATS = 5
const REPEATS_QUICK = 2
const POLL_MS = 10
/** What a start leaves to the collector is gone by then. */
const SETTLE_MS = 1_500
const OVER_PEER_MAX = 1.15
const MEBIBYTE = 1024 * 1024

const NOT_MEASURED = [
  'a file that the system has not cached: the first start of a day reads it from disk',
  'other models, of which the runtime\'s own share is less or more; accelerators',
  'a long life: `npm run soak:server` tells what processes hold over hours',
]

/** Of one start. */
interface Start {
  readonly readyMs: number
  readonly firstTokenMs: number
  readonly idle: Memory
  readonly worked: Memory
}

/** Of all its processes, bytes that are resident, and of these what is no file's. */
interface Memory { readonly rss: number; readonly anonymous: number }

export const loadModel: Bench = {
  name: 'load-model',
  what: 'from a cold process to ready and to the first token; memory held, beside llama-server\'s',
  needsModel: true,
  run: async (world) => {
    const { path, name } = await resolveModel({ model: world.model, env: process.env, signal: world.signal })
    const arms = ARMS.filter((arm) => arm === 'entracte serve' || hasPeer(world))
    const found = new Map<ArmName, Start[]>(arms.map((arm) => [arm, []]))
    for (let repeat = 0; repeat < (world.quick ? REPEATS_QUICK : REPEATS); repeat += 1) {
      for (const arm of arms) {
        const start = await measure(world, arm, path, name)
        found.get(arm)?.push(start)
        world.say(`${arm}, ${repeat + 1}: ready after ${start.readyMs.toFixed(0)} ms, first token after ${start.firstTokenMs.toFixed(0)}, ${mebibytes(start.idle.rss)} MiB idle, ${mebibytes(start.worked.rss)} after ${CALLS} calls`)
      }
    }
    return resultOf(found)
  },
}

function hasPeer(world: BenchWorld): boolean {
  try {
    peerProgram()
    return true
  } catch (error) {
    if (!(error instanceof CannotRun)) throw error
    world.say(`without llama-server: ${error.message}`)
    return false
  }
}

async function measure(world: BenchWorld, arm: ArmName, modelPath: string, model: string): Promise<Start> {
  const begunMs = performance.now()
  const server = arm === 'entracte serve'
    ? await serve({ engines: [{ id: 'local', kind: 'embedded', model: world.model, lanes: LANES, laneTokens: LANE_TOKENS }] }, world.signal, { timed: true })
    : await startPeer(modelPath, ['-np', String(LANES), '--no-kv-unified', '-c', String(LANES * LANE_TOKENS), '--cache-ram', '0'], world.signal, POLL_MS)
  try {
    const readyMs = performance.now() - begunMs
    const ask = (text: string, outputTokens: number) => streamed(server.url, {}, {
      model, messages: [{ role: 'user', content: text }], max_tokens: outputTokens, temperature: 0, seed: 1, ignore_eos: true,
    }, world.signal)
    const { eventMs } = await ask('Say hello.', 1)
    const firstTokenMs = (eventMs[0] ?? Infinity) - begunMs
    await sleep(SETTLE_MS, undefined, { signal: world.signal })
    const idle = memoryOf(server.pid)
    await Promise.all(Array.from({ length: CALLS }, (_, number) => ask(textOf(number), OUTPUT_TOKENS)))
    await sleep(SETTLE_MS, undefined, { signal: world.signal })
    return { readyMs, firstTokenMs, idle, worked: memoryOf(server.pid) }
  } finally {
    await server.close()
  }
}

/** Different from the first word on for each number. */
function textOf(number: number): string {
  const passages = Corpus.load().passages.map(({ title, text }) => `${title}: ${text}`)
  return `${number}: ${[...passages.slice(number), ...passages.slice(0, number)].join('\n')}`.slice(0, Math.round(CONTEXT_TOKENS * CHARACTERS_PER_TOKEN))
}

/** Of a process and those it has started. A page of a file is counted once, though two of them map it: it is there once. */
function memoryOf(pid: number): Memory {
  const files = new Map<string, number>()
  let anonymous = 0
  for (const one of treeOf(pid)) {
    const mapped = new Map<string, number>()
    for (const { file, bytes } of mappingsOf(one)) {
      if (file === null) anonymous += bytes
      else mapped.set(file, (mapped.get(file) ?? 0) + bytes)
    }
    for (const [file, bytes] of mapped) files.set(file, Math.max(files.get(file) ?? 0, bytes))
  }
  return { rss: anonymous + [...files.values()].reduce((sum, bytes) => sum + bytes, 0), anonymous }
}

const treeOf = (pid: number): readonly number[] => [pid, ...readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
  readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter((word) => word !== '').map(Number).flatMap(treeOf))]

/** What is resident of each, anonymous memory and the heap under null. */
function mappingsOf(pid: number): readonly { readonly file: string | null; readonly bytes: number }[] {
  let file: string | null = null
  return readFileSync(`/proc/${pid}/smaps`, 'utf8').split('\n').flatMap((line) => {
    const head = /^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+\s*(.*)$/.exec(line)
    if (head !== null) file = head[1]?.startsWith('/') === true ? head[1] : null
    const resident = /^Rss:\s+(\d+) kB/.exec(line)
    return resident === null ? [] : [{ file, bytes: Number(resident[1]) * 1_024 }]
  })
}

// ---------------------------------------------------------------- the result

function resultOf(found: ReadonlyMap<ArmName, readonly Start[]>): BenchResult {
  const text = columns([
    ['', 'ready ms', 'first token ms', 'idle MiB', 'no file\'s', `after ${CALLS} calls`, 'no file\'s'],
    ...[...found].map(([arm, starts]) => [
      arm, spread(starts.map(({ readyMs }) => readyMs)), spread(starts.map(({ firstTokenMs }) => firstTokenMs)),
      ...[...memories(starts, 'idle'), ...memories(starts, 'worked')],
    ]),
  ], 'lrrrrrr').join('\n')
  const missing = found.has('llama-server') ? [] : ['llama-server, which is not here (npm run peer): no bar']
  return { bars: barsOf(found), text, figures: Object.fromEntries(found), notMeasured: [...missing, ...NOT_MEASURED] }
}

const memories = (starts: readonly Start[], when: 'idle' | 'worked'): string[] =>
  (['rss', 'anonymous'] as const).map((sort) => mebibytes(median(starts.map((start) => start[when][sort]))))

function barsOf(found: ReadonlyMap<ArmName, readonly Start[]>): Bar[] {
  const [ours, peer] = ARMS.map((arm) => found.get(arm))
  if (ours === undefined || peer === undefined) return []
  return (['idle', 'worked'] as const).map((when): Bar => {
    const over: Interval = ratio(ours.map((start) => start[when].rss), peer.map((start) => start[when].rss), median)
    return bar(`resident-${when}-over-llama-server`, over, 'x', `at most ${OVER_PEER_MAX}`, over.value <= OVER_PEER_MAX)
  })
}

const mebibytes = (bytes: number): string => (bytes / MEBIBYTE).toFixed(0)

function spread(ms: readonly number[]): string {
  const { value, low, high } = estimate(ms, median)
  return `${value.toFixed(0)} (${low.toFixed(0)}-${high.toFixed(0)})`
}
