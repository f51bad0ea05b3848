/**
 * Owns the bench of the demo's mix: orders times residencies, five seeds of arrivals and tool times, in one budget of
 * memory. Arms take turns within a seed, beginning with another each time, so that a machine that grows slow favours none.
 */
import type { OrderName } from '../src/core/config.ts'
import { columns, size } from '../src/core/explain/explain-text.ts'
import { armOf, ENGINES_TODAY, ENTRACTE, ORDERS, type Arm } from '../src/eval/arm.ts'
import { startArm } from '../src/eval/arm-server.ts'
import { fitTo, loadMix, planArrivals, type Mix } from '../src/eval/mix.ts'
import { runMix, type MixOutcome } from '../src/eval/mix-run.ts'
import { figuresOf, programMs } from '../src/eval/report.ts'
import { estimate, mean, pairedRatio, quantile, type Interval, type PairedRun } from '../src/eval/stats.ts'
import { bar, type Bench, type BenchResult, type BenchWorld } from './bench.ts'

const QUICK_SEEDS = 2
const MEAN_RATIO_MIN = 1.3
const P95_RATIO_MIN = 1

const NOT_MEASURED = [
  'other mixes, and other ratios of contexts to memory: one mix, at 3 times the lanes',
  'other machines: the arrivals and waits are fixed times, so on a faster machine there is less to win, on a slower one more',
  'accelerators, where reading is cheaper and copying to host dearer against it',
  'other models, and models that choose their tools themselves',
  'several tenants, classes and deadlines',
  'the time alone of each seed: it is measured once without waits, and the waits drawn are added',
]

/** `lru-host` recomputes plainly, as engines do. */
const allArms = (): readonly Arm[] => [
  ...ORDERS.flatMap((order: OrderName) => [armOf(order, 'lru-host'), armOf(order, 'least-cost')]),
  armOf(ENTRACTE.order, ENTRACTE.residency, false),
]

export const demoMix: Bench = {
  name: 'demo-mix',
  what: 'the demo\'s mix under orders times residencies: program times, and the default against engines as they are',
  needsModel: true,
  run: async (world) => {
    const mix = loadMix()
    const seeds = world.quick ? mix.seeds.slice(0, QUICK_SEEDS) : mix.seeds
    const arms = world.quick ? [ENGINES_TODAY, ENTRACTE] : allArms()
    const alone = await measureAlone(world, mix)
    const runs = new Map<string, SeedRun[]>(arms.map((arm) => [arm.name, []]))
    for (const [round, seed] of seeds.entries()) {
      for (let turn = 0; turn < arms.length; turn += 1) {
        const arm = arms[(turn + round) % arms.length]
        if (arm === undefined) continue
        const outcome = await measureArm(world, mix, arm, seed)
        runs.get(arm.name)?.push({ seed, outcome })
        const { meanMs, p95Ms, failed } = figuresOf(outcome)
        world.say(`seed ${seed}, ${arm.name}: mean ${seconds(meanMs)}, p95 ${seconds(p95Ms)}${failed === 0 ? '' : `, ${failed} failed`}`)
      }
    }
    return resultOf(arms, runs, alone, world.quick)
  },
}

interface SeedRun { readonly seed: number; readonly outcome: MixOutcome }

/** By program: its time with nobody else there and tools that take none. */
async function measureAlone(world: BenchWorld, mix: Mix): Promise<ReadonlyMap<string, number>> {
  const fit = fitTo(mix, world.model)
  const server = await startArm(world.start, ENTRACTE, fit.engine, world.model, world.signal)
  const times = new Map<string, number>()
  try {
    for (const program of mix.programs) {
      const { programs } = await runMix({
        endpoint: { url: server.url, headers: {} }, model: server.model, tokenScale: fit.tokenScale, seed: 0, prefix: 'alone-', notify: () => {}, signal: world.signal,
        arrivals: [{ program, atMs: 0, waitsMs: program.calls.map(() => 0) }],
      })
      for (const one of programs) times.set(program.name, programMs(one))
    }
  } finally {
    await server.close()
  }
  world.say(`alone and without waits: ${[...times].map(([name, ms]) => `${name} ${seconds(ms)}`).join(', ')}`)
  return times
}

async function measureArm(world: BenchWorld, mix: Mix, arm: Arm, seed: number): Promise<MixOutcome> {
  const fit = fitTo(mix, world.model)
  const server = await startArm(world.start, arm, fit.engine, world.model, world.signal)
  try {
    return await runMix({
      endpoint: { url: server.url, headers: {} }, model: server.model, tokenScale: fit.tokenScale, arrivals: planArrivals(mix, seed), seed, prefix: '',
      notify: () => {}, signal: world.signal,
    })
  } finally {
    await server.close()
  }
}

