/**
 * Owns the bench of our door against llama.cpp's own server: tokens a second as an OpenAI client sees them, the same
 * model, machine and minutes. Servers stand side by side and take turns; contexts are read once a server and used again.
 */
import { setMaxListeners } from 'node:events'
import { availableParallelism, loadavg } from 'node:os'
import { columns } from '../src/core/explain/explain-text.ts'
import { Corpus } from '../src/eval/corpus.ts'
import { median, pairedRatio, type Interval } from '../src/eval/stats.ts'
import { resolveModel } from '../src/models/resolve.ts'
import { bar, type Bar, type Bench, type BenchResult, type BenchWorld } from './bench.ts'
import { ARMS, OURS, PEERS, startArm, type Arm, type ArmName, type Ours, type PeerArm, type Served } from './parity-servers.ts'
import { peerProgram } from './peer.ts'
import { randomModel } from './random-model.ts'
import { rateOf, StreamFault, streamed, type Streamed } from './token-stream.ts'

/** What is measured: so many calls that decode at once behind contexts of so many tokens, or a prompt of so many. */
type Point =
  | { readonly kind: 'decode'; readonly batch: number; readonly contextTokens: number }
  | { readonly kind: 'prefill'; readonly tokens: number }

/** A model and what is measured of it. */
interface Subject extends Served {
  /** Of its points. */
  readonly label: string
  readonly charactersPerToken: number
  readonly points: readonly Point[]
}

const REPEATS = 6
const REPEATS_QUICK = 4
const OUTPUT_TOKENS = 32
/** Of the corpus, with the default model's tokenizer; those of models written here have a token a byte. */
const CHARACTERS_PER_TOKEN = 4.57
/** Of a context: room for its frame and what is generated; of a prompt: for what the estimate misses. */
const SPARE_TOKENS = 512
/** The best of the point may not be lower than this with exactness off, the mean of decode with it on. */
const PARITY_MIN = 0.95
const EXACT_MIN = 0.85

const NOT_MEASURED = [
  'other models, quantisations and processors; accelerators',
  'sampling other than greedy, grammars, tools',
  'decoding beside prefills',
]

type Samples = ReadonlyMap<ArmName, readonly Rated[]>
type Found = Map<string, { readonly point: Point; readonly samples: Samples }>

export const engineParity: Bench = {
  name: 'engine-parity',
  what: 'tokens a second of our door over llama-server\'s: decode by batch and context, prefill',
  needsModel: true,
  run: async (world) => {
    peerProgram()
    setMaxListeners(0, world.signal)
    const found: Found = new Map()
    const failed: string[] = []
    const loadBefore = loadavg()[0] ?? 0
    for (const subject of await subjectsOf(world)) {
      const arms: Arm[] = []
      try {
        for (const arm of ARMS) arms.push(await startArm(world, arm, subject))
        for (const point of subject.points) {
          const name = nameOf(subject, point)
          const samples = await measuredOr(() => measure(world, arms, subject, point), (why) => failed.push(`${name}: ${why}`))
          if (samples !== null) found.set(name, { point, samples })
        }
      } finally {
        await Promise.allSettled(arms.map((arm) => arm.close()))
      }
    }
    return resultOf(found, failed, world.quick, loadBefore)
  },
}

// ---------------------------------------------------------------- what is measured

const decodes = (batches: readonly number[], contextTokens: number): Point[] => batches.map((batch) => ({ kind: 'decode', batch, contextTokens }))
const prefills = (lengths: readonly number[]): Point[] => lengths.map((tokens) => ({ kind: 'prefill', tokens }))

async function subjectsOf({ quick, model, signal }: BenchWorld): Promise<readonly Subject[]> {
  const small = await resolveModel({ model, env: process.env, signal })
  const random = await randomModel()
  const large = await resolveModel({ model: random, env: process.env, signal })
  const points = quick ? [...decodes([1, 4, 16], 256), ...prefills([512])]
    : [...decodes([1, 4, 8, 16], 256), ...decodes([1, 4, 8, 16], 1_024), ...prefills([512, 2_048])]
  const largePoints = quick ? decodes([4], 128) : [...decodes([1, 8], 128), ...prefills([256])]
  return [
    { ...roomFor(points), model, path: small.path, name: small.name, isNoise: model === 'tiny', label: '', charactersPerToken: model === 'tiny' ? 1 : CHARACTERS_PER_TOKEN, points },
    { ...roomFor(largePoints), model: random, path: large.path, name: large.name, isNoise: true, label: '0.6 B, ', charactersPerToken: 1, points: largePoints },
  ]
}

/** Lanes for the largest batch, of the longest text. */
function roomFor(points: readonly Point[]): { readonly lanes: number; readonly laneTokens: number } {
  const tokens = Math.max(...points.map((point) => (point.kind === 'decode' ? point.contextTokens : point.tokens)))
  return { lanes: Math.max(...points.map((point) => (point.kind === 'decode' ? point.batch : 1))), laneTokens: tokens + SPARE_TOKENS }
}

const nameOf = ({ label }: Subject, point: Point): string =>
  label + (point.kind === 'decode' ? `decode ${point.batch} x ${point.contextTokens}` : `prefill ${point.tokens}`)

/** A point at which a server ends with an error of its own is left out, and said: the others stand. Null: it is such a one. */
async function measuredOr(measured: () => Promise<Samples>, failed: (why: string) => void): Promise<Samples | null> {
  try {
    return await measured()
  } catch (error) {
    if (!(error instanceof StreamFault)) throw error
    failed(error.message)
    return null
  }
}

interface Rated { readonly together: number | null; readonly whole: number }

