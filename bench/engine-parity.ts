/**
 * Owns the bench of our door against llama.cpp's own server: tokens a second as an OpenAI client sees them, the same
 * model, machine and minutes. Servers stand side by side and take turns; contexts are read once a server and used again.
 */
import { setMaxListeners } from 'node:events'
import { availableParallelism } from 'node:os'
import { columns } from '../src/core/explain/explain-text.ts'
import { Corpus } from '../src/eval/corpus.ts'
import { median, pairedRatio, type Interval } from '../src/eval/stats.ts'
import { resolveModel } from '../src/models/resolve.ts'
import { bar, type Bar, type Bench, type BenchResult, type BenchWorld } from './bench.ts'
import { peerProgram, startPeer } from './peer.ts'
import { serve } from './served.ts'
import { rateOf, streamed, type Streamed } from './token-stream.ts'

/** What is measured: so many calls that decode at once behind contexts of so many tokens, or a prompt of so many. */
type Point =
  | { readonly kind: 'decode'; readonly batch: number; readonly contextTokens: number }
  | { readonly kind: 'prefill'; readonly tokens: number }

const OURS = ['exact', 'plain'] as const
const PEERS = ['peer, as it comes', 'peer, in lanes'] as const
type Ours = (typeof OURS)[number]
type PeerArm = (typeof PEERS)[number]
type ArmName = Ours | PeerArm
const ARMS: readonly ArmName[] = [...OURS, ...PEERS]

const BATCHES = [1, 4, 8, 16] as const
const BATCHES_QUICK = [1, 4, 16] as const
const CONTEXTS = [256, 1_024] as const
const CONTEXTS_QUICK = [256] as const
const PREFILLS = [512, 2_048] as const
const PREFILLS_QUICK = [512] as const
const REPEATS = 10
const REPEATS_QUICK = 6
const OUTPUT_TOKENS = 48
/** Of a context: room for its frame and what is generated; of a prompt: for what the estimate misses. */
const LANE_TOKENS = 2_560
const LANES = Math.max(...BATCHES)
const CHARACTERS_PER_TOKEN = 4.57
/** The best of the point may not be lower than this with exactness off, the mean of decode with it on. */
const PARITY_MIN = 0.95
const EXACT_MIN = 0.85

const NOT_MEASURED = [
  'other models, quantisations and processors; accelerators',
  'sampling other than greedy, grammars, tools',
  'decoding beside prefills',
]

interface Arm {
  readonly name: ArmName
  readonly url: string
  readonly model: string
  /** What names the same place of the server for the same context. */
  request(context: number): { readonly headers: Readonly<Record<string, string>>; readonly fields: object }
  close(): Promise<void>
}

type Samples = ReadonlyMap<ArmName, readonly { readonly together: number | null; readonly whole: number }[]>

export const engineParity: Bench = {
  name: 'engine-parity',
  what: 'tokens a second of our door over llama-server\'s: decode by batch and context, prefill',
  needsModel: true,
  run: async (world) => {
    peerProgram()
    setMaxListeners(0, world.signal)
    const { path, name } = await resolveModel({ model: world.model, env: process.env, signal: world.signal })
    const arms: Arm[] = []
    try {
      for (const arm of ARMS) arms.push(await startArm(world, arm, path, name))
      const found = new Map<Point, Samples>()
      for (const point of pointsOf(world.quick)) found.set(point, await measure(world, arms, point))
      return resultOf(found, world.quick)
    } finally {
      await Promise.allSettled(arms.map((arm) => arm.close()))
    }
  },
}

// ---------------------------------------------------------------- the servers

async function startArm(world: BenchWorld, name: ArmName, modelPath: string, model: string): Promise<Arm> {
  world.say(`starting: ${name}`)
  if (name === 'exact' || name === 'plain') {
    const server = await serve(configOf(name, world.model), world.signal)
    return { name, model, ...server, request: (context) => ({ headers: { 'x-program-id': `context-${context}` }, fields: {} }) }
  }
  const inLanes = name === 'peer, in lanes'
  const server = await startPeer(modelPath, inLanes ? LANES_FLAGS : [], world.signal)
  return { name, model, ...server, request: (context) => ({ headers: {}, fields: { ignore_eos: true, ...(inLanes ? { id_slot: context } : {}) } }) }
}

