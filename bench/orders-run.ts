/**
 * Owns one trace under one seed in the bench of orders: the same programs at the same times under every order, each going
 * on from a core that learned from the other half of their trace, and once from a core that knows nothing.
 */
import { emptyCore } from '../src/core/apply.ts'
import { CORE_DEFAULTS, ORDER_NAMES, type CoreConfig, type OrderName } from '../src/core/config.ts'
import type { CoreState } from '../src/core/state.ts'
import type { Tokens, Us } from '../src/core/units.ts'
import { withOrder } from '../src/core/policy/orders.ts'
import { clairvoyant } from './clairvoyant.ts'
import { learning, scoring, SPEEDS, type Load } from './orders-plan.ts'
import type { DrawnProgram } from './virtual-agent.ts'
import { VirtualWorld, type Outcome } from './virtual-world.ts'

/** An order of the core that goes on from what was learned; or that order from nothing; or who knows the future. */
export const COLD = 'gittins cold'
export const CLAIRVOYANT = 'clairvoyant'
export type Arm = OrderName | typeof COLD | typeof CLAIRVOYANT
export const ARMS: readonly Arm[] = [...ORDER_NAMES, COLD, CLAIRVOYANT]

export type Memory = 'enough' | 'third'
export const MEMORIES: readonly Memory[] = ['enough', 'third']

const ENOUGH_CELLS = 1 << 30
const KV_BYTES_PER_TOKEN = 131_072
/** The host tier holds so many times what the device does. */
const HOST_RATIO = 6
/** A call must fit with its grant, and another beside it. */
const LARGEST_SHARE = 2

/** Memory that nobody wants costs nothing here. */
const CONFIG: CoreConfig = {
  ...CORE_DEFAULTS, residency: 'least-cost', exactResume: false, idleMemorySecondMicro: 0, hostMebibyteSecondMicro: 0,
  humanTools: ['user', 'simulated_user'], callsOpenMax: 1_000_000, tenantCallsOpenMax: 1_000_000, tenantProgramsMax: 1_000_000, callsPerProgramMax: 1_000_000, programsMax: 1_000_000,
}

export interface Size { readonly programsMax: number; readonly callsMax: number }

export interface SeedTask { readonly trace: string; readonly seed: number; readonly size: Size; readonly loads: readonly Load[]; readonly memories: readonly Memory[] }

/** What one arm came to under one seed; entry i of `timesUs` is program i of the drawing. */
export interface ArmRun {
  readonly timesUs: readonly Us[]
  readonly slowdowns: readonly number[]
  readonly recomputedTokens: Tokens
  readonly preemptions: number
  /** Most that it held on device. */
  readonly cellsMax: Tokens
}

export interface SeedRow { readonly load: Load; readonly memory: Memory; readonly arms: ReadonlyMap<Arm, ArmRun> }

/** Every load, with each memory, under every order. */
export function runSeed({ trace, seed, size, loads, memories }: SeedTask): SeedRow[] {
  const runs = new TraceRuns(trace, seed, size)
  return loads.flatMap((load) => {
    const enough = runs.run('fcfs', load, ENOUGH_CELLS)
    const third = Math.max(runs.largestCells, Math.ceil(enough.cellsMax / 3))
    return memories.map((memory) => {
      const cells = memory === 'enough' ? ENOUGH_CELLS : third
      return { load, memory, arms: new Map(ARMS.map((arm) => [arm, memory === 'enough' && arm === 'fcfs' ? enough : runs.run(arm, load, cells)])) }
    })
  })
}

/** What all loads and memories of a trace under one seed share. */
class TraceRuns {
  readonly #trace: string
  readonly #seed: number
  readonly #size: Size
  readonly #learned: CoreState
  readonly #aloneUs: ReadonlyMap<string, Us>
  /** Less memory than this is too little for the largest call of them. */
  readonly largestCells: Tokens

  constructor(trace: string, seed: number, size: Size) {
    this.#trace = trace
    this.#seed = seed
    this.#size = size
    this.#learned = emptyCore(configOf('fcfs', ENOUGH_CELLS))
    this.#run(this.#learned, learning(trace), ENOUGH_CELLS)
    this.largestCells = LARGEST_SHARE * Math.max(...this.#draw('burst').flatMap(({ of }) => of.nodes.map((node) => (node.kind === 'call' ? node.promptTokens + node.outputTokens : 0))))
    const alone = this.#run(emptyCore(configOf('fcfs', ENOUGH_CELLS)), this.#draw('burst'), ENOUGH_CELLS, true)
    this.#aloneUs = new Map(alone.programs.map(({ name, timeUs }) => [name, timeUs]))
  }

  run(arm: Arm, load: Load, cells: Tokens): ArmRun {
    const programs = this.#draw(load)
    const config = arm === CLAIRVOYANT ? withOrder(configOf('fcfs', cells), clairvoyant(programs)) : configOf(arm === COLD ? 'gittins' : arm, cells)
    const core = arm === COLD ? emptyCore(config) : this.#learnedWith(config)
    const { programs: times, recomputedTokens, preemptions, cellsMax } = this.#run(core, programs, cells)
    const byName = new Map(times.map((time) => [time.name, time.timeUs]))
    const timesUs = programs.map(({ name }) => byName.get(name) ?? Number.NaN)
    const slowdowns = programs.map(({ name }, at) => (timesUs[at] ?? Number.NaN) / Math.max(1, this.#aloneUs.get(name) ?? Number.NaN))
    return { timesUs, slowdowns, recomputedTokens, preemptions, cellsMax }
  }

  #draw(load: Load): readonly DrawnProgram[] {
    return scoring(this.#trace, { load, seed: this.#seed, ...this.#size })
  }

  #run(core: CoreState, programs: readonly DrawnProgram[], cells: Tokens, apart = false): Outcome {
    return new VirtualWorld(core, { engine: `engine-${core.seq}`, speeds: SPEEDS, cells, kvBytesPerToken: KV_BYTES_PER_TOKEN }).run(programs, apart)
  }

  #learnedWith(config: CoreConfig): CoreState {
    const { config: _, ...learned } = this.#learned
    const copy = structuredClone(learned)
    return { ...copy, config, host: { ...copy.host, totalBytes: config.hostBytesMax } }
  }
}

const configOf = (order: OrderName, cells: Tokens): CoreConfig =>
  ({ ...CONFIG, order, hostBytesMax: Math.min(Number.MAX_SAFE_INTEGER, cells * HOST_RATIO * KV_BYTES_PER_TOKEN) })
