/**
 * Owns the bench of a call that goes before all others: the time from its arrival to its first token while eight long
 * decodes run, over the same on the idle server, with a lane to spare and with none. Through the door, as a client sees it.
 */
import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { columns } from '../src/core/explain/explain-text.ts'
import { Corpus } from '../src/eval/corpus.ts'
import { estimate, median, ratio, type Interval } from '../src/eval/stats.ts'
import { resolveModel } from '../src/models/resolve.ts'
import { bar, CannotRun, type Bench, type BenchResult, type BenchWorld } from './bench.ts'
import { startPeer } from './peer.ts'
import { serve } from './served.ts'
import { streamed } from './token-stream.ts'

const ARMS = ['a lane to spare', 'no lane to spare', 'no lane to spare, eager', 'llama-server, a place to spare', 'llama-server, no place to spare'] as const
type ArmName = (typeof ARMS)[number]
const OURS: readonly ArmName[] = ['a lane to spare', 'no lane to spare', 'no lane to spare, eager']

const DECODES = 8
const CONTEXT_TOKENS = 256
const LONG_TOKENS = 1_600
const LANE_TOKENS = 2_048
/** Prompts of the short call, frame included. */
const SHORT_TOKENS = [48, 128] as const
const SHORT_OUTPUT_TOKENS = 2
const ROUNDS = 4
const ROUNDS_QUICK = 2
const REPEATS = 5
const REPEATS_QUICK = 3
/** Between two short calls, so that what the one before it left behind is done with. */
const REST_MS = 400
/** What has no first token by then gets none: it waits for a decode to end. */
const FIRST_MS_MAX = 4_000
const CHARACTERS_PER_TOKEN = 4.57
const FRAME_TOKENS = 32
const OVER_IDLE_MAX = 1.3
const KEYS = { urgent: 'bench-urgent-key', long: 'bench-long-key' } as const
/** No rest after one gave way, and no end of giving way. */
const EAGER = { preemptionRestSeconds: 0, preemptionsMax: 1_000 }
const TENANTS = [{ name: 'urgent', key: KEYS.urgent, class: 'interactive' }, { name: 'long', key: KEYS.long, class: 'default' }]

const NOT_MEASURED = [
  'more than one call that goes before the others at once',
  'prompts of several chunks, between which the others decode',
  'other models and processors; accelerators',
]

interface Arm {
  readonly name: ArmName
  readonly url: string
  readonly model: string
  close(): Promise<void>
}

/** First tokens after milliseconds; Infinity where none came in time. */
interface Found { readonly idle: number[]; readonly busy: number[] }
type Sizes = ReadonlyMap<number, Found>

export const preempt: Bench = {
  name: 'preempt',
  what: 'first token of a call that outranks eight long decodes, over the idle server\'s',
  needsModel: true,
  run: async (world) => {
    setMaxListeners(0, world.signal)
    const { path, name } = await resolveModel({ model: world.model, env: process.env, signal: world.signal })
    const arms: Arm[] = []
    try {
      for (const arm of ARMS) {
        const started = await startArm(world, arm, path, name)
        if (started !== null) arms.push(started)
      }
      const found = new Map<ArmName, Sizes>(arms.map((arm) => [arm.name, new Map(SHORT_TOKENS.map((tokens) => [tokens, { idle: [], busy: [] }]))]))
      for (let round = 0; round < (world.quick ? ROUNDS_QUICK : ROUNDS); round += 1) {
        for (const arm of arms) await measure(world, arm, round, found.get(arm.name) ?? new Map())
      }
      return resultOf(found)
    } finally {
      await Promise.allSettled(arms.map((arm) => arm.close()))
    }
  },
}

// ---------------------------------------------------------------- the servers

/** Null: there is no llama-server here. */
async function startArm(world: BenchWorld, name: ArmName, modelPath: string, model: string): Promise<Arm | null> {
  world.say(`starting: ${name}`)
  const lanes = name.includes('no ') ? DECODES : DECODES + 1
  if (OURS.includes(name)) {
    const config = { tenants: TENANTS, core: name.endsWith('eager') ? EAGER : {}, engines: [{ id: 'local', kind: 'embedded', model: world.model, lanes, laneTokens: LANE_TOKENS }] }
    return { name, model, ...await serve(config, world.signal, { key: KEYS.urgent }) }
  }
  const flags = ['-np', String(lanes), '--no-kv-unified', '-c', String(lanes * LANE_TOKENS), '--cache-ram', '0']
  try {
    return { name, model, ...await startPeer(modelPath, flags, world.signal) }
  } catch (error) {
    if (!(error instanceof CannotRun)) throw error
    world.say(`without it: ${error.message}`)
    return null
  }
}

// ---------------------------------------------------------------- a round

