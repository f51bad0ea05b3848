/**
 * Owns the bench of one resume: time to first token after a tool result, by where the State waited. Five servers, one for
 * each way, stand side by side and take turns, so that all are measured on the same machine in the same minutes. The
 * program is the same everywhere: a quarter of its context was generated, and its tool result is eight tokens.
 */
import { columns } from '../src/core/explain/explain-text.ts'
import type { Arm } from '../src/eval/arm.ts'
import { startArm, type ArmServer } from '../src/eval/arm-server.ts'
import type { MixEngine } from '../src/eval/mix.ts'
import { estimate, median, ratio, type Interval } from '../src/eval/stats.ts'
import { bar, type Bar, type Bench, type BenchResult, type BenchWorld } from './bench.ts'
import { makeCold, whyWarm } from './page-cache.ts'
import { ResumeProgram, type Resumed } from './resume-program.ts'

const WAYS = ['preserved', 'offloaded', 'on disk', 'discarded, exact', 'discarded, plain'] as const
type Way = (typeof WAYS)[number]

const ARMS: Readonly<Record<Way, Arm>> = {
  'preserved': { name: 'preserved', order: 'fcfs-program', residency: 'always-preserve', exactResume: true },
  'offloaded': { name: 'offloaded', order: 'fcfs-program', residency: 'always-offload', exactResume: true },
  'on disk': { name: 'on disk', order: 'fcfs-program', residency: 'always-offload', exactResume: true, images: 'disk' },
  'discarded, exact': { name: 'discarded, exact', order: 'fcfs-program', residency: 'always-discard', exactResume: true },
  'discarded, plain': { name: 'discarded, plain', order: 'fcfs-program', residency: 'always-discard', exactResume: false },
}

/** Where each way leaves the State while the tool runs. */
const RESTS: Readonly<Record<Way, 'device' | 'host' | 'gone'>> = {
  'preserved': 'device', 'offloaded': 'host', 'on disk': 'host', 'discarded, exact': 'gone', 'discarded, plain': 'gone',
}

const SIZES = [2_048, 4_096] as const
const SIZES_QUICK = [1_024] as const
const REPEATS = 5
const REPEATS_QUICK = 3
const SPEEDUP_MIN = 50
const SPEEDUP_AT = 4_096
/** A context grows with each repeat; the rest is room for its answers. */
const LANE_MARGIN_TOKENS = 1_024

const NOT_MEASURED = [
  'resumes beside other programs: here nobody waits and nobody runs',
  'a copy on another machine',
  'accelerators, where copying is dearer against reading',
  'States that share a prefix',
]

export const resume: Bench = {
  name: 'resume',
  what: 'time to first token after a tool result: preserved, offloaded, on disk, discarded',
  needsModel: true,
  run: async (world) => {
    const sizes = world.quick ? SIZES_QUICK : SIZES
    const engine: MixEngine = { lanes: 2, laneTokens: Math.max(...sizes) + LANE_MARGIN_TOKENS, hostMiB: 1_024, kvBytesPerToken: 23_040 }
    const servers = new Map<Way, ArmServer>()
    try {
      for (const way of WAYS) servers.set(way, await startArm(world.start, ARMS[way], engine, world.model, world.signal))
      const found: Sized[] = []
      for (const tokens of sizes) found.push({ tokens, ways: await measureSize(world, servers, tokens) })
      return resultOf(found, world.quick, whyWarm())
    } finally {
      await Promise.allSettled([...servers.values()].map((server) => server.close()))
    }
  },
}

interface Sized { readonly tokens: number; readonly ways: ReadonlyMap<Way, readonly Resumed[]> }

