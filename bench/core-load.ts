/**
 * Owns the load of the bench `core`: programs whose threads are each waiting, running, at a tool or between calls; engines
 * that do at once what the facts say; and which input comes next, by stated shares. All is drawn from a seed, and time is
 * virtual. Only the core is timed: what happens here is between two steps.
 */
import { emptyCore } from '../src/core/apply.ts'
import { assert } from '../src/core/assert.ts'
import { CORE_DEFAULTS, type OrderName } from '../src/core/config.ts'
import type { Logged } from '../src/core/fact.ts'
import { bodyId, callId, engineId, moveId, tenantId, type CallId, type EngineId, type MoveId } from '../src/core/ids.ts'
import type { AttemptReport, Input } from '../src/core/input.ts'
import { openTurn, step } from '../src/core/step.ts'
import type { Capabilities, CoreState, EngineSpeeds } from '../src/core/state.ts'
import { Draw } from '../src/eval/draw.ts'

const TENANTS = 100
export const ENGINES = 16
export const CALLS_PER_PROGRAM = 5
export const CALLS_PER_PROGRESS = 2
/** Virtual time between two inputs. */
const INPUT_US = 1_000
/** Threads that a tool keeps, before the first of them comes back. */
const AT_TOOLS = 500
const PROMPT_TOKENS_MAX = 4_000
const RUNNING_MAX = 32
/** Of all engines. */
const RUNNING_MIN = 300

/** Shares of inputs, of a thousand; what cannot come (nothing has ended, no timer is due) leaves its share to progress. */
export const SHARES = { submit: 150, measured: 150, finished: 150, moves: 200, hangUp: 10, due: 90 } as const

const CAPABILITIES: Capabilities = {
  models: ['m'], contextTokens: 8_192, runningMax: RUNNING_MAX, tokenise: true, rank: true, preempt: true, cancel: true,
  memory: { cells: 131_072, granule: 16, sequences: 64 }, kvBytesPerToken: 100_000, sharesBytes: false, copy: true, trim: true,
  offload: true, onboard: true, discard: true, exact: { answer: 'yes', because: 'the bench says so' }, replayByOrigin: true,
  imageKey: 'k', progress: true, inventory: false,
}
const SPEEDS: EngineSpeeds = {
  prefillNsPerToken: 50_000, decodeBaseNs: 20_000_000, decodeRowNs: 200_000, copyOutNsPerToken: 10_000, copyInNsPerToken: 10_000,
}

/** One chain of calls: of a program of a tenant. */
interface Chain { readonly program: number; readonly thread: number; contextTokens: number; last: CallId | null; result: string | null }
interface Running { readonly call: CallId; readonly attempt: number; readonly run: number; readonly engine: EngineId; readonly baseTokens: number; readonly promptTokens: number; outputTokens: number; pausing: boolean }
interface Moving { readonly move: MoveId; readonly engine: EngineId; readonly tokens: number }

export class CoreLoad {
  readonly core: CoreState
  nowUs = 1_000_000
  readonly counts: Record<string, number> = {}
  readonly #draws: Draw
  readonly #chains = new Map<CallId, Chain>()
  readonly #between: Chain[] = []
  readonly #atTools: Chain[] = []
  #toMeasure: CallId[] = []
  readonly #waiting: CallId[] = []
  readonly #running: Running[] = []
  readonly #moves: Moving[] = []
  readonly #timers: { readonly name: string; readonly atUs: number }[] = []
  #calls = 0
  readonly #waitingMin: number

  constructor(order: OrderName, waiting: number, callsPerProgram = CALLS_PER_PROGRAM, seed = 1) {
    this.#draws = new Draw(seed)
    this.#waitingMin = waiting
    const most = 2 * waiting + 10_000
    this.core = emptyCore({
      ...CORE_DEFAULTS, order, callsOpenMax: most, programsMax: most, tenantCallsOpenMax: most, tenantProgramsMax: most, hostBytesMax: 2 ** 38,
      tenantWeights: Object.fromEntries(Array.from({ length: TENANTS }, (_, index) => [`tenant-${index}`, 1 + (index % 4)])),
    })
    // Beside those in line some run, and some are at their tools.
    const programs = Math.ceil((waiting + ENGINES * RUNNING_MAX + AT_TOOLS) / callsPerProgram)
    for (let program = 0; program < programs; program += 1) {
      for (let thread = 0; thread < callsPerProgram; thread += 1) this.#between.push({ program, thread, contextTokens: 0, last: null, result: null })
    }
  }

