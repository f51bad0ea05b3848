/**
 * Owns a run of programs over the real core in virtual time: agents of traces, one engine, and `step` between them, with
 * every fact performed at once. No driver, no store, no network, no faults: what is left is what an order decides.
 * Deterministic: the same core and programs give the same times.
 */
import { bodyId, callId, engineId, tenantId, type CallId, type MoveId } from '../src/core/ids.ts'
import type { Fact } from '../src/core/fact.ts'
import type { Finished, FromAttempt, Input } from '../src/core/input.ts'
import { step } from '../src/core/step.ts'
import type { Capabilities, CoreState, State } from '../src/core/state.ts'
import type { Bytes, Tokens, Us } from '../src/core/units.ts'
import { EventHeap } from './event-heap.ts'
import { VirtualAgent, type DrawnProgram, type PlannedCall, type PlannedWait } from './virtual-agent.ts'
import { speedsOf, VirtualEngine, type Attempt, type Said, type VirtualSpeeds } from './virtual-engine.ts'

const TENANT = tenantId('bench')
const MODEL = 'model'
const REPORT_EVERY_US = 500_000
const OUTPUT_TOKENS_MAX = 16_384
const CONTEXT_TOKENS_MAX = 1 << 20
const GRANULE = 16

export interface VirtualShape {
  readonly engine: string
  readonly speeds: VirtualSpeeds
  /** Tokens of KV it holds. */
  readonly cells: Tokens
  readonly kvBytesPerToken: Bytes
}

export interface ProgramTime {
  readonly name: string
  readonly source: string
  readonly arrivalUs: Us
  readonly timeUs: Us
}

export interface Outcome {
  readonly programs: readonly ProgramTime[]
  /** Most cells that were in use at once. */
  readonly cellsMax: Tokens
  readonly recomputedTokens: Tokens
  readonly preemptions: number
  readonly busyUs: Us
  readonly steps: number
}

type Event =
  | { readonly kind: 'arrive'; readonly agent: VirtualAgent }
  | { readonly kind: 'waited'; readonly agent: VirtualAgent; readonly place: number }
  | { readonly kind: 'input'; readonly input: Input }
  | { readonly kind: 'timer'; readonly timer: string }
  | { readonly kind: 'engine'; readonly version: number }

interface OpenCall { readonly agent: VirtualAgent; readonly planned: PlannedCall }

export class VirtualWorld {
  readonly core: CoreState
  readonly #events = new EventHeap<Event>()
  readonly #engine: VirtualEngine
  readonly #shape: VirtualShape
  readonly #open = new Map<CallId, OpenCall>()
  readonly #times: ProgramTime[] = []
  readonly #arrived = new Map<VirtualAgent, Us>()
  readonly #beganUs: Us
  #nowUs: Us
  #left = 0
  #version = 0
  #cellsMax = 0
  #recomputed = 0
  #preemptions = 0
  #steps = 0
  /** One after the other, each when the one before has ended. */
  #waiting: VirtualAgent[] = []

  /** Goes on with `core`, which may have learned; its engines of before must be lost. */
  constructor(core: CoreState, shape: VirtualShape) {
    this.core = core
    this.#shape = shape
    this.#engine = new VirtualEngine(shape.speeds, REPORT_EVERY_US)
    this.#nowUs = core.nowUs + 1
    this.#beganUs = this.#nowUs
    for (const [timer, atUs] of core.timers) this.#events.put(atUs, { kind: 'timer', timer })
    if (core.reign === 0) this.#feed({ kind: 'restart', reign: 1, wallOffsetUs: 0, images: [] })
    this.#feed({ kind: 'engineJoined', engine: engineId(shape.engine), reign: core.reign, capabilities: capabilitiesOf(shape), speeds: speedsOf(shape.speeds) })
  }

  /** Runs them all to their ends; `apart`: each alone, without the arrivals. Then the engine leaves. */
  run(programs: readonly DrawnProgram[], apart = false): Outcome {
    const agents = programs.map((drawn) => new VirtualAgent(drawn))
    this.#left = agents.length
    if (apart) this.#waiting = agents
    else for (const agent of agents) this.#events.put(this.#beganUs + agent.drawn.arrivalUs, { kind: 'arrive', agent })
    if (apart) this.#nextAlone()
    while (this.#left > 0) {
      const event = this.#events.take()
      if (event === null) throw new Error(`nothing happens any more, and ${this.#left} programs have not ended`)
      this.#nowUs = Math.max(this.#nowUs, event.atUs)
      this.#happen(event.what)
    }
    this.#feed({ kind: 'engineLost', engine: engineId(this.#shape.engine), reign: this.core.reign, why: 'the run is over' })
    return {
      programs: this.#times, cellsMax: this.#cellsMax, recomputedTokens: this.#recomputed, preemptions: this.#preemptions,
      busyUs: this.#engine.busyUs, steps: this.#steps,
    }
  }

