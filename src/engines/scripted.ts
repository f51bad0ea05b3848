/**
 * Owns the engine that plays a script: outputs, speeds and faults are given as data (`script-file.ts`), time is real
 * unless a clock is handed in. It has no model, but all that a control plane can see of one: tokens and records, lanes
 * or blocks of memory, images, progress, pauses, deaths. Deterministic given the script and the clock.
 *
 * It is also a check of who commands it: a command that its ledger cannot make sense of is a breach of the contract,
 * kept in `breaches`, told as a process warning, and answered as a failure that is not worth a retry.
 */
import { performance } from 'node:perf_hooks'
import { engineId, type CallId, type StateId } from '../core/ids.ts'
import { SECOND_US, type Tokens, type Us } from '../core/units.ts'
import type { AttemptReport } from '../core/input.ts'
import type { Effect } from '../core/effect.ts'
import type { Capabilities } from '../core/state.ts'
import type {
  Clock, EngineCommand, EnginePort, EngineSink, Measurement, MeasureRequest, StartCommand,
} from '../driver/ports.ts'
import { toolCallIdOf } from '../protocol/chat.ts'
import { undeclared } from './capability.ts'
import { readChatCall } from './chat-body.ts'
import { EngineReports } from './reports.ts'
import { answerOf, readRecord, sumOf, writeRecord, type ScriptItem } from './script.ts'
import type { Script } from './script-file.ts'
import { readImage, ScriptedImageError, writeImage } from './scripted-image.ts'
import { asPrefilled, measured } from './scripted-measure.ts'
import { DeviceLedger } from './scripted-memory.ts'
import { ScriptedRun, type Emission } from './scripted-run.ts'
import { attemptSpeedsOf, capabilitiesOf, speedsOf } from './scripted-shape.ts'
import { ServiceMeter } from './service-meter.ts'

/** Reports of progress come no more often. */
const PROGRESS_US = SECOND_US / 10
/** Tokens that are due within this come in one chunk. */
const TICK_US = 1_000
/** Calls whose failed attempts are remembered; at it the oldest is forgotten and fails anew. */
const FAILING_CALLS_MAX = 10_000

export type ScriptedClock = Pick<Clock, 'nowUs' | 'at'>

interface ScriptedOptions {
  readonly id: string
  readonly script: Script
  /** What the tools a call ends with do to the world; `read` by default. */
  readonly toolEffect?: (names: readonly string[]) => Effect
  readonly clock?: ScriptedClock
}

export interface ScriptedEngine extends EnginePort {
  /** Commands that made no sense, oldest first. */
  readonly breaches: readonly string[]
}

export const createScriptedEngine = (options: ScriptedOptions): ScriptedEngine => new Scripted(options)

class Scripted implements ScriptedEngine {
  readonly id
  readonly breaches: string[] = []
  readonly #script: Script
  readonly #toolEffect: (names: readonly string[]) => Effect
  readonly #clock: ScriptedClock
  readonly #capabilities: Capabilities
  readonly #reports: EngineReports
  readonly #ledger: DeviceLedger | null
  readonly #meter = new ServiceMeter<CallId>()
  readonly #runs = new Map<CallId, ScriptedRun>()
  readonly #failures = new Map<CallId, number>()
  /** Measurements that a hung engine does not answer. */
  readonly #unanswered = new Set<(measurement: Measurement) => void>()
  #hung = false
  /** Grows when what is under way is abandoned: what an earlier life began is void. */
  #life = 0
  #progressUs: Us = 0
  #cancelWake: () => void = () => undefined
  #cancelRejoin: () => void = () => undefined

  constructor({ id, script, toolEffect = () => 'read', clock = realClock }: ScriptedOptions) {
    this.id = engineId(id)
    this.#script = script
    this.#toolEffect = toolEffect
    this.#clock = clock
    this.#capabilities = capabilitiesOf(script)
    this.#reports = new EngineReports(this.id)
    this.#ledger = this.#capabilities.memory === null ? null : new DeviceLedger(this.#capabilities.memory)
  }