interface ArmFigures {
  readonly arm: string
  readonly mean: Interval
  readonly p95: Interval
  readonly worstMs: number
  readonly slowdown: Interval
  readonly longestWaitMs: number
  readonly recomputedTokens: number
  readonly movedBytes: number
  readonly failed: number
  readonly seeds: readonly { readonly seed: number; readonly programs: readonly { readonly name: string; readonly ms: number; readonly digest: string; readonly error: string | null }[] }[]
}

function resultOf(arms: readonly Arm[], runs: ReadonlyMap<string, readonly SeedRun[]>, alone: ReadonlyMap<string, number>, quick: boolean): BenchResult {
  const figures = arms.map((arm) => armFigures(arm, runs.get(arm.name) ?? [], alone))
  const paired = pair(runs.get(ENGINES_TODAY.name) ?? [], runs.get(ENTRACTE.name) ?? [])
  const meanRatio = pairedRatio(paired, mean)
  const p95Ratio = pairedRatio(paired, (values) => quantile(values, 0.95))
  const failed = figures.reduce((sum, one) => sum + one.failed, 0)
  return {
    bars: [
      bar('mean-ratio', meanRatio, 'x', `interval above ${MEAN_RATIO_MIN}`, meanRatio.low > MEAN_RATIO_MIN),
      bar('p95-ratio', p95Ratio, 'x', `at least ${P95_RATIO_MIN}`, p95Ratio.value >= P95_RATIO_MIN),
      bar('programs-failed', { value: failed, low: failed, high: failed }, 'programs', '0', failed === 0),
    ],
    text: [armTable(figures, runs), `Ratios are ${ENGINES_TODAY.name} over the arm, program by program; above 1 the arm is better.`].join('\n\n'),
    figures: { arms: figures, alone: Object.fromEntries(alone) },
    notMeasured: quick ? ['all arms but two, and three seeds of five (--quick)', ...NOT_MEASURED] : NOT_MEASURED,
  }
}

function armFigures(arm: Arm, runs: readonly SeedRun[], alone: ReadonlyMap<string, number>): ArmFigures {
  const all = runs.flatMap(({ outcome }) => outcome.programs)
  const times = all.map(programMs)
  const each = runs.map(({ outcome }) => figuresOf(outcome))
  return {
    arm: arm.name,
    mean: estimate(times, mean),
    p95: estimate(times, (values) => quantile(values, 0.95)),
    worstMs: Math.max(...times),
    slowdown: estimate(all.map((one) => programMs(one) / ((alone.get(one.record.name) ?? Number.NaN) + one.record.waitsMs)), mean),
    longestWaitMs: Math.max(...each.map(({ longestWaitMs }) => longestWaitMs)),
    recomputedTokens: Math.round(mean(each.map(({ recomputedTokens }) => recomputedTokens))),
    movedBytes: Math.round(mean(each.map(({ movedBytes }) => movedBytes))),
    failed: each.reduce((sum, one) => sum + one.failed, 0),
    seeds: runs.map(({ seed, outcome }) => ({
      seed, programs: outcome.programs.map((one) => ({ name: one.record.name, ms: Math.round(programMs(one)), digest: one.record.digest, error: one.record.error })),
    })),
  }
}

/** The same seed and program on both sides. */
const pair = (base: readonly SeedRun[], other: readonly SeedRun[]): readonly PairedRun[] => base.flatMap(({ seed, outcome }) => {
  const same = other.find((run) => run.seed === seed)
  return same === undefined ? [] : [{ base: outcome.programs.map(programMs), other: same.outcome.programs.map(programMs) }]
})

function armTable(figures: readonly ArmFigures[], runs: ReadonlyMap<string, readonly SeedRun[]>): string {
  const base = runs.get(ENGINES_TODAY.name) ?? []
  const rows = figures.map((one) => {
    const ratio = pairedRatio(pair(base, runs.get(one.arm) ?? []), mean)
    return [
      one.arm, spread(one.mean, 1_000), spread(one.p95, 1_000), (one.worstMs / 1_000).toFixed(1), spread(one.slowdown, 1),
      (one.longestWaitMs / 1_000).toFixed(1), String(one.recomputedTokens), size(one.movedBytes), spread(ratio, 1),
    ]
  })
  return columns([['order + residency', 'mean s', 'p95 s', 'worst s', 'slowdown', 'longest wait s', 'recomputed', 'KV moved', 'mean ratio'], ...rows], 'lrrrrrrrr').join('\n')
}

const spread = ({ value, low, high }: Interval, unit: number): string => {
  const show = (figure: number): string => (figure / unit).toFixed(unit === 1 ? 2 : 1)
  return `${show(value)} (${show(low)}-${show(high)})`
}

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`
