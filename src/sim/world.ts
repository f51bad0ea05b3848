/**
 * START HERE to read this folder. A world is a control plane (the production driver and core), engines, wires, a disk and
 * agents in virtual time, from one seed. A run has two parts: everything goes wrong, and the invariants hold; then all is
 * healed, and what can finish does, within a stated time, and leaves all memory free. In both nobody waits for
 * longer than a moment while what could serve him stands idle, and the durable log is one history over all lives, as `checkHistory` says.
 *
 * The same settings give the same run, to the last fact, on every machine: its digest says so.
 */
import { createHash } from 'node:crypto'
import { InvariantError } from '../core/assert.ts'
import { engineId, type EngineId } from '../core/ids.ts'
import type { CoreState } from '../core/state.ts'
import { checkHistory, noHistory } from '../core/invariants/history.ts'
import { checkNobodyIsStuck, checkWaiting } from '../core/invariants/waiting.ts'
import { SECOND_US, type Us } from '../core/units.ts'
import type { EngineCommand } from '../driver/ports.ts'
import { Agent, type AgentWorld, type Runner } from './agent.ts'
import { Chance, hashOf, PPM } from './chance.ts'
import { Texts } from './content.ts'
import { ControlPlane, type Life } from './control.ts'
import type { Line } from './disk.ts'
import { Engine } from './engine.ts'
import { Events } from './events.ts'
import { Faults, type FaultName, type Occurrence } from './faults.ts'
import { GraphAgent } from './graph-agent.ts'
import { generatedGraph, type GraphPlan } from './graph-plan.ts'
import type { Images } from './images.ts'
import { Oracle } from './measure.ts'
import { generatedPlan, type ProgramPlan } from './plan.ts'
import { coreConfigOf, shapeOf, type Settings } from './settings.ts'
import { leftovers } from './leftovers.ts'

interface Failure {
  /** Number of the broken invariant; 0: another promise. */
  readonly invariant: number
  readonly what: string
  readonly step: number
  readonly atUs: Us
}

export interface Outcome {
  readonly failure: Failure | null
  readonly steps: number
  readonly events: number
  readonly virtualUs: Us
  readonly facts: number
  readonly agents: Readonly<Record<string, number>>
  readonly agentNumbers: readonly number[]
  readonly faults: readonly Occurrence[]
  readonly faultCounts: Readonly<Partial<Record<FaultName, number>>>
  /** Tokens shown to clients and compared with the undisturbed run's. */
  readonly tokensCompared: number
  readonly refusals: number
  readonly digest: string
}

interface Watching {
  /** Hears of every fact, command and fault as it comes, for a person to read. */
  readonly tell?: ((line: string) => void) | null
  /** A bug put in on purpose: what becomes of a command on its way to an engine. */
  readonly planted?: (command: EngineCommand) => EngineCommand
}

/** How often the large faults have their chance. */
const TICK_US = SECOND_US
/** Agents that report a graph; the others work in chains. */
const GRAPH_PPM = 250_000

export class World {
  readonly events = new Events()
  readonly faults: Faults
  readonly control: ControlPlane
  readonly engines: readonly Engine[]
  readonly images: Images = new Map()
  readonly agents: Runner[] = []
  steps = 0
  facts = 0
  failure: Failure | null = null
  readonly #settings: Settings
  readonly #tell: ((line: string) => void) | null
  readonly #texts = new Texts()
  readonly #oracle = new Oracle(this.#texts, true)
  readonly #history = noHistory()
  readonly #digest = createHash('sha256')
  readonly #chance: Chance
  #planned = 0
  /** Agents by number; their sub-agents come with them. */
  readonly #arrived: number[] = []
  #healedUs: Us | null = null
  #live = 0

  constructor(settings: Settings, { tell = null, planted = (command) => command }: Watching = {}) {
    const { seed } = settings
    this.#tell = tell
    this.#settings = settings
    this.#chance = new Chance(seed, 'arrivals')
    this.faults = new Faults(seed, settings.faults, (occurrence) => tell?.(`${this.events.nowUs} fault ${occurrence.join(' ')}`))
    const { events, faults, images } = this
    const engineWorld = {
      events, faults, images, texts: this.#texts, oracle: this.#oracle,
      planted,
      told: (engine: string, command: EngineCommand) => tell?.(`${events.nowUs} ${engine} <- ${brief(command)}`),
      breach: (engine: string, why: string) => this.#fail(0, `${engine} was told what makes no sense: ${why}`),
    }
    this.engines = settings.engines.map((kind, at) => new Engine(engineId(`e${at}`), shapeOf(kind), engineWorld))
    this.control = new ControlPlane({
      events, faults, images, seed, config: coreConfigOf(settings), engines: this.engines, storeFailure: settings.storeFailure,
      snapshotEveryFacts: settings.snapshotEveryFacts, checkEveryTurns: settings.checkEveryTurns, forgets: false,
      noted: (logged, life) => this.#noted(logged, life),
      ended: (life) => { for (const agent of this.agents) agent.disconnected(life) },
      written: (facts) => this.#written(facts),
      failed: (error) => this.#broken(error),
    })
  }