  open(reign: number, sink: EngineSink): void {
    if (!this.#reports.open(reign, sink)) return
    // Whoever commanded it before is gone, and its device is not: what lies there idle is told to the next.
    this.#abandon()
    this.#joinAt(this.#clock.nowUs())
  }

  measure(request: MeasureRequest): Promise<Measurement> {
    if (this.#hung) return new Promise((resolve) => { this.#unanswered.add(resolve) })
    const { joined } = this.#reports
    return Promise.resolve(joined ? measured(this.#script, request) : unavailable(`${this.id} is not joined`))
  }

  perform(command: EngineCommand): void {
    const missing = undeclared(this.#capabilities, command)
    if (missing !== null) {
      const why = `${this.id} does not declare ${missing}`
      this.#breach(why)
      if (command.kind === 'start') this.#reports.refuse(command, why, false)
      if ('move' in command) this.#reports.refuseMove(command.move, why)
      return
    }
    switch (command.kind) {
      case 'start': return this.#start(command)
      case 'order': return this.#order(command.orders)
      case 'pause': return this.#pause(command.call, command.attempt)
      case 'cancel': return this.#cancel(command.call, command.attempt)
      case 'offload': return this.#offload(command)
      case 'onboard': return this.#onboard(command)
      case 'discard': return this.#discard(command.state)
    }
  }

  close(): Promise<void> {
    this.#forgetDevice()
    this.#reports.close(`${this.id} was closed`)
    return Promise.resolve()
  }

  // ---------------------------------------------------------------- attempts

  #start(start: StartCommand): void {
    if (this.#reports.find(start.call, start.attempt) !== null) {
      return this.#breach(`${start.call} was started twice as attempt ${start.attempt}`)
    }
    const attempt = this.#reports.begin(start)
    if (attempt === null || this.#hung) return
    const refuse = (why: string): void => queueMicrotask(() => this.#reports.failed(attempt, why, false))
    const chat = readChatCall(start.body)
    if (chat === null) return refuse('the body is no chat call')
    const prompt = this.#script.tokenise ? readRecord(start.prepared) : asPrefilled(chat)
    const answer = answerOf(this.#script.items, chat)
    const strange = start.forced.findIndex((id, index) => answer.tokens[index]?.id !== id)
    if (strange >= 0) return refuse(`forced token ${strange} is not what this script says`)
    const { runningMax } = this.#script
    const breach = this.#runs.size >= runningMax ? `more than ${runningMax} calls were started`
      : this.#ledger?.start(start.state, start.call, start.keepTokens, start.grantGranules) ?? null
    if (breach !== null) {
      this.#breach(breach)
      return refuse(`contract breach: ${breach}`)
    }
    const nowUs = this.#clock.nowUs()
    const speeds = attemptSpeedsOf(this.#script, answer.item)
    const failsAfter = this.#failsAfter(start.call, answer.item)
    const run = new ScriptedRun(attempt, start, prompt, answer, speeds, failsAfter, nowUs)
    this.#runs.set(start.call, run)
    this.#meter.enter(start.call, nowUs)
    this.#wakeIn(0)
  }

  #failsAfter(call: CallId, { fail, failTimes = 1, failAfterTokens = 0 }: ScriptItem): Tokens | null {
    if (fail === undefined || (fail !== 'fatal' && (this.#failures.get(call) ?? 0) >= failTimes)) return null
    return failAfterTokens
  }

  #order(orders: Extract<EngineCommand, { kind: 'order' }>['orders']): void {
    for (const { call, grantGranules } of orders) {
      const breach = this.#ledger?.grant(call, grantGranules) ?? null
      if (breach !== null) this.#breach(breach)
    }
    this.#wakeIn(0)
  }

  #pause(call: CallId, number: number): void {
    const run = this.#runs.get(call)
    if (this.#hung || run === undefined || this.#reports.find(call, number) === null) return
    queueMicrotask(() => {
      if (this.#runs.get(call) !== run || this.#live(run, this.#clock.nowUs()) === null) return
      const report = this.#report(run)
      this.#drop(run, run.fed)
      this.#reports.paused(run.attempt, report)
    })
  }

  #cancel(call: CallId, number: number): void {
    const cancelled = this.#reports.cancel(call, number)
    const run = this.#runs.get(call)
    if (cancelled === null || run?.attempt !== cancelled) return
    this.#drop(run, run.start.baseTokens)
    this.#failures.delete(call)
  }

  /** The call is off the engine; at most `keepTokens` of its State stay. */
  #drop(run: ScriptedRun, keepTokens: Tokens): void {
    this.#runs.delete(run.start.call)
    this.#meter.leave(run.start.call, this.#clock.nowUs())
    this.#ledger?.stop(run.start.state, keepTokens)
  }

  // ---------------------------------------------------------------- moves

  #offload({ move, state, path, spans, identity }: Extract<EngineCommand, { kind: 'offload' }>): void {
    if (!this.#reports.beginMove(move) || this.#hung) return
    const tokens = sumOf(spans)
    const breach = this.#ledger?.copyOut(state, tokens) ?? null
    if (breach !== null) return this.#breachOfMove(move, breach)
    const head = { key: this.#capabilities.imageKey ?? '', identity, spans }
    const { copyOutTokensPerSecond, kvBytesPerToken } = this.#script
    this.#copy(move, state, tokens / copyOutTokensPerSecond, () => writeImage(path, head, tokens * kvBytesPerToken))
  }

  #onboard({ move, state, path, digest, identity }: Extract<EngineCommand, { kind: 'onboard' }>): void {
    if (!this.#reports.beginMove(move) || this.#hung) return
    const copy = async (): Promise<{ bytes: number; digest: string; copySeconds: number }> => {
      const life = this.#life
      const { tokens, bytes } = await readImage(path, { key: this.#capabilities.imageKey ?? '', digest, identity })
      const breach = life === this.#life ? this.#ledger?.copyIn(state, tokens) ?? null : null
      if (breach !== null) {
        this.#breach(breach)
        throw new ScriptedImageError(`contract breach: ${breach}`, false)
      }
      return { bytes, digest, copySeconds: tokens / this.#script.copyInTokensPerSecond }
    }
    this.#copy(move, state, 0, copy)
  }

  /** Done no sooner than the simulated copy takes; what an earlier life began ends unsaid, engineLost has said it. */
  #copy(
    move: Extract<EngineCommand, { kind: 'offload' }>['move'], state: StateId, seconds: number,
    copy: () => Promise<{ bytes: number; digest: string; copySeconds?: number }>,
  ): void {
    const life = this.#life
    const begunUs = this.#clock.nowUs()
    copy().then(({ bytes, digest, copySeconds = seconds }) => {
      const atUs = Math.max(this.#clock.nowUs(), begunUs + Math.ceil(copySeconds * SECOND_US))
      this.#clock.at(atUs, () => {
        if (life !== this.#life || this.#hung) return
        this.#ledger?.moved(state)
        this.#reports.moveDone(move, bytes, digest, this.#clock.nowUs() - begunUs)
      })
    }, (error: unknown) => {
      if (life !== this.#life || this.#hung) return
      this.#ledger?.moved(state)
      const why = error instanceof Error ? error.message : String(error)
      this.#reports.moveFailed(move, why, error instanceof ScriptedImageError && error.sourceLost)
    })
  }

  #discard(state: StateId): void {
    const breach = this.#hung ? null : this.#ledger?.discard(state) ?? null
    if (breach !== null) this.#breach(breach)
  }

  #breachOfMove(move: Extract<EngineCommand, { kind: 'offload' }>['move'], breach: string): void {
    this.#breach(breach)
    queueMicrotask(() => this.#reports.moveFailed(move, `contract breach: ${breach}`, false))
  }

  #breach(why: string): void {
    this.breaches.push(why)
    process.emitWarning(`${this.id}: ${why}`, 'EngineContractBreach')
  }

  // ---------------------------------------------------------------- time

  #wakeIn(us: Us): void {
    this.#cancelWake()
    this.#cancelWake = this.#clock.at(this.#clock.nowUs() + us, () => this.#tick())
  }

  #tick(): void {
    if (this.#hung) return
    const nowUs = this.#clock.nowUs()
    let nextUs: Us | null = null
    for (const run of [...this.#runs.values()]) {
      const aheadUs = this.#runs.get(run.start.call) === run ? this.#live(run, nowUs) : null
      if (aheadUs !== null && (nextUs === null || aheadUs < nextUs)) nextUs = aheadUs
    }
    if (nowUs - this.#progressUs >= PROGRESS_US) {
      this.#progressUs = nowUs
      const runs = [...this.#runs.values()]
      this.#reports.progress(null, runs.map((run) => ({ attempt: run.attempt, report: this.#report(run) })))
    }
    if (this.#runs.size > 0 && !this.#hung) {
      this.#wakeIn(Math.min(PROGRESS_US, Math.max(TICK_US, nextUs ?? PROGRESS_US)))
    }
  }

  /** Lets a run live up to now and says what came of it. When it wants to live again; null once it is over. */
  #live(run: ScriptedRun, nowUs: Us): Us | null {
    const said: Emission = { tokens: [], parts: [] }
    const step = run.advance(nowUs, this.#ledger?.roomOf(run.start.state) ?? Number.MAX_SAFE_INTEGER, said)
    this.#meter.charge(run.start.call, run.isRecomputing ? 'recomputed' : 'useful', nowUs)
    if (this.#ledger !== null) this.#ledger.grow(run.start.state, run.fed - this.#ledger.tokensOf(run.start.state))
    if (said.tokens.length > 0) this.#reports.chunk(run.attempt, said.tokens, said.parts)
    switch (step.kind) {
      case 'going': return step.nextUs ?? PROGRESS_US
      case 'fails':
        this.#fail(run)
        return null
      case 'ends':
        this.#finish(run, step.finish)
        return null
    }
  }

  #finish(run: ScriptedRun, finish: 'stop' | 'length' | 'tool_calls'): void {
    const { call, keepTokens, recomputeTokens, replay } = run.start
    const report = this.#report(run)
    const record = run.record()
    const holdsStates = this.#ledger !== null
    const spans = run.spans()
    this.#drop(run, run.fed)
    const end = spans.at(-1)
    if (end !== undefined) this.#ledger?.mark(run.start.state, run.start.epoch, end.digest)
    this.#failures.delete(call)
    const called = finish === 'tool_calls' ? run.answer.toolCalls : []
    const toolCalls = called.map(({ name }, index) => ({ id: toolCallIdOf(call, index), name }))
    this.#reports.finished(run.attempt, {
      record: holdsStates ? writeRecord(record) : null,
      promptTokens: record.promptTokens,
      outputTokens: report.outputTokens,
      cachedTokens: Math.min(keepTokens, record.promptTokens),
    }, {
      finish,
      report,
      parts: run.parts(),
      spans: holdsStates ? spans : [],
      toolCalls,
      toolEffect: this.#toolEffect(toolCalls.map(({ name }) => name)),
      resume: recomputeTokens === 0 ? 'none' : replay === 'exact' ? 'exact' : 'recomputed',
    })
  }

  #fail(run: ScriptedRun): void {
    const { call, baseTokens } = run.start
    const { fail } = run.answer.item
    this.#failures.set(call, (this.#failures.get(call) ?? 0) + 1)
    const [oldest] = this.#failures.keys()
    if (oldest !== undefined && this.#failures.size > FAILING_CALLS_MAX) this.#failures.delete(oldest)
    if (fail === 'hang') {
      this.#hung = true
      const why = `${this.id} has not answered for ${this.#script.leaseMs} ms`
      this.#cancelWake = this.#clock.at(this.#clock.nowUs() + this.#script.leaseMs * 1_000, () => this.#lose(why))
    } else if (fail === 'lost') {
      this.#lose(`${this.id} died, as its script says`)
    } else {
      this.#drop(run, baseTokens)
      this.#reports.failed(run.attempt, 'the script says so', fail === 'retryable')
    }
  }

  #lose(why: string): void {
    this.#forgetDevice()
    this.#reports.lost(why)
    this.#joinAt(this.#clock.nowUs() + this.#script.rejoinMs * 1_000)
  }

  #joinAt(atUs: Us): void {
    this.#cancelRejoin = this.#clock.at(atUs, () => {
      this.#reports.join(this.#capabilities, speedsOf(this.#script), this.#ledger?.inventory())
    })
  }

  #forgetDevice(): void {
    this.#abandon()
    this.#ledger?.clear()
  }

  /** What is under way ends unsaid. */
  #abandon(): void {
    this.#cancelWake()
    this.#cancelRejoin()
    this.#hung = false
    this.#life += 1
    for (const run of [...this.#runs.values()]) this.#drop(run, 0)
    for (const answer of this.#unanswered) answer(unavailable(`${this.id} was lost`))
    this.#unanswered.clear()
  }

  #report(run: ScriptedRun): AttemptReport {
    const kv = this.#ledger === null ? { tailPrefilled: 0, tailDecoded: 0 } : {}
    return { service: this.#meter.read(run.start.call, this.#clock.nowUs()), ...run.report(), ...kv }
  }
}

const unavailable = (why: string): Measurement => ({ ok: false, code: 'engine_unavailable', why })

const realClock: ScriptedClock = {
  nowUs: () => Math.floor(performance.now() * 1_000),
  at: (atUs, call) => {
    const timer = setTimeout(call, Math.max(0, Math.ceil(atUs / 1_000 - performance.now())))
    timer.unref()
    return () => clearTimeout(timer)
  },
}