const THREADS = String(availableParallelism())
/** A place for every context, each with cells of its own, as ours has. */
const LANES_FLAGS = ['-np', String(LANES), '--no-kv-unified', '-c', String(LANES * LANE_TOKENS), '-t', THREADS, '--cache-ram', '0']

/** Without exactness nothing forbids flash attention, nor chunks as long as the peer's. */
const configOf = (name: Ours, model: string): Readonly<Record<string, unknown>> => ({
  engines: [{
    id: 'local', kind: 'embedded', model, lanes: LANES + 1, laneTokens: LANE_TOKENS, threads: availableParallelism(),
    ...(name === 'exact' ? {} : { flashAttention: true, chunkTokens: 512 }),
  }],
  core: { residency: 'always-preserve', exactResume: name === 'exact' },
})

// ---------------------------------------------------------------- the points

function pointsOf(quick: boolean): readonly Point[] {
  const decode = (quick ? CONTEXTS_QUICK : CONTEXTS).flatMap((contextTokens) =>
    (quick ? BATCHES_QUICK : BATCHES).map((batch): Point => ({ kind: 'decode', batch, contextTokens })))
  return [...decode, ...(quick ? PREFILLS_QUICK : PREFILLS).map((tokens): Point => ({ kind: 'prefill', tokens }))]
}

const nameOf = (point: Point): string =>
  (point.kind === 'decode' ? `decode ${point.batch} x ${point.contextTokens}` : `prefill ${point.tokens}`)

async function measure(world: BenchWorld, arms: readonly Arm[], point: Point): Promise<Samples> {
  const repeats = world.quick ? REPEATS_QUICK : REPEATS
  const samples = new Map<ArmName, { together: number | null; whole: number }[]>(ARMS.map((name) => [name, []]))
  // The first of each is not counted: contexts are read in it, and threads and caches are warm after it.
  for (let repeat = -1; repeat < repeats; repeat += 1) {
    for (let at = 0; at < arms.length; at += 1) {
      const arm = arms[(at + repeat + arms.length) % arms.length]
      if (arm === undefined) continue
      const rate = point.kind === 'decode' ? await decode(arm, point, repeat, world.signal) : await prefill(arm, point.tokens, repeat, world.signal)
      if (repeat >= 0) samples.get(arm.name)?.push(rate)
      world.say(`${nameOf(point)}, ${repeat + 1} of ${repeats}, ${arm.name}: ${(rate.together ?? rate.whole).toFixed(1)} tokens/s`)
    }
  }
  return samples
}

async function decode(arm: Arm, { batch, contextTokens }: Extract<Point, { kind: 'decode' }>, repeat: number, signal: AbortSignal): Promise<{ together: number | null; whole: number }> {
  const contexts = Array.from({ length: repeat < 0 ? LANES : batch }, (_, context) => context)
  const streams = await Promise.all(contexts.map((context) => ask(arm, context, textOf(context, contextTokens), repeat < 0 ? 2 : OUTPUT_TOKENS, signal)))
  return repeat < 0 ? { together: null, whole: 0 } : rateOf(streams)
}

/** Each prompt is new from its first word on. */
async function prefill(arm: Arm, tokens: number, repeat: number, signal: AbortSignal): Promise<{ together: number | null; whole: number }> {
  const stream = await ask(arm, 0, textOf(1_000 + repeat, tokens), 1, signal)
  return { together: null, whole: (stream.promptTokens / ((stream.eventMs[0] ?? Infinity) - stream.sentMs)) * 1_000 }
}

function ask(arm: Arm, context: number, text: string, outputTokens: number, signal: AbortSignal): Promise<Streamed> {
  const { headers, fields } = arm.request(context)
  const body = { model: arm.model, messages: [{ role: 'user', content: text }], max_tokens: outputTokens, temperature: 0, seed: 1, ...fields }
  return streamed(arm.url, headers, body, signal)
}