async function measureSize(world: BenchWorld, servers: ReadonlyMap<Way, ArmServer>, tokens: number): Promise<ReadonlyMap<Way, readonly Resumed[]>> {
  const repeats = world.quick ? REPEATS_QUICK : REPEATS
  const isCold = whyWarm() === null
  const programs = new Map<Way, ResumeProgram>()
  const found = new Map<Way, Resumed[]>(WAYS.map((way) => [way, []]))
  for (const [way, server] of servers) {
    const program = new ResumeProgram({ url: server.url, model: server.model, id: `resume-${tokens}`, signal: world.signal })
    programs.set(way, program)
    const built = await program.build(tokens, repeats)
    world.say(`${tokens} tokens, ${way}: context of ${built.contextTokens} tokens, ${built.generatedTokens} of them generated`)
  }
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    for (const [way, program] of programs) {
      if (repeat > 0) await program.askTool()
      await program.rest(RESTS[way])
      if (way === 'on disk' && isCold) makeCold(servers.get(way)?.imagesDir ?? '')
      const resumed = await program.answerTool()
      found.get(way)?.push(resumed)
      world.say(`${tokens} tokens, ${way}, ${repeat + 1} of ${repeats}: ${resumed.firstTokenMs.toFixed(0)} ms`)
    }
  }
  for (const program of programs.values()) await program.finish()
  return found
}

function resultOf(found: readonly Sized[], quick: boolean, warm: string | null): BenchResult {
  const cold = warm === null ? [] : [`a file that its disk has to read: ${warm}`]
  const notMeasured = quick ? [`2,048 and 4,096 tokens, and with them the speed-up that is wanted at ${SPEEDUP_AT} (--quick)`, ...cold, ...NOT_MEASURED] : [...cold, ...NOT_MEASURED]
  return { bars: found.flatMap(barsOf), text: found.map(sizeTable).join('\n\n'), figures: figuresOf(found), notMeasured }
}

const firstTokens = ({ ways }: Sized, way: Way): readonly number[] => (ways.get(way) ?? []).map(({ firstTokenMs }) => firstTokenMs)
const withoutPrefill = ({ ways }: Sized, way: Way): readonly number[] => (ways.get(way) ?? []).map(({ firstTokenMs, prefillMs }) => Math.max(0, firstTokenMs - prefillMs))

function barsOf(sized: Sized): Bar[] {
  const over = (way: Way, other: Way): Interval => ratio(firstTokens(sized, way), firstTokens(sized, other), median)
  const preserved = over('offloaded', 'preserved')
  const bars = [bar(`preserved-no-slower-${sized.tokens}`, preserved, 'x', 'offloaded over preserved: interval reaches 1', preserved.high >= 1)]
  if (sized.tokens !== SPEEDUP_AT) return bars
  const disk = over('discarded, plain', 'on disk')
  bars.push(bar(`on-disk-over-discarded-plain-${sized.tokens}`, disk, 'x', 'above 1', disk.low > 1))
  for (const way of ['discarded, exact', 'discarded, plain'] as const) {
    const speedup = over(way, 'offloaded')
    bars.push(bar(`offloaded-over-${way.replace(', ', '-')}-${sized.tokens}`, speedup, 'x', `at least ${SPEEDUP_MIN}`, speedup.value >= SPEEDUP_MIN))
  }
  return bars
}

function sizeTable(sized: Sized): string {
  const base = median(firstTokens(sized, 'offloaded'))
  const rows = WAYS.map((way) => {
    const all = estimate(firstTokens(sized, way), median)
    const bare = estimate(withoutPrefill(sized, way), median)
    const tokens = median((sized.ways.get(way) ?? []).map(({ contextTokens }) => contextTokens))
    return [way, String(Math.round(tokens)), spread(all), spread(bare), `${(all.value / base).toFixed(1)}x`]
  })
  return [`${sized.tokens} tokens of context`, ...columns([['way', 'tokens', 'first token ms', 'without the new prefill', 'over offloaded'], ...rows], 'lrrrr')].join('\n')
}

const spread = ({ value, low, high }: Interval): string => `${value.toFixed(0)} (${low.toFixed(0)}-${high.toFixed(0)})`

const figuresOf = (found: readonly Sized[]): object => ({
  sizes: found.map(({ tokens, ways }) => ({ tokens, ways: Object.fromEntries(ways) })),
})