  get programs(): number { return this.core.programs.size }
  get ready(): number { return this.core.queues.get('m')?.size ?? 0 }

  #join(): void {
    for (let index = 0; index < ENGINES; index += 1) {
      this.feed({ kind: 'engineJoined', engine: engineId(`engine-${index}`), reign: 1, capabilities: CAPABILITIES, speeds: SPEEDS })
    }
  }

  /** Every chain has a call that waits, and the engines are full. */
  fill(): void {
    this.feed({ kind: 'restart', reign: 1, wallOffsetUs: 0, images: [] })
    this.#join()
    for (let chain = this.#between.shift(); chain !== undefined; chain = this.#between.pop()) {
      this.nowUs += INPUT_US
      this.feed(this.#submit(chain))
      for (const call of this.#toMeasure.splice(0)) this.feed(this.#measured(call))
    }
    assert(this.ready >= this.#waitingMin, `${this.ready} calls wait, and ${this.#waitingMin} were to`)
  }

  decide(input: Input): Logged[] {
    return step(this.core, input, this.nowUs)
  }

  feed(input: Input): void {
    this.perform(this.decide(input))
  }

  /** What this load says must count: an engine that is not heard any more would make every step cheap. */
  #mustCount(facts: readonly Logged[]): void {
    for (const { fact } of facts) assert(fact.kind !== 'result.ignored' || fact.input !== 'finished', `an end was not heard: ${fact.kind === 'result.ignored' ? fact.why : ''}`)
  }

  /** Inputs of one moment: what the driver takes at once. */
  decideAll(inputs: readonly Input[]): Logged[] {
    const turn = openTurn(this.core, this.nowUs)
    const facts: Logged[] = []
    for (const input of inputs) facts.push(...turn.take(input))
    facts.push(...turn.end())
    return facts
  }

  /** What happens next. */
  next(): Input {
    this.nowUs += INPUT_US
    const input = this.#drawn(this.#draws.below(1_000)) ?? this.#progress()
    this.counts[input.kind] = (this.counts[input.kind] ?? 0) + 1
    return input
  }

  #drawn(roll: number): Input | null {
    let upTo: number = SHARES.submit
    if (roll < upTo) {
      const chain = this.#atTools.length > AT_TOOLS ? take(this.#atTools, this.#draws.unit()) : this.#between.pop() ?? null
      return chain === null ? null : this.#submit(chain)
    }
    if (roll < (upTo += SHARES.measured)) {
      const call = this.#toMeasure.shift()
      return call === undefined ? null : this.#measured(call)
    }
    if (roll < (upTo += SHARES.finished)) return this.#finished()
    if (roll < (upTo += SHARES.moves)) return this.#paused() ?? this.#moved()
    if (roll < (upTo += SHARES.hangUp)) return this.#hangUp()
    if (roll < upTo + SHARES.due) return this.#due()
    return null
  }

  // ---------------------------------------------------------------- what agents do

  #submit(chain: Chain): Input {
    this.#calls += 1
    const call = callId(`call-${this.#calls}`)
    const tenant = chain.program % TENANTS
    this.#chains.set(call, chain)
    return {
      kind: 'submit', tenant: tenantId(`tenant-${tenant}`), call, body: bodyId(`body-${this.#calls}`), freshProgram: 'none',
      claims: {
        identity: { source: 'explicit', confidence: 100 }, program: `program-${chain.program}`, thread: `thread-${chain.thread}`, session: null,
        epoch: null, final: false, toolResults: chain.result === null ? [] : [chain.result], kind: `agent-${tenant % 7}`, parent: null, node: null, parents: [],
      },
      model: 'm', digest: `digest-${this.#calls}`, seed: 1, promptTokensEstimate: 500, maxTokens: 512, exactResume: null,
      priorityClass: tenant % 10 === 0 ? 'batch' : tenant % 10 < 3 ? 'interactive' : 'default', deadlineUs: null,
    }
  }

  #measured(call: CallId): Input {
    const chain = this.#chains.get(call) as Chain
    const goesOn = chain.last !== null && chain.contextTokens < PROMPT_TOKENS_MAX
    const promptTokens = (goesOn ? chain.contextTokens : 0) + 100 + this.#draws.below(900)
    return {
      kind: 'measured', call, promptTokens, renderingWon: null,
      matched: goesOn && chain.last !== null ? { record: chain.last, tokens: chain.contextTokens } : null,
    }
  }

  #hangUp(): Input | null {
    for (let tries = 0; tries < 8; tries += 1) {
      const call = take(this.#waiting, this.#draws.unit())
      if (call !== null && this.core.calls.get(call)?.stage.kind === 'ready') return { kind: 'hangUp', call }
    }
    return null
  }

  #due(): Input | null {
    for (;;) {
      const timer = this.#timers[0]
      if (timer === undefined || timer.atUs > this.nowUs) return null
      popTimer(this.#timers)
      if (this.core.timers.get(timer.name) === timer.atUs) return { kind: 'due', timer: timer.name }
    }
  }

  // ---------------------------------------------------------------- what engines do

  #report(running: Running): AttemptReport {
    const workUs = 20_000 * running.outputTokens
    const zero = { residentUs: 0, workUs: 0 }
    return {
      service: { useful: { residentUs: 16 * workUs, workUs }, retried: zero, recomputed: zero },
      tailPrefilled: running.promptTokens - running.baseTokens, tailDecoded: Math.max(0, running.outputTokens - 1),
      outputTokens: running.outputTokens, recomputedTokens: 0,
    }
  }

  #progress(): Input {
    const of = this.#running[this.#draws.below(this.#running.length)]
    if (of === undefined) return { kind: 'due', timer: 'none' }
    const calls = this.#running.filter(({ engine }) => engine === of.engine).slice(0, CALLS_PER_PROGRESS)
    for (const running of calls) running.outputTokens += 8
    return {
      kind: 'progress', engine: of.engine, reign: 1, speeds: null,
      calls: calls.map((running) => ({ call: running.call, attempt: running.attempt, run: running.run, epoch: 1, report: this.#report(running) })),
    }
  }

  /** An engine is kept busy: nothing ends where too little runs. */
  #finished(): Input | null {
    if (this.#running.length < RUNNING_MIN) return null
    const running = take(this.#running, this.#draws.unit())
    if (running === null) return null
    running.outputTokens += 8
    const from = { engine: running.engine, reign: 1, call: running.call, attempt: running.attempt, run: running.run, epoch: 1 }
    const report = this.#report(running)
    const tool = this.#draws.unit() < 0.7
    return {
      kind: 'finished', ...from, report, finish: tool ? 'tool_calls' : 'stop', parts: { waitUs: 0, recomputeUs: 0, prefillUs: 10, decodeUs: 10 },
      spans: [
        { tokens: report.tailPrefilled, origin: 'prefilled' as const, digest: 'p' }, { tokens: report.tailDecoded, origin: 'decoded' as const, digest: 'd' },
      ].filter(({ tokens }) => tokens > 0),
      toolCalls: tool ? [{ id: `tool-${running.call}`, name: `tool-${this.#draws.below(5)}` }] : [], toolEffect: 'read', resume: 'none',
    }
  }

  /** A call that was told to pause does so with the next report of its engine. */
  #paused(): Input | null {
    const index = this.#running.findIndex(({ pausing }) => pausing)
    const [running] = index < 0 ? [] : this.#running.splice(index, 1)
    if (running === undefined) return null
    return { kind: 'paused', engine: running.engine, reign: 1, call: running.call, attempt: running.attempt, run: running.run, epoch: 1, report: this.#report(running) }
  }

  #moved(): Input | null {
    const moving = take(this.#moves, this.#draws.unit())
    if (moving === null) return null
    const { move, engine, tokens } = moving
    return { kind: 'moveDone', engine, reign: 1, move, bytes: tokens * 100_000, digest: 'x', copyUs: 1_000 }
  }

  // ---------------------------------------------------------------- the driver's part

  perform(facts: readonly Logged[]): void {
    this.#mustCount(facts)
    for (const { fact } of facts) {
      switch (fact.kind) {
        case 'call.arrived':
          this.#toMeasure.push(fact.call)
          break
        case 'call.ready':
          this.#waiting.push(fact.call)
          if (this.#waiting.length > 3 * this.ready + 1_000) this.#forgetStarted()
          break
        case 'call.scheduled':
          this.#running.push({
            call: fact.call, attempt: fact.attempt, run: this.core.calls.get(fact.call)?.preemptions ?? 0, engine: fact.engine, baseTokens: fact.baseTokens, outputTokens: fact.forcedTokens,
            promptTokens: this.core.calls.get(fact.call)?.promptTokens ?? 0, pausing: false,
          })
          break
        case 'call.preempted': {
          const running = this.#running.find(({ call }) => call === fact.call)
          if (running !== undefined) running.pausing = true
          break
        }
        case 'call.completed':
          this.#ended(fact.call, fact.toolCalls[0]?.id ?? null, true)
          break
        case 'call.cancelled':
        case 'call.failed':
          this.#ended(fact.call, null, false)
          break
        case 'kv.offload.begun':
        case 'kv.onboard.begun':
          this.#moves.push({ move: moveId(fact.move), engine: fact.engine, tokens: fact.tokens })
          break
        case 'timer.set':
          pushTimer(this.#timers, { name: fact.timer, atUs: fact.atUs })
          break
        default:
      }
    }
  }

  #ended(call: CallId, result: string | null, committed: boolean): void {
    const chain = this.#chains.get(call)
    if (chain === undefined) return
    this.#chains.delete(call)
    const thread = this.core.threads.get(this.core.calls.get(call)?.thread as never)
    const state = this.core.states.get(thread?.state as never)
    chain.last = committed ? call : null
    chain.result = result
    chain.contextTokens = state?.spans.reduce((sum, { tokens }) => sum + tokens, 0) ?? 0
    if (result === null) this.#between.push(chain)
    else this.#atTools.push(chain)
  }

  #forgetStarted(): void {
    const still = this.#waiting.filter((call) => this.core.calls.get(call)?.stage.kind === 'ready')
    this.#waiting.splice(0, this.#waiting.length, ...still)
  }
}

/** One of a list, which loses it; its order is not kept. */
function take<T>(list: T[], draw: number): T | null {
  const index = Math.floor(draw * list.length)
  const taken = list[index]
  const last = list.pop()
  if (taken === undefined || last === undefined) return null
  if (index < list.length) list[index] = last
  return taken
}

type Timers = { readonly name: string; readonly atUs: number }[]

function pushTimer(timers: Timers, timer: Timers[number]): void {
  let at = timers.length
  timers.push(timer)
  for (let above = (at - 1) >> 1; at > 0 && (timers[above] as Timers[number]).atUs > timer.atUs; above = (at - 1) >> 1) {
    timers[at] = timers[above] as Timers[number]
    at = above
  }
  timers[at] = timer
}

function popTimer(timers: Timers): void {
  const last = timers.pop()
  if (last === undefined || timers.length === 0) return
  let at = 0
  for (;;) {
    let below = 2 * at + 1
    if (below >= timers.length) break
    if (below + 1 < timers.length && (timers[below + 1] as Timers[number]).atUs < (timers[below] as Timers[number]).atUs) below += 1
    if ((timers[below] as Timers[number]).atUs >= last.atUs) break
    timers[at] = timers[below] as Timers[number]
    at = below
  }
  timers[at] = last
}