  /** `progress`: called now and then with the steps so far. */
  async run(progress: (steps: number) => void = () => undefined): Promise<Outcome> {
    this.control.begin()
    this.#arriveSoon()
    this.#tickSoon()
    let told = 0
    const byUs = this.events.nowUs + (this.#settings.steps + QUIET_STEPS) * STEP_US_MAX
    while (this.failure === null && this.steps < this.#settings.steps && this.events.nowUs < byUs && await this.events.happen()) {
      if (this.steps >= told + PROGRESS_STEPS) progress(told = this.steps)
    }
    if (this.failure === null) await this.#heal()
    return this.#outcome()
  }

  // ---------------------------------------------------------------- the second part

  async #heal(): Promise<void> {
    this.#healedUs = this.events.nowUs
    this.faults.heal()
    for (const { id } of this.engines) this.#undrainAfter(id, 0)
    const byUs = this.events.nowUs + this.#settings.healUs
    while (this.failure === null) {
      const nextUs = this.events.nextUs()
      if (nextUs === null || nextUs > byUs || this.#isQuiet()) break
      await this.events.happen()
    }
    if (this.failure !== null) return
    const left = leftovers(this)
    if (left.length > 0) this.#fail(0, `${this.#settings.healUs / SECOND_US} s after all was healed: ${left.join('; ')}`)
  }

  #isQuiet(): boolean {
    return this.#live === 0 && leftovers(this).length === 0
  }

  // ---------------------------------------------------------------- agents

  #arriveSoon(): void {
    this.events.after(this.#chance.tail(20_000, 2_000_000), () => {
      if (this.#healedUs !== null) return
      const burst = this.faults.at('agents.burst', 'agents')
      const count = burst?.between(3, 12) ?? 1
      for (let one = 0; one < count; one += 1) {
        this.#planned += 1
        if (burst !== null || this.#live < this.#settings.agentsAtOnce) this.#arrive(this.#planned)
      }
      this.#arriveSoon()
    })
  }

