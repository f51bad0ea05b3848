/**
 * Owns the bench of what States that others hold cost those that decode: one that moves out of its lane and in again, and
 * lanes that are parked. One engine by itself, so that nothing but the move goes on beside the decodes.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { columns } from '../src/core/explain/explain-text.ts'
import { median, pairedRatio, quantile, type Interval } from '../src/eval/stats.ts'
import { defaultConfig } from '../src/config.ts'
import { resolveModel } from '../src/models/resolve.ts'
import { bar, type Bar, type Bench, type BenchResult, type BenchWorld } from './bench.ts'
import { LoneEngine, type Came, type Parked } from './lone-engine.ts'

/** Who decodes behind contexts of so many tokens, and the State that moves meanwhile. */
interface Moving { readonly kind: 'moving'; readonly running: number; readonly contextTokens: number; readonly stateTokens: number }
/** Who decodes, and how many lanes of so many tokens are parked beside. */
interface Lying { readonly kind: 'parked'; readonly running: number; readonly contextTokens: number; readonly parked: number }
type Point = Moving | Lying

const POINTS: readonly Point[] = [
  { kind: 'moving', running: 8, contextTokens: 1_024, stateTokens: 4_096 },
  { kind: 'moving', running: 2, contextTokens: 1_024, stateTokens: 4_096 },
  { kind: 'parked', running: 4, contextTokens: 512, parked: 12 },
]
const POINTS_QUICK: readonly Point[] = [
  { kind: 'moving', running: 4, contextTokens: 256, stateTokens: 1_024 },
  { kind: 'parked', running: 4, contextTokens: 128, parked: 6 },
]
const REPEATS = 12
const REPEATS_QUICK = 6
/** Undisturbed, after each disturbed stretch, and as long as that at least. */
const STILL_MS_MIN = 1_500
/** More than they decode in the time that is measured. */
const OUTPUT_TOKENS = { moving: 2_000, parked: 700 } as const
const MARGIN_TOKENS = 64
const KEPT_MIN = 0.9
/** With fewer than eight that decode, whose tokens come quickly, a gap may be so much above the median. */
const GAP_MS_MAX = 100
const MANY = 8

const NOT_MEASURED = [
  'several States that move at once: the engine copies one between two batches, and the next waits',
  'images on a disk: here they lie in memory-backed storage, as by default',
  'other models and processors; accelerators',
]

/** Tokens a second of all who decode, in turns: while something is moved or parked, and while nothing is. */
interface Found { readonly point: Point; readonly disturbed: readonly number[]; readonly still: readonly number[]; readonly gapsMs: readonly number[]; readonly stillGapsMs: readonly number[]; readonly movesMs: readonly number[] }

export const interference: Bench = {
  name: 'interference',
  what: 'decode tokens a second of others while a State moves, and beside parked ones',
  needsModel: true,
  parts: ['moving', 'parked'],
  run: async (world) => {
    const { path } = await resolveModel({ model: world.model, env: process.env, signal: world.signal })
    const found: Found[] = []
    for (const point of (world.quick ? POINTS_QUICK : POINTS).filter(({ kind }) => world.only === null || world.only === kind)) {
      found.push(point.kind === 'moving' ? await measureMoving(world, path, point) : await measureParked(world, path, point))
    }
    return resultOf(found, world.quick)
  },
}

const [standard] = defaultConfig().engines
const THREADS = standard?.kind === 'embedded' ? standard.threads : 1

// ---------------------------------------------------------------- a State that moves

async function measureMoving(world: BenchWorld, modelPath: string, point: Moving): Promise<Found> {
  const { running, contextTokens, stateTokens } = point
  world.say(`${nameOf(point)}: reading ${stateTokens} and ${running} x ${contextTokens} tokens`)
  const laneTokens = Math.max(stateTokens, contextTokens + OUTPUT_TOKENS.moving) + MARGIN_TOKENS
  const engine = await LoneEngine.start({ modelPath, lanes: running + 1, laneTokens, threads: THREADS })
  try {
    const mover = await engine.park(0, stateTokens)
    const decodes = await decodesOf(engine, running, contextTokens, OUTPUT_TOKENS.moving)
    return { point, ...await takeTurns(world, point, decodes, () => engine.outAndIn(mover)) }
  } finally {
    await engine.close()
  }
}

async function takeTurns(world: BenchWorld, point: Point, decodes: readonly Decode[], disturb: () => Promise<number>): Promise<Omit<Found, 'point'>> {
  const found = { disturbed: [] as number[], still: [] as number[], gapsMs: [] as number[], stillGapsMs: [] as number[], movesMs: [] as number[] }
  for (let repeat = 0; repeat < (world.quick ? REPEATS_QUICK : REPEATS); repeat += 1) {
    const fromMs = performance.now()
    found.movesMs.push(await disturb())
    const toMs = performance.now()
    await sleep(Math.max(STILL_MS_MIN, toMs - fromMs), undefined, { signal: world.signal })
    const endMs = performance.now()
    found.disturbed.push(rateOf(decodes, fromMs, toMs))
    found.still.push(rateOf(decodes, toMs, endMs))
    found.gapsMs.push(...gapsOf(decodes, fromMs, toMs))
    found.stillGapsMs.push(...gapsOf(decodes, toMs, endMs))
    world.say(`${nameOf(point)}, ${repeat + 1}: ${(found.disturbed.at(-1) ?? 0).toFixed(1)} tokens/s over ${((toMs - fromMs)).toFixed(0)} ms, ${(found.still.at(-1) ?? 0).toFixed(1)} undisturbed`)
  }
  return found
}

// ---------------------------------------------------------------- lanes that are parked