async function measure(world: BenchWorld, arm: Arm, round: number, sizes: Sizes): Promise<void> {
  const repeats = world.quick ? REPEATS_QUICK : REPEATS
  const each = async (take: (tokens: number, found: Found, text: string) => Promise<void>): Promise<void> => {
    for (let repeat = 0; repeat < repeats; repeat += 1) {
      for (const [tokens, found] of sizes) {
        await take(tokens, found, textOf(round * 100 + repeat, tokens))
        await sleep(REST_MS, undefined, { signal: world.signal })
      }
    }
  }
  if (round === 0) await firstTokenMs(arm, textOf(99, SHORT_TOKENS[0]), world.signal)
  await each(async (_, found, text) => { found.idle.push(await firstTokenMs(arm, `Now. ${text}`, world.signal)) })
  const load = await startLoad(arm, round, world.signal)
  await each(async (tokens, found, text) => {
    found.busy.push(await firstTokenMs(arm, `Then. ${text}`, world.signal))
    world.say(`${arm.name}, round ${round + 1}, ${tokens} tokens: ${shown(found.busy.at(-1) ?? 0)} after idle ${shown(median(found.idle))}`)
  })
  await load.end()
}

async function firstTokenMs(arm: Arm, text: string, signal: AbortSignal): Promise<number> {
  const late = AbortSignal.timeout(FIRST_MS_MAX)
  try {
    const { sentMs, eventMs } = await ask(arm, KEYS.urgent, text, SHORT_OUTPUT_TOKENS, AbortSignal.any([signal, late]))
    return (eventMs[0] ?? Infinity) - sentMs
  } catch (error) {
    if (late.aborted && !signal.aborted) return Infinity
    throw error
  }
}

/** Resolves when all of them decode. */
async function startLoad(arm: Arm, round: number, signal: AbortSignal): Promise<{ end(): Promise<void> }> {
  const over = new AbortController()
  const stop = (): void => over.abort()
  signal.addEventListener('abort', stop, { once: true })
  const begun: Promise<unknown>[] = []
  const ended = Array.from({ length: DECODES }, (_, at) => {
    const text = textOf(1_000 + round * DECODES + at, CONTEXT_TOKENS)
    let first: () => void = () => undefined
    begun.push(new Promise<void>((resolve) => { first = resolve }))
    return ask(arm, KEYS.long, text, LONG_TOKENS, over.signal, () => first()).finally(first)
  })
  await Promise.all(begun)
  return {
    end: async () => {
      over.abort()
      signal.removeEventListener('abort', stop)
      const outcomes = await Promise.allSettled(ended)
      const early = outcomes.filter(({ status }) => status === 'fulfilled').length
      if (early > 0) throw new Error(`${early} of ${DECODES} long decodes ended before they were ended: the figures would be of fewer`)
    },
  }
}

const ask = (arm: Arm, key: string, text: string, outputTokens: number, signal: AbortSignal, begun: () => void = () => undefined) =>
  streamed(arm.url, { authorization: `Bearer ${key}` }, {
    model: arm.model, messages: [{ role: 'user', content: text }], max_tokens: outputTokens, temperature: 0, seed: 1, ignore_eos: true,
  }, signal, begun)

/** Different from the first word on for each number. */
function textOf(number: number, tokens: number): string {
  const passages = Corpus.load().passages.map(({ title, text }) => `${title}: ${text}`)
  const turned = [...passages.slice(number % passages.length), ...passages.slice(0, number % passages.length)].join('\n')
  return `${number}: ${turned}`.slice(0, Math.round((tokens - FRAME_TOKENS) * CHARACTERS_PER_TOKEN))
}

// ---------------------------------------------------------------- the result

function resultOf(found: ReadonlyMap<ArmName, Sizes>): BenchResult {
  const rows = [...found].flatMap(([name, sizes]) => [...sizes].map(([tokens, of]) => ({ name, tokens, of, over: overIdle(of) })))
  const text = columns([
    ['', 'prompt', 'idle ms', 'among 8 decodes ms', 'over idle'],
    ...rows.map(({ name, tokens, of, over }) => [name, String(tokens), spread(of.idle), spread(of.busy), times(over)]),
  ], 'lrrrr').join('\n')
  const bars = rows.filter(({ name }) => name === OURS[0]).map(({ tokens, over }) =>
    bar(`first-token-over-idle-${tokens}`, over, 'x', `at most ${OVER_IDLE_MAX}`, over.value <= OVER_IDLE_MAX))
  const missing = found.size === ARMS.length ? [] : ['llama-server, which is not here (npm run peer)']
  const figures = Object.fromEntries([...found].map(([name, sizes]) => [name, Object.fromEntries(sizes)]))
  return { bars, text, figures, notMeasured: [...missing, ...NOT_MEASURED] }
}

const overIdle = ({ idle, busy }: Found): Interval => ratio(busy.map((ms) => Math.min(ms, FIRST_MS_MAX)), idle, median)

const shown = (ms: number): string => (Number.isFinite(ms) ? `${ms.toFixed(0)} ms` : `more than ${FIRST_MS_MAX} ms`)

function spread(ms: readonly number[]): string {
  if (!Number.isFinite(median(ms))) return `> ${FIRST_MS_MAX}`
  const { value, low, high } = estimate(ms.map((one) => Math.min(one, FIRST_MS_MAX)), median)
  return `${value.toFixed(0)} (${low.toFixed(0)}-${high.toFixed(0)})`
}

const times = ({ value, low, high }: Interval): string => `${value.toFixed(2)} (${low.toFixed(2)}-${high.toFixed(2)})`