async function measure(world: BenchWorld, arms: readonly Arm[], subject: Subject, point: Point): Promise<Samples> {
  const repeats = world.quick ? REPEATS_QUICK : REPEATS
  const samples = new Map<ArmName, Rated[]>(ARMS.map((name) => [name, []]))
  // The first of each is not counted: contexts are read in it, and threads and caches are warm after it.
  for (let repeat = -1; repeat < repeats; repeat += 1) {
    for (let at = 0; at < arms.length; at += 1) {
      const arm = arms[(at + repeat + arms.length) % arms.length]
      if (arm === undefined) continue
      const rate = point.kind === 'decode' ? await decode(arm, subject, point, repeat, world.signal) : await prefill(arm, subject, point.tokens, repeat, world.signal)
      if (repeat >= 0) samples.get(arm.name)?.push(rate)
      world.say(`${nameOf(subject, point)}, ${repeat + 1} of ${repeats}, ${arm.name}: ${(rate.together ?? rate.whole).toFixed(1)} tokens/s`)
    }
  }
  return samples
}

async function decode(
  arm: Arm, subject: Subject, { batch, contextTokens }: Extract<Point, { kind: 'decode' }>, repeat: number, signal: AbortSignal,
): Promise<Rated> {
  const contexts = Array.from({ length: batch }, (_, context) => context)
  const outputTokens = repeat < 0 ? 2 : OUTPUT_TOKENS
  const streams = await Promise.all(contexts.map((context) => ask(arm, context, textOf(context, contextTokens, subject), outputTokens, signal)))
  return repeat < 0 ? { together: null, whole: 0 } : rateOf(streams)
}

/** Each prompt is new from its first word on. */
async function prefill(arm: Arm, subject: Subject, tokens: number, repeat: number, signal: AbortSignal): Promise<Rated> {
  const stream = await ask(arm, 0, textOf(1_000 + repeat, tokens, subject), 1, signal)
  return { together: null, whole: (stream.promptTokens / ((stream.eventMs[0] ?? Infinity) - stream.sentMs)) * 1_000 }
}

function ask(arm: Arm, context: number, text: string, outputTokens: number, signal: AbortSignal): Promise<Streamed> {
  const { headers, fields } = arm.request(context)
  const body = { model: arm.model, messages: [{ role: 'user', content: text }], max_tokens: outputTokens, temperature: 0, seed: 1, ...fields }
  return streamed(arm.url, headers, body, signal)
}

/** Different from the first word on for each number. */
function textOf(number: number, tokens: number, { charactersPerToken }: Subject): string {
  const passages = Corpus.load().passages.map(({ title, text }) => `${title}: ${text}`)
  const turned = [...passages.slice(number % passages.length), ...passages.slice(0, number % passages.length)].join('\n')
  const characters = Math.round(tokens * charactersPerToken)
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

function resultOf(found: Found, failed: readonly string[], quick: boolean, loadBefore: number): BenchResult {
  const load = [loadBefore, loadavg()[0] ?? 0] as const
  const table = columns([
    ['', ...ARMS.map((name) => `${name}, tokens/s`), ...OURS.flatMap((ours) => PEERS.map((peer) => `${ours} / ${peer}`))],
    ...[...found].map(([name, { samples }]) => [
      name,
      ...ARMS.map((arm) => median((samples.get(arm) ?? []).map(({ together, whole }) => together ?? whole)).toFixed(1)),
      ...OURS.flatMap((ours) => PEERS.map((peer) => spread(ratioOf(samples, ours, peer)))),
    ]),
  ], 'lrrrrrrrr').join('\n')
  const text = `${table}\n\nload of the machine, a minute's: ${load[0].toFixed(2)} before, ${load[1].toFixed(2)} at the end; processors: ${availableParallelism()}`
  const rest = [...failed, ...NOT_MEASURED]
  const left = quick ? ['contexts of 1,024, batches of 8, prompts of 2,048 (--quick)', ...rest] : rest
  const figures = { load, points: [...found].map(([name, { point, samples }]) => ({ name, point, samples: Object.fromEntries(samples) })) }
  return { bars: PEERS.flatMap((peer) => [...plainBars(found, peer), ...exactBars(found, peer)]), text, figures, notMeasured: left }
}

const idOf = (name: string): string => name.replaceAll(/[ ,]+/g, '-')

const plainBars = (found: Found, peer: PeerArm): Bar[] => [...found].map(([name, { samples }]) => {
  const over = ratioOf(samples, 'plain', peer)
  return bar(idOf(`plain ${name} over ${peer}`), over, 'x', `interval above ${PARITY_MIN}`, over.low > PARITY_MIN)
})

function exactBars(found: Found, peer: PeerArm): Bar[] {
  const points = [...found].map(([name, { point, samples }]) => ({ name, point, over: ratioOf(samples, 'exact', peer) }))
  const decodes = points.filter(({ point }) => point.kind === 'decode').map(({ over }) => over)
  const mean = { value: geometric(decodes.map(({ value }) => value)), low: geometric(decodes.map(({ low }) => low)), high: geometric(decodes.map(({ high }) => high)) }
  return [
    bar(idOf(`exact decode mean over ${peer}`), mean, 'x', `above ${PARITY_MIN}`, mean.value > PARITY_MIN),
    ...points.map(({ name, over }) => bar(idOf(`exact ${name} over ${peer}`), over, 'x', `above ${EXACT_MIN}`, over.value > EXACT_MIN)),
  ]
}

const geometric = (values: readonly number[]): number => Math.exp(values.reduce((sum, value) => sum + Math.log(value), 0) / Math.max(1, values.length))

const spread = ({ value, low, high }: Interval): string => `${value.toFixed(2)} (${low.toFixed(2)}-${high.toFixed(2)})`