/** First with States in the other lanes, then with those lanes empty; the same lanes run both times. */
async function measureParked(world: BenchWorld, modelPath: string, point: Lying): Promise<Found> {
  const { running, contextTokens, parked } = point
  const laneTokens = contextTokens + OUTPUT_TOKENS.parked + MARGIN_TOKENS
  const engine = await LoneEngine.start({ modelPath, lanes: running + parked, laneTokens, threads: THREADS })
  try {
    world.say(`${nameOf(point)}: reading`)
    const states: Parked[] = []
    for (let number = 0; number < parked; number += 1) states.push(await engine.park(100 + number, contextTokens))
    const found = { disturbed: [] as number[], still: [] as number[] }
    for (const into of [found.disturbed, found.still]) {
      const decodes = await decodesOf(engine, running, contextTokens, OUTPUT_TOKENS.parked)
      for (let repeat = 0; repeat < (world.quick ? REPEATS_QUICK : REPEATS); repeat += 1) {
        const fromMs = performance.now()
        await sleep(STILL_MS_MIN, undefined, { signal: world.signal })
        into.push(rateOf(decodes, fromMs, performance.now()))
        world.say(`${nameOf(point)}, ${into === found.still ? 'lanes empty' : 'parked'}, ${repeat + 1}: ${(into.at(-1) ?? 0).toFixed(1)} tokens/s`)
      }
      for (const { cancel } of decodes) cancel()
      if (into === found.disturbed) for (const { state } of states) engine.discard(state)
    }
    return { point, ...found, gapsMs: [], stillGapsMs: [], movesMs: [] }
  } finally {
    await engine.close()
  }
}

// ---------------------------------------------------------------- what decodes

interface Decode { readonly came: readonly Came[]; cancel(): void }

async function decodesOf(engine: LoneEngine, running: number, contextTokens: number, outputTokens: number): Promise<Decode[]> {
  return await Promise.all(Array.from({ length: running }, (_, at) => engine.decode(1 + at, contextTokens, outputTokens)))
}

/** Of what came after the first event of the stretch up to its last. */
function rateOf(decodes: readonly Decode[], fromMs: number, toMs: number): number {
  return decodes.reduce((sum, { came }) => {
    const [before = null, ...inside] = stretch(came, fromMs, toMs)
    const lastMs = inside.at(-1)?.atMs ?? 0
    return before === null || inside.length === 0 ? sum : sum + inside.reduce((tokens, one) => tokens + one.tokens, 0) / (lastMs - before.atMs) * 1_000
  }, 0)
}

const gapsOf = (decodes: readonly Decode[], fromMs: number, toMs: number): number[] => decodes.flatMap(({ came }) => {
  const inside = stretch(came, fromMs, toMs)
  return inside.slice(1).map(({ atMs }, at) => atMs - (inside[at]?.atMs ?? 0))
})

/** With the last before it and the first after it, so that no gap that reaches into it is missed. */
function stretch(came: readonly Came[], fromMs: number, toMs: number): readonly Came[] {
  const first = came.findLastIndex(({ atMs }) => atMs <= fromMs)
  const last = came.findIndex(({ atMs }) => atMs >= toMs)
  return came.slice(Math.max(0, first), last === -1 ? undefined : last + 1)
}

// ---------------------------------------------------------------- the result

const nameOf = (point: Point): string => (point.kind === 'moving'
  ? `${point.running} x ${point.contextTokens} while ${point.stateTokens} move`
  : `${point.running} x ${point.contextTokens} beside ${point.parked} parked`)

const idOf = (point: Point): string => nameOf(point).replaceAll(' ', '-')

function resultOf(found: readonly Found[], quick: boolean): BenchResult {
  const text = columns([
    ['', 'tokens/s', 'undisturbed', 'ratio', 'gap ms, median', 'worst', 'worst undisturbed', 'out and in ms'],
    ...found.map((one) => [
      nameOf(one.point), median(one.disturbed).toFixed(1), median(one.still).toFixed(1), times(keptOf(one)),
      ...(one.gapsMs.length === 0 ? ['', '', '', ''] : [median(one.stillGapsMs).toFixed(0), Math.max(...one.gapsMs).toFixed(0), Math.max(...one.stillGapsMs).toFixed(0), median(one.movesMs).toFixed(0)]),
    ]),
  ], 'lrrrrrrr').join('\n')
  const left = quick ? ['States of 4,096 tokens, 8 that decode, contexts of 1,024 tokens, 12 that are parked (--quick)', ...NOT_MEASURED] : NOT_MEASURED
  return { bars: found.flatMap(barsOf), text, figures: { found }, notMeasured: left }
}

const keptOf = ({ disturbed, still }: Found): Interval => pairedRatio([{ base: disturbed, other: still }], median)

function barsOf(found: Found): Bar[] {
  const { point, gapsMs, stillGapsMs } = found
  const kept = keptOf(found)
  const bars = [bar(`kept-${idOf(point)}`, kept, 'x', `at least ${KEPT_MIN}`, kept.value >= KEPT_MIN)]
  if (gapsMs.length === 0) return bars
  const mostMs = point.running >= MANY ? 2 * median(stillGapsMs) : median(stillGapsMs) + GAP_MS_MAX
  const worst = { value: Math.max(...gapsMs), low: quantile(gapsMs, 0.95), high: Math.max(...gapsMs) }
  const want = `none over ${point.running >= MANY ? 'twice the median' : `the median and ${GAP_MS_MAX}`}: ${mostMs.toFixed(0)}`
  return [...bars, bar(`gap-${idOf(point)}`, worst, 'ms', want, worst.value <= mostMs)]
}

const times = ({ value, low, high }: Interval): string => `${value.toFixed(2)} (${low.toFixed(2)}-${high.toFixed(2)})`
