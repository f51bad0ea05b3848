/**
 * Owns the bench of orders: every order of the core on every public trace and on the mix of all, at two loads and in a
 * burst, with enough memory and a third of it, learned on one half of a trace and scored on the other. Virtual time over
 * the real core; the same figures on every machine.
 */
import { columns } from '../src/core/explain/explain-text.ts'
import { mean, pairedRatio, quantile, type Interval, type PairedRun } from '../src/eval/stats.ts'
import { bar, type Bar, type Bench, type BenchResult } from './bench.ts'
import { LOADS, MIX, ROWS, SPEEDS, type Load } from './orders-plan.ts'
import { ARMS, CLAIRVOYANT, COLD, MEMORIES, type Arm, type ArmRun, type Memory, type SeedRow, type SeedTask, type Size } from './orders-run.ts'
import { onAllCores } from './threads.ts'

const BEST_RATIO_MIN = 0.98
const COLD_RATIO_MIN = 0.9
const SHORT_ROWS_MAX = 3

const FULL = { seeds: [1, 2, 3], size: { programsMax: 300, callsMax: 4_000 }, rows: ROWS, loads: LOADS, memories: MEMORIES } as const
const QUICK = {
  seeds: [1], size: { programsMax: 100, callsMax: 1_500 }, rows: ['hotpotqa-react', 'tau-bench-airline', MIX], loads: ['1.1', 'burst'], memories: ['enough'],
} as const
interface Extent { readonly seeds: readonly number[]; readonly size: Size; readonly rows: readonly string[]; readonly loads: readonly Load[]; readonly memories: readonly Memory[] }

/** Traces by how long they take, the shortest first; of others nobody knows. */
const LONGEST = ['lats-hotpot-tree', 'tot-game24', 'mix', 'claude-code-weka', 'tracelab-example']

/** Rows in which `gittins` falls short, each with what was found to be the cause. */
const SHORT: Readonly<Record<string, string>> = {}

const NOT_MEASURED = [
  'real engines: an engine of 8 rows whose iterations take 12 ms, 0.15 ms a row and 0.1 ms a token read, at most 512 of them (a figure for none in particular); copies of 6.5 us a token beside the batches',
  'attention that slows with context, and a fork\'s own copy of the prefix it shares',
  'several engines, tenants, bands, deadlines and declared graphs: one of each, and no graph is told',
  'waits above 30 s, which are cut to that; waits that were not recorded, which are drawn as src/eval/traces.ts says',
  'memory shorter than a third of what fcfs by call held at most, or than the largest context; a host tier that fills up',
  'faults, cancels and people who leave',
]

interface Row {
  readonly trace: string
  readonly load: Load
  readonly memory: Memory
  readonly name: string
  readonly arms: ReadonlyMap<Arm, readonly ArmRun[]>
}

export const orders: Bench = {
  name: 'orders',
  what: 'every order on every public trace in virtual time: program times beside fcfs by call and beside who knows the future',
  needsModel: false,
  parts: ROWS,
  run: async ({ quick, only, say, signal }) => {
    const extent: Extent = quick ? QUICK : FULL
    const { seeds, size, loads, memories } = extent
    const traces = only === null ? extent.rows : [only]
    // The longest first, so that no core is left waiting for one at the end.
    const tasks = [...traces].sort((a, b) => LONGEST.indexOf(b) - LONGEST.indexOf(a))
      .flatMap((trace) => seeds.map((seed): SeedTask => ({ trace, seed, size, loads, memories })))
    const found = await onAllCores<SeedTask, SeedRow[]>(
      new URL('./orders-thread.js', import.meta.url), tasks, ({ trace, seed }) => say(`${trace}, seed ${seed}`), signal,
    )
    const rows = traces.flatMap((trace) => rowsOf(trace, found.filter((_, at) => tasks[at]?.trace === trace)))
    return resultOf(rows, quick || only !== null)
  },
}

/** `bySeed`: the same loads and memories in the same order for each seed. */
function rowsOf(trace: string, bySeed: readonly (readonly SeedRow[])[]): Row[] {
  return (bySeed[0] ?? []).map(({ load, memory }, row) => {
    const arms = new Map(ARMS.map((arm) => [arm, bySeed.flatMap((rows) => rows[row]?.arms.get(arm) ?? [])]))
    return { trace, load, memory, name: `${trace} ${load} ${memory}`, arms }
  })
}

// ---------------------------------------------------------------- figures

const runsOf = (row: Row, arm: Arm): readonly ArmRun[] => row.arms.get(arm) ?? []
const timesOf = (row: Row, arm: Arm): readonly number[] => runsOf(row, arm).flatMap(({ timesUs }) => timesUs)
const slowdownsOf = (row: Row, arm: Arm): readonly number[] => runsOf(row, arm).flatMap(({ slowdowns }) => slowdowns)

/** How many times less an arm's times come to than those of fcfs by call. */
const ratioOf = (row: Row, arm: Arm, of: (values: readonly number[]) => number): number => of(timesOf(row, 'fcfs')) / of(timesOf(row, arm))

const OTHERS = ARMS.filter((arm) => arm !== 'gittins' && arm !== COLD && arm !== CLAIRVOYANT)

const best = (row: Row, among: readonly Arm[]): Arm => among.reduce((a, b) => (mean(timesOf(row, b)) < mean(timesOf(row, a)) ? b : a))