/** Different from the first word on for each number. */
function textOf(number: number, tokens: number): string {
  const passages = Corpus.load().passages.map(({ title, text }) => `${title}: ${text}`)
  const turned = [...passages.slice(number % passages.length), ...passages.slice(0, number % passages.length)].join('\n')
  const characters = Math.round(tokens * CHARACTERS_PER_TOKEN)
  return `Report ${number}. Write a very long story about all of this.\n${turned.repeat(1 + Math.floor(characters / turned.length)).slice(0, characters)}`
}

// ---------------------------------------------------------------- the result

/** Where all decoded at once in both arms, that; else with the waiting in line, in both. */
function ratioOf(samples: Samples, ours: Ours, peer: PeerArm): Interval {
  const a = samples.get(ours) ?? []
  const b = samples.get(peer) ?? []
  const together = [...a, ...b].every((sample) => sample.together !== null)
  const figures = (of: typeof a): number[] => of.map((sample) => (together ? sample.together ?? 0 : sample.whole))
  return pairedRatio([{ base: figures(a), other: figures(b) }], median)
}

function resultOf(found: ReadonlyMap<Point, Samples>, quick: boolean): BenchResult {
  const points = [...found].map(([point, samples]) => ({ point, samples }))
  const text = columns([
    ['', ...ARMS.map((name) => `${name}, tokens/s`), ...OURS.flatMap((ours) => PEERS.map((peer) => `${ours} / ${peer}`))],
    ...points.map(({ point, samples }) => [
      nameOf(point),
      ...ARMS.map((name) => median((samples.get(name) ?? []).map(({ together, whole }) => together ?? whole)).toFixed(1)),
      ...OURS.flatMap((ours) => PEERS.map((peer) => spread(ratioOf(samples, ours, peer)))),
    ]),
  ], 'lrrrrrrrr').join('\n')
  const bars = PEERS.flatMap((peer) => [
    ...points.map(({ point, samples }) => plainBar(point, peer, ratioOf(samples, 'plain', peer))),
    ...exactBars(points.map(({ point, samples }) => ({ point, over: ratioOf(samples, 'exact', peer) })), peer),
  ])
  const left = quick ? ['contexts of 1,024, batches of 8, prompts of 2,048 (--quick)', ...NOT_MEASURED] : NOT_MEASURED
  return { bars, text, figures: { points: points.map(({ point, samples }) => ({ point, samples: Object.fromEntries(samples) })) }, notMeasured: left }
}

const idOf = (point: Point, peer: PeerArm): string => `${nameOf(point).replaceAll(' ', '-')}-over-${peer.replaceAll(/,? /g, '-')}`

const plainBar = (point: Point, peer: PeerArm, over: Interval): Bar =>
  bar(`plain-${idOf(point, peer)}`, over, 'x', `interval above ${PARITY_MIN}`, over.low > PARITY_MIN)

function exactBars(points: readonly { readonly point: Point; readonly over: Interval }[], peer: PeerArm): Bar[] {
  const decodes = points.filter(({ point }) => point.kind === 'decode').map(({ over }) => over)
  const mean = { value: geometric(decodes.map(({ value }) => value)), low: geometric(decodes.map(({ low }) => low)), high: geometric(decodes.map(({ high }) => high)) }
  return [
    bar(`exact-decode-mean-over-${peer.replaceAll(/,? /g, '-')}`, mean, 'x', `above ${PARITY_MIN}`, mean.value > PARITY_MIN),
    ...points.map(({ point, over }) => bar(`exact-${idOf(point, peer)}`, over, 'x', `above ${EXACT_MIN}`, over.value > EXACT_MIN)),
  ]
}

const geometric = (values: readonly number[]): number => Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / Math.max(1, values.length))

const spread = ({ value, low, high }: Interval): string => `${value.toFixed(2)} (${low.toFixed(2)}-${high.toFixed(2)})`