  #nextAlone(): void {
    const agent = this.#waiting.shift()
    if (agent !== undefined) this.#events.put(this.#nowUs, { kind: 'arrive', agent })
  }

  #happen(event: Event): void {
    switch (event.kind) {
      case 'arrive':
        this.#arrived.set(event.agent, this.#nowUs)
        return this.#begin(event.agent, event.agent.begin())
      case 'waited': return this.#ended(event.agent, event.place)
      case 'input': return this.#feed(event.input)
      case 'timer':
        if ((this.core.timers.get(event.timer) ?? Infinity) <= this.#nowUs) this.#feed({ kind: 'due', timer: event.timer })
        return
      case 'engine':
        if (event.version !== this.#version) return
        for (const said of this.#engine.speak(this.#nowUs)) this.#hear(said)
        this.#wakeEngine()
        return
      default:
    }
  }

  // ---------------------------------------------------------------- agents

  #begin(agent: VirtualAgent, all: readonly (PlannedCall | PlannedWait)[]): void {
    for (const what of all) {
      if ('wait' in what) this.#events.put(this.#nowUs + what.waitUs, { kind: 'waited', agent, place: what.place })
      else this.#submit(agent, what)
    }
  }

  #ended(agent: VirtualAgent, place: number): void {
    this.#begin(agent, agent.ended(place))
    if (!agent.done) return
    const { name, of } = agent.drawn
    this.#feed({ kind: 'finishProgram', tenant: TENANT, program: name })
    const arrivalUs = this.#arrived.get(agent) ?? this.#nowUs
    this.#times.push({ name, source: of.source, arrivalUs, timeUs: this.#nowUs - arrivalUs })
    this.#left -= 1
    this.#nextAlone()
  }

  #submit(agent: VirtualAgent, planned: PlannedCall): void {
    const { name, of } = agent.drawn
    const { call, place, thread, continues } = planned
    const id = idOf(agent, place)
    this.#open.set(id, { agent, planned })
    const before = agent.calls.get(continues)
    this.#feed({
      kind: 'submit', tenant: TENANT, call: id, body: bodyId(id), freshProgram: name, model: MODEL, digest: id, seed: 0,
      promptTokensEstimate: call.promptTokens, maxTokens: OUTPUT_TOKENS_MAX, exactResume: false, priorityClass: 'default', deadlineUs: null,
      claims: {
        identity: { source: 'explicit', confidence: 100 }, program: name, thread, session: null, epoch: null, final: false, kind: of.source,
        toolResults: before === undefined ? [] : before.tools.map((_, index) => toolCallOf(idOf(agent, continues), index)), parent: null, node: null, parents: [],
      },
    })
  }

  // ---------------------------------------------------------------- the core, and what it says

  #feed(input: Input): void {
    this.#steps += 1
    const facts = step(this.core, input, this.#nowUs)
    for (const { fact } of facts) this.#perform(fact)
    const engine = this.core.engines.get(engineId(this.#shape.engine))
    if (engine !== undefined) this.#cellsMax = Math.max(this.#cellsMax, (engine.ownedGranules + engine.reservedGranules) * GRANULE)
  }

  #perform(fact: Fact): void {
    switch (fact.kind) {
      case 'call.arrived': return this.#measure(fact.call)
      case 'call.scheduled':
        this.#recomputed += fact.recomputeTokens
        this.#engine.start(this.#attemptOf(fact), this.#nowUs)
        return this.#wakeEngine()
      case 'call.preempted':
        this.#preemptions += 1
        this.#engine.pause(fact.call, this.#nowUs)
        return this.#wakeEngine()
      case 'engine.ordered': return this.#engine.order(fact.orders)
      case 'kv.offload.begun':
      case 'kv.onboard.begun': return this.#move(fact.move, fact.tokens)
      case 'timer.set': return this.#events.put(fact.atUs, { kind: 'timer', timer: fact.timer })
      case 'call.refused':
      case 'call.failed':
      case 'program.refused':
      case 'program.failed': throw new Error(`nothing may go wrong in this world: ${JSON.stringify(fact)}`)
      default:
    }
  }

  #measure(id: CallId): void {
    const { agent, planned } = this.#openCall(id)
    const state = this.#stateOf(id)
    const record = agent.calls.has(planned.continues) ? idOf(agent, planned.continues) : null
    const { promptTokens, newTokens } = planned.call
    const tokens = state === null ? 0 : Math.min(promptTokens - newTokens, spanTokens(state))
    const matched = record === null || state?.record !== record || tokens === 0 ? null : { record, tokens }
    this.#soon({ kind: 'measured', call: id, promptTokens, matched, renderingWon: null })
  }

  #move(move: MoveId, tokens: Tokens): void {
    const doneUs = this.#engine.copy(tokens, this.#nowUs)
    const input: Input = {
      kind: 'moveDone', engine: engineId(this.#shape.engine), reign: this.core.reign, move, bytes: tokens * this.#shape.kvBytesPerToken, digest: '', copyUs: doneUs - this.#nowUs,
    }
    this.#events.put(doneUs, { kind: 'input', input })
  }

  /** As the next event: what a step gave is performed in full before another begins. */
  #soon(input: Input): void {
    this.#events.put(this.#nowUs, { kind: 'input', input })
  }

  /**
   * What it reads: once more, what was fed and is not kept; and of its prompt what no earlier call of the program has.
   * The common prefix of a fork is found in the engine's cache, and is nobody's second copy here.
   */
  #attemptOf({ call: id, attempt, baseTokens, keepTokens, recomputeTokens, forcedTokens }: Extract<Fact, { kind: 'call.scheduled' }>): Attempt {
    const { planned: { call } } = this.#openCall(id)
    const promptTailTokens = call.promptTokens - baseTokens
    const heldTokens = keepTokens + recomputeTokens - baseTokens
    const unread = Math.max(0, promptTailTokens - heldTokens)
    const freshTokens = forcedTokens > 0 ? 0 : Math.max(1, Math.min(unread, call.newTokens))
    return {
      call: id, attempt, run: this.core.calls.get(id)?.preemptions ?? 0, epoch: this.core.calls.get(id)?.epoch ?? 0, readTokens: recomputeTokens + freshTokens, recomputeTokens,
      tailTokens: Math.max(0, keepTokens - baseTokens), promptTailTokens, madeTokens: forcedTokens,
      outputTokens: Math.max(1, call.outputTokens, forcedTokens + 1),
    }
  }

  // ---------------------------------------------------------------- the engine, and what it says

  #wakeEngine(): void {
    this.#version += 1
    const nextUs = this.#engine.nextUs()
    if (nextUs !== null) this.#events.put(nextUs, { kind: 'engine', version: this.#version })
  }

  #hear(said: Said): void {
    if (said.kind === 'progress') {
      const calls = said.calls.map(({ of: { call, attempt, run, epoch }, report }) => ({ call, attempt, run, epoch, report }))
      return this.#soon({ kind: 'progress', engine: engineId(this.#shape.engine), reign: this.core.reign, speeds: null, calls })
    }
    const { of: { call, attempt, run, epoch }, report } = said
    const from: FromAttempt = { engine: engineId(this.#shape.engine), reign: this.core.reign, call, attempt, run, epoch }
    if (said.kind === 'paused') return this.#soon({ kind: 'paused', ...from, report })
    this.#feed(this.#finished(from, said))
    const { agent, planned } = this.#openCall(call)
    this.#open.delete(call)
    this.#ended(agent, planned.place)
  }

  #finished(from: FromAttempt, { report }: Extract<Said, { kind: 'finished' | 'paused' }>): Finished {
    const { planned } = this.#openCall(from.call)
    const spans = [
      { tokens: report.tailPrefilled, origin: 'prefilled' as const, digest: '' }, { tokens: report.tailDecoded, origin: 'decoded' as const, digest: '' },
    ]
    return {
      kind: 'finished', ...from, finish: planned.tools.length > 0 ? 'tool_calls' : 'stop', report, parts: { waitUs: 0, recomputeUs: 0, prefillUs: 0, decodeUs: 0 },
      spans: spans.filter(({ tokens }) => tokens > 0), toolCalls: planned.tools.map((name, index) => ({ id: toolCallOf(from.call, index), name })),
      toolEffect: 'read', resume: 'none',
    }
  }

  #openCall(id: CallId): OpenCall {
    const open = this.#open.get(id)
    if (open === undefined) throw new Error(`${id} is no call of this world`)
    return open
  }

  #stateOf(id: CallId): State | null {
    const thread = this.core.calls.get(id)?.thread
    const state = thread === undefined ? null : this.core.threads.get(thread)?.state ?? null
    return state === null ? null : this.core.states.get(state) ?? null
  }
}

const idOf = (agent: VirtualAgent, place: number): CallId => callId(`${agent.drawn.name}.${place}`)
const toolCallOf = (call: CallId, index: number): string => `${call}.tool${index}`
const spanTokens = (state: State): Tokens => state.spans.reduce((sum, span) => sum + span.tokens, 0)

const capabilitiesOf = ({ speeds, cells, kvBytesPerToken }: VirtualShape): Capabilities => ({
  models: [MODEL], contextTokens: CONTEXT_TOKENS_MAX, runningMax: speeds.rows, tokenise: true, rank: true, preempt: true, cancel: true,
  memory: { cells, granule: GRANULE, sequences: 1_000_000 }, kvBytesPerToken, sharesBytes: false, copy: false, trim: true,
  offload: true, onboard: true, discard: true, exact: { answer: 'no', because: 'there are no tokens' }, replayByOrigin: false,
  imageKey: 'virtual', progress: true, inventory: false,
})
