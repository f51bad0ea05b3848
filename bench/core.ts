/**
 * Owns the bench of the core alone: how many inputs a second one thread decides with 100,000 calls in line, how a step grows
 * with the line, what a waiting program takes in memory, and the longest steps, the collector's pauses apart. Inputs a
 * second are counted in turns of `TURN` inputs, as the driver takes them when they come faster than it decides;
 * a step is a turn of one, and the rate of those stands beside. Heaps are counted in runs of their own, by looking on as
 * their entries are read.
 */
import { PerformanceObserver } from 'node:perf_hooks'
import { setImmediate as soon } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { ORDER_NAMES, type OrderName } from '../src/core/config.ts'
import { columns } from '../src/core/explain/explain-text.ts'
import type { Heap } from '../src/core/queue/heap.ts'
import type { CoreState } from '../src/core/state.ts'
import { INPUTS_PER_TURN_MAX } from '../src/driver/driver.ts'
import { estimate, mean, median, quantile, type Interval } from '../src/eval/stats.ts'
import { bar, type Bench, type BenchResult, type BenchWorld } from './bench.ts'
import { CALLS_PER_PROGRAM, CALLS_PER_PROGRESS, CoreLoad, ENGINES, SHARES } from './core-load.ts'

const LINES = [1_000, 10_000, 100_000] as const
const LINES_QUICK = [1_000, 10_000] as const
/** Of each sort: in turns of one, and in turns of many. */
const INPUTS = 76_800
const INPUTS_QUICK = 15_360
const TURN = INPUTS_PER_TURN_MAX
/** Not measured: the code is compiled, the caches fill, tools begin to come back. */
const WARM_UP = 20_000
const WARM_UP_QUICK = 5_000
const COUNTED_INPUTS = 10_000
const COUNTED_INPUTS_QUICK = 2_000
/** Inputs between two looks at what the collector did. */
const CHUNK = 5_120

const PER_SECOND_MIN = 50_000
/** Heap entries read in a step, over log2 of the line: the window, read anew for each call that starts and for each place that a better band takes, is in it. */
const VISITS_PER_LOG_MAX = 128
const GROWTH_MAX = 4
const PROGRAM_BYTES_MAX = 2_048
const STEP_MS_MAX = 5

const NOT_MEASURED = [
  'the driver: durability, streams and commands to engines are beside the core',
  'engines that share bytes, keep their own counsel about memory, or serve several models',
  'declared graphs, sub-agents and deadlines',
  'other machines: one thread, and whatever else runs here',
]

interface Measured {
  readonly order: OrderName
  readonly line: number
  /** Of each chunk, in turns of many. */
  readonly perSecond: readonly number[]
  /** In turns of one. */
  readonly alonePerSecond: number
  readonly turnP999Ms: number
  readonly stepUs: number
  /** Of the processor, the load beside the core included: what other processes took is not in it. */
  readonly processorUs: number
  readonly p999Ms: number
  readonly worstMs: number
  readonly collected: { readonly pauses: number; readonly longestMs: number; readonly shareOfTime: number }
  /** Of a program of one call, which waits; and of one of `CALLS_PER_PROGRAM`, which all wait. */
  readonly bytesOfOne: number
  readonly bytesOfMany: number
  readonly counts: Readonly<Record<string, number>>
}

export const core: Bench = {
  name: 'core',
  what: 'the core alone: inputs a second, heap visits, growth with the line, memory, the longest steps',
  needsModel: false,
  run: async (world) => {
    const lines = world.quick ? LINES_QUICK : LINES
    const measured: Measured[] = []
    for (const order of ORDER_NAMES) {
      for (const line of [lines[0], lines.at(-1) ?? lines[0]]) measured.push(await measure(world, order, line))
    }
    const visits = ORDER_NAMES.flatMap((order) => lines.map((line) => countVisits(order, line, world.quick ? COUNTED_INPUTS_QUICK : COUNTED_INPUTS)))
    return resultOf(measured, visits, world.quick)
  },
}

// ---------------------------------------------------------------- time and memory

/** What is still referred to, after the collector has run. */
function heapBytes(): number {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  // Once more for what only the first let go of.
  collect()
  collect()
  return process.memoryUsage().heapUsed
}

/** Of a core in which all wait, by program; what the load keeps of them is let go first. */
function bytesOf(order: OrderName, line: number, callsPerProgram: number): number {
  const before = heapBytes()
  const core = filled(order, line, callsPerProgram)
  return Math.round((heapBytes() - before) / core.programs.size)
}

function filled(order: OrderName, line: number, callsPerProgram: number): CoreState {
  const load = new CoreLoad(order, line, callsPerProgram)
  load.fill()
  return load.core
}