/** Mean time of the best of those over that of the arm, program by program. */
function over(row: Row, among: readonly Arm[], arm: Arm): Interval {
  const base = runsOf(row, best(row, among))
  const paired: PairedRun[] = runsOf(row, arm).map(({ timesUs }, at) => ({ base: base[at]?.timesUs ?? [], other: timesUs }))
  return pairedRatio(paired, mean)
}
const shareOf = (row: Row, among: readonly Arm[], arm: Arm): number => mean(timesOf(row, best(row, among))) / mean(timesOf(row, arm))

const isShort = (row: Row): boolean => shareOf(row, OTHERS, 'gittins') < BEST_RATIO_MIN

const least = (rows: readonly Row[], share: (row: Row) => number): Row =>
  rows.reduce((a, b) => (share(b) < share(a) ? b : a))

function barsOf(rows: readonly Row[]): Bar[] {
  const told = rows.filter((row) => !(isShort(row) && row.name in SHORT))
  const worst = least(told.length === 0 ? rows : told, (row) => shareOf(row, OTHERS, 'gittins'))
  const worstCold = least(rows, (row) => shareOf(row, ['fcfs', 'fcfs-program'], COLD))
  const bursts = rows.filter(({ trace, load }) => trace === MIX && load === 'burst')
  const short = rows.filter(isShort).length
  const worstShare = over(worst, OTHERS, 'gittins')
  const coldShare = over(worstCold, ['fcfs', 'fcfs-program'], COLD)
  return [
    bar(`gittins over the best other, worst row (${worst.name})`, worstShare, 'x', `at least ${BEST_RATIO_MIN}`, worstShare.value >= BEST_RATIO_MIN),
    bar('rows that fall short, each with its cause', { value: short, low: short, high: short }, 'rows', `at most ${SHORT_ROWS_MAX}`, short <= SHORT_ROWS_MAX),
    ...burstBars(bursts),
    bar(`gittins from nothing over the better first come, worst row (${worstCold.name})`, coldShare, 'x', `at least ${COLD_RATIO_MIN}`, coldShare.value >= COLD_RATIO_MIN),
  ]
}

function burstBars(rows: readonly Row[]): Bar[] {
  if (rows.length === 0) return []
  const worst = least(rows, (row) => shareOf(row, OTHERS, 'gittins'))
  const share = over(worst, OTHERS, 'gittins')
  return [bar(`gittins over the best other, ${worst.name}`, share, 'x', 'above 1', share.value > 1)]
}

function resultOf(rows: readonly Row[], isPart: boolean): BenchResult {
  const short = rows.filter(isShort).map((row) =>
    `short: ${row.name}, gittins ${shareOf(row, OTHERS, 'gittins').toFixed(3)} of ${best(row, OTHERS)}: ${SHORT[row.name] ?? 'no cause was found yet'}`)
  return {
    bars: barsOf(rows),
    text: [
      table(rows),
      'mean s, p95 s and slowdown of fcfs by call; then mean / p95 / slowdown of fcfs by call over each order (above 1 it is better).',
      ...short,
    ].join('\n\n'),
    figures: { engine: SPEEDS, rows: rows.map(figuresOf) },
    notMeasured: isPart ? ['what --quick or --only leaves out', ...NOT_MEASURED] : NOT_MEASURED,
  }
}

const p95 = (values: readonly number[]): number => quantile(values, 0.95)

function table(rows: readonly Row[]): string {
  const others = ARMS.filter((arm) => arm !== 'fcfs')
  return columns([
    ['trace', 'load', 'memory', 'n', 'fcfs', ...others],
    ...rows.map((row) => [row.trace, row.load, row.memory, String(timesOf(row, 'fcfs').length), seconds(row), ...others.map((arm) => gains(row, arm))]),
  ], `lllr${'r'.repeat(ARMS.length)}`).join('\n')
}

const seconds = (row: Row): string => {
  const times = timesOf(row, 'fcfs')
  return `${(mean(times) / 1e6).toFixed(1)} / ${(p95(times) / 1e6).toFixed(1)} / ${mean(slowdownsOf(row, 'fcfs')).toFixed(1)}`
}
const gains = (row: Row, arm: Arm): string =>
  [ratioOf(row, arm, mean), ratioOf(row, arm, p95), mean(slowdownsOf(row, 'fcfs')) / mean(slowdownsOf(row, arm))].map((gain) => gain.toFixed(2)).join(' / ')

const figuresOf = (row: Row): object => ({
  trace: row.trace, load: row.load, memory: row.memory, programs: timesOf(row, 'fcfs').length,
  gittinsOverBest: shareOf(row, OTHERS, 'gittins'), best: best(row, OTHERS), cause: isShort(row) ? SHORT[row.name] ?? null : null,
  arms: ARMS.map((arm) => ({
    arm, meanS: mean(timesOf(row, arm)) / 1e6, p95S: p95(timesOf(row, arm)) / 1e6, slowdown: mean(slowdownsOf(row, arm)),
    recomputedTokens: runsOf(row, arm).map((run) => run.recomputedTokens), preemptions: runsOf(row, arm).map((run) => run.preemptions),
    cellsMax: runsOf(row, arm).map((run) => run.cellsMax),
  })),
})