  #arrive(number: number): void {
    const { seed, size, agents } = this.#settings
    if (agents !== null && !agents.includes(number)) return
    this.#arrived.push(number)
    const isGraph = hashOf(seed, `kind of ${number}`) % PPM < GRAPH_PPM
    this.#begin(isGraph ? generatedGraph(seed, number, size) : generatedPlan(seed, number, size), () => undefined)
  }

  #begin(plan: ProgramPlan | GraphPlan, ended: () => void): void {
    const world: AgentWorld = {
      events: this.events, faults: this.faults, texts: this.#texts, oracle: this.#oracle, seed: this.#settings.seed,
      interruptMaxUs: coreConfigOf(this.#settings).interruptMaxUs,
      current: () => this.control.current,
      wrong: (invariant, why) => this.#fail(invariant, why),
      ended: () => {
        this.#live -= 1
        ended()
      },
      begin: (sub, done) => this.#begin(sub, done),
    }
    const agent = plan.kind === 'graph' ? new GraphAgent(world, plan) : new Agent(world, plan)
    this.agents.push(agent)
    this.#live += 1
    agent.begin()
  }

  // ---------------------------------------------------------------- what goes wrong by itself

  #tickSoon(): void {
    this.events.after(TICK_US, () => {
      if (this.#healedUs !== null) return
      for (const engine of this.engines) this.#disturbEngine(engine)
      this.#disturbControl()
      this.#tickSoon()
    })
  }

  #disturbEngine(engine: Engine): void {
    const { id } = engine
    const ports = this.control.lives.flatMap((life) => life.ports.get(id) ?? [])
    const crash = this.faults.at('engine.crash', id)
    if (crash !== null) engine.crash(crash.tail(200_000, 8_000_000))
    const hang = this.faults.at('engine.hang', id)
    if (hang !== null) {
      const us = hang.tail(100_000, 12_000_000)
      engine.hang(us)
      for (const port of ports) port.silent(us)
    }
    const slow = this.faults.at('engine.slow', id)
    if (slow !== null) engine.slow(slow.between(2, 20), slow.tail(500_000, 20_000_000))
    const drain = this.faults.at('engine.drain', id)
    if (drain !== null) {
      void this.control.current?.driver.drain(id, drain.tail(100_000, 8_000_000))
      this.#undrainAfter(id, drain.tail(1_000_000, 30_000_000))
    }
    const partition = this.faults.at('wire.partition', id)
    if (partition !== null) for (const port of ports) port.cut(this.events.nowUs + partition.tail(50_000, 12_000_000), false)
    const cut = this.faults.at('wire.cut', id)
    if (cut !== null) for (const port of ports) port.cut(this.events.nowUs + cut.tail(50_000, 12_000_000), true)
  }

  /** Its operator looks again until it is so: what was asked of a control plane that died is lost. */
  #undrainAfter(id: EngineId, us: Us): void {
    this.events.after(us, () => {
      const driver = this.control.current?.driver
      void driver?.undrain(id)
      if (driver === undefined || driver.core.engines.get(id)?.draining === true) this.#undrainAfter(id, SECOND_US)
    })
  }

  #disturbControl(): void {
    const life = this.control.current
    if (life === null) return
    const crash = this.faults.at('control.crash', 'control')
    // In the middle of what it does next, or between two things.
    if (crash !== null) life.endAfter(crash.below(12))
    const takeover = this.faults.at('control.takeover', 'control')
    if (takeover !== null) this.control.takeover(takeover.tail(100_000, 6_000_000))
    const step = this.faults.at('clock.step', 'control')
    if (step !== null) life.clock.stepWall((step.between(0, 2) - 1) * step.tail(1_000_000, 7_200_000_000))
    const drift = this.faults.at('clock.drift', 'control')
    if (drift !== null) life.clock.drift(drift.between(-20_000, 20_000))
    const sleep = this.faults.at('clock.sleep', 'control')
    if (sleep !== null) {
      const us = sleep.tail(100_000, 60_000_000)
      life.clock.sleep(us)
      for (const port of life.ports.values()) port.silent(us)
    }
  }

  // ---------------------------------------------------------------- what is seen

  #noted(facts: readonly Line[], life: Life): void {
    this.steps += 1
    this.facts += facts.length
    this.#digest.update(facts.map(({ text }) => `${life.number} ${text}\n`).join(''))
    if (this.#tell !== null) for (const { text } of facts) this.#tell(`${this.events.nowUs} life ${life.number} ${text}`)
    const { core } = life.driver
    checkNobodyIsStuck(core)
    if (this.#healedUs !== null && this.events.nowUs > this.#healedUs + WAIT_US_MAX) checkWaiting(core, core.nowUs, WAIT_US_MAX)
  }

  /** The log is one history, whoever wrote it. */
  #written(facts: readonly Line[]): void {
    try {
      checkHistory(this.#history, facts.map(({ logged }) => logged))
    } catch (error) {
      this.#broken(error)
    }
  }

  #broken(error: unknown): void {
    const told = error instanceof Error ? error : new Error(String(error))
    this.#fail(told instanceof InvariantError ? told.number : 0, told.stack ?? told.message)
  }

  #fail(invariant: number, what: string): void {
    this.failure ??= { invariant, what, step: this.steps, atUs: this.events.nowUs }
  }

  #outcome(): Outcome {
    const agents: Record<string, number> = {}
    for (const agent of this.agents) {
      const outcome = agent.outcome ?? 'under way'
      agents[outcome] = (agents[outcome] ?? 0) + 1
    }
    this.#digest.update(`${this.steps} ${this.facts} ${this.#oracle.compared} ${JSON.stringify(agents)} ${this.failure?.what ?? ''}`)
    return {
      failure: this.failure, steps: this.steps, events: this.events.count, virtualUs: this.events.nowUs, facts: this.facts, agents,
      agentNumbers: this.#arrived, faults: this.faults.came, faultCounts: Object.fromEntries(this.faults.counts),
      tokensCompared: this.#oracle.compared, refusals: this.engines.reduce((sum, { refusals }) => sum + refusals, 0),
      digest: this.#digest.digest('hex').slice(0, 32),
    }
  }
}

const brief = (command: EngineCommand): string => JSON.stringify(command, (key, value: unknown) => (key === 'body' || key === 'prepared' || key === 'forced' ? undefined : value))

const PROGRESS_STEPS = 1_000
/**
 * Where nothing goes wrong no ready call waits longer (invariant 13). The load: at most `callsOpenMax` calls, 40, of about 2 s
 * each on an engine that runs four, and as many again that come while they wait; two and a half times what that takes.
 */
const WAIT_US_MAX = 100 * SECOND_US
/** A world in which little happens is healed all the same, after so much time a step and for so many steps more. */
const STEP_US_MAX = 500_000
const QUIET_STEPS = 50