async function measure(world: BenchWorld, order: OrderName, line: number): Promise<Measured> {
  const bytesOfOne = bytesOf(order, line, 1)
  const bytesOfMany = bytesOf(order, line, CALLS_PER_PROGRAM)
  const load = new CoreLoad(order, line)
  load.fill()
  for (let i = 0; i < (world.quick ? WARM_UP_QUICK : WARM_UP); i += 1) load.feed(load.next())
  const collector = watchCollector()
  const inputs = world.quick ? INPUTS_QUICK : INPUTS
  const steps: Step[] = []
  const turns: Step[] = []
  const perSecond: number[] = []
  const began = process.cpuUsage()
  for (let done = 0; done < inputs; done += CHUNK) {
    world.signal.throwIfAborted()
    for (let i = 0; i < CHUNK; i += 1) steps.push(timed(load, 1))
    const chunk = Array.from({ length: CHUNK / TURN }, () => timed(load, TURN))
    turns.push(...chunk)
    perSecond.push((CHUNK * 1_000) / timeOf(chunk))
    await soon()
  }
  const used = process.cpuUsage(began)
  const pauses = collector.stop()
  const totalMs = timeOf(steps) + timeOf(turns)
  const alone = withoutPauses(steps, pauses)
  const result: Measured = {
    order, line, perSecond, alonePerSecond: (1_000 * steps.length) / timeOf(steps), turnP999Ms: quantile(withoutPauses(turns, pauses), 0.999),
    stepUs: (1_000 * timeOf(steps)) / steps.length, processorUs: (used.user + used.system) / (2 * inputs), p999Ms: quantile(alone, 0.999), worstMs: quantile(alone, 1),
    collected: {
      pauses: pauses.length, longestMs: pauses.reduce((longest, { startMs, endMs }) => Math.max(longest, endMs - startMs), 0),
      shareOfTime: pauses.reduce((sum, { startMs, endMs }) => sum + endMs - startMs, 0) / Math.max(1, totalMs),
    },
    bytesOfOne, bytesOfMany, counts: load.counts,
  }
  world.say(`${order}, ${line} in line: ${Math.round(median(perSecond))} inputs/s (${Math.round(result.alonePerSecond)} in turns of one), ${result.processorUs.toFixed(0)} us of processor an input, p99.9 ${result.p999Ms.toFixed(2)} ms, ${bytesOfOne} bytes a program of one call, ${bytesOfMany} of ${CALLS_PER_PROGRAM}`)
  return result
}

interface Step { readonly startMs: number; readonly endMs: number }

const timeOf = (steps: readonly Step[]): number => steps.reduce((sum, { startMs, endMs }) => sum + endMs - startMs, 0)

function timed(load: CoreLoad, count: number): Step {
  const inputs = Array.from({ length: count }, () => load.next())
  const startMs = performance.now()
  const facts = load.decideAll(inputs)
  const endMs = performance.now()
  load.perform(facts)
  return { startMs, endMs }
}

function watchCollector(): { stop(): Step[] } {
  const pauses: Step[] = []
  const observer = new PerformanceObserver((list) => {
    for (const { startTime, duration } of list.getEntries()) pauses.push({ startMs: startTime, endMs: startTime + duration })
  })
  observer.observe({ entryTypes: ['gc'] })
  return {
    stop: () => {
      observer.disconnect()
      return pauses
    },
  }
}

/** Lengths of the steps, less what the collector took of them; both lists are in order of time. */
function withoutPauses(steps: readonly Step[], pauses: readonly Step[]): number[] {
  let first = 0
  return steps.map(({ startMs, endMs }) => {
    while ((pauses[first]?.endMs ?? Number.POSITIVE_INFINITY) <= startMs) first += 1
    let ms = endMs - startMs
    for (let at = first; (pauses[at]?.startMs ?? Number.POSITIVE_INFINITY) < endMs; at += 1) {
      const pause = pauses[at] as Step
      ms -= Math.min(endMs, pause.endMs) - Math.max(startMs, pause.startMs)
    }
    return ms
  })
}

// ---------------------------------------------------------------- heap visits

interface Visits { readonly order: OrderName; readonly line: number; readonly mean: number; readonly p999: number; readonly most: number }

/** Entries read from the heaps of the queues, a step. */
function countVisits(order: OrderName, line: number, inputs: number): Visits {
  const load = new CoreLoad(order, line)
  load.fill()
  const seen = { visits: 0 }
  const visits: number[] = []
  for (let i = 0; i < inputs; i += 1) {
    watchHeaps(load, seen)
    seen.visits = 0
    load.feed(load.next())
    visits.push(seen.visits)
  }
  return { order, line, mean: mean(visits), p999: Math.round(quantile(visits, 0.999)), most: Math.max(...visits) }
}

/** A heap is plain data, so its numbers can be replaced by a list that counts how often the first of a key is read. */
function watchHeaps(load: CoreLoad, seen: { visits: number }): void {
  for (const { bands } of load.core.queues.values()) {
    for (const { tenants } of bands) {
      watch(tenants.waiting, seen)
      for (const { calls } of tenants.shares.values()) watch(calls, seen)
    }
  }
}

const watched = new WeakSet<object>()

function watch(heap: Heap<string>, seen: { visits: number }): void {
  if (watched.has(heap)) return
  watched.add(heap)
  const numbers = new Proxy(heap.numbers, {
    get(list, key, receiver): unknown {
      if (typeof key === 'string' && Number(key) % heap.width === 0) seen.visits += 1
      return Reflect.get(list, key, receiver)
    },
  })
  Object.assign(heap, { numbers })
}

// ---------------------------------------------------------------- what it comes to

const exactly = (value: number): Interval => ({ value, low: value, high: value })

function resultOf(measured: readonly Measured[], visits: readonly Visits[], quick: boolean): BenchResult {
  const longest = Math.max(...measured.map(({ line }) => line))
  const long = measured.filter(({ line }) => line === longest)
  const bars = long.flatMap((one) => {
    const perSecond = estimate(one.perSecond, median)
    const short = measured.find(({ order, line }) => order === one.order && line < longest)
    const growth = one.stepUs / (short?.stepUs ?? one.stepUs)
    const worst = Math.max(...visits.filter(({ order }) => order === one.order).map(({ most, line }) => most / Math.log2(line)))
    return [
      bar(`inputs-${one.order}`, perSecond, 'inputs/s', `at least ${PER_SECOND_MIN}`, perSecond.value >= PER_SECOND_MIN),
      bar(`growth-${one.order}`, exactly(growth), 'x', `at most ${GROWTH_MAX}`, growth <= GROWTH_MAX),
      bar(`visits-${one.order}`, exactly(worst), 'per log2(n)', `at most ${VISITS_PER_LOG_MAX}`, worst <= VISITS_PER_LOG_MAX),
      bar(`p999-${one.order}`, exactly(one.p999Ms), 'ms', `under ${STEP_MS_MAX}`, one.p999Ms < STEP_MS_MAX),
    ]
  })
  const bytes = Math.max(...long.map(({ bytesOfMany }) => bytesOfMany))
  return {
    bars: [...bars, bar('bytes', exactly(bytes), `bytes a program of which ${CALLS_PER_PROGRAM} calls wait`, `at most ${PROGRAM_BYTES_MAX}`, bytes <= PROGRAM_BYTES_MAX)],
    text: textOf(measured, visits),
    figures: { measured: measured.map(({ perSecond, ...rest }) => ({ ...rest, perSecond: Math.round(median(perSecond)) })), visits, shares: SHARES },
    notMeasured: quick ? ['the line of 100,000 (--quick)', ...NOT_MEASURED] : NOT_MEASURED,
  }
}

function textOf(measured: readonly Measured[], visits: readonly Visits[]): string {
  const times = measured.map((one) => [
    one.order, String(one.line), String(Math.round(median(one.perSecond))), one.turnP999Ms.toFixed(2), String(Math.round(one.alonePerSecond)), one.stepUs.toFixed(1), one.processorUs.toFixed(1), one.p999Ms.toFixed(2), one.worstMs.toFixed(2),
    `${one.collected.pauses}, ${(100 * one.collected.shareOfTime).toFixed(0)} %, longest ${one.collected.longestMs.toFixed(1)} ms`, String(one.bytesOfOne), String(one.bytesOfMany),
  ])
  const counted = visits.map((one) => [one.order, String(one.line), one.mean.toFixed(1), String(one.p999), String(one.most), (one.most / Math.log2(one.line)).toFixed(1)])
  return [
    `${ENGINES} engines, ${CALLS_PER_PROGRAM} calls a program, 100 tenants. Inputs of a thousand: ${Object.entries(SHARES).map(([kind, share]) => `${kind} ${share}`).join(', ')}, the rest progress of ${CALLS_PER_PROGRESS} calls.`,
    columns([['order', 'in line', `inputs/s in turns of ${TURN}`, 'p99.9 ms of a turn', 'in turns of one', 'mean us', 'processor us', 'p99.9 ms', 'worst ms', 'collector', 'bytes/program of 1', `of ${CALLS_PER_PROGRAM}`], ...times], 'lrrrrrrrrrrr').join('\n'),
    columns([['order', 'in line', 'visits', 'p99.9', 'most', 'most/log2(n)'], ...counted], 'lrrrrr').join('\n'),
  ].join('\n\n')
}
