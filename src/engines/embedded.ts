/**
 * Owns the adapter to the embedded engine: which process runs, when another is started, and what commands and events
 * mean in the words of the driver. The process is `engine-process.ts`'s, the laws of ending are `reports.ts`'s.
 *
 * M1 The process before is dead before the next one starts, also one that an earlier control plane left behind.
 * M2 Whatever the process says is checked twice: its shape, and that it fits what was asked. What does not fit ends the
 *    process's life: nothing after it can be trusted.
 * M3 A process that ends is started again as `restarts.ts` says; one that said that it cannot serve stays lost.
 *
 * It gives no inventory when it joins: the process is our child and ends with us, and with it what it held; a start
 * recomputes. What a restart takes over is an engine's that outlives its control plane.
 */
import { fileURLToPath } from 'node:url'
import { join } from 'node:path'
import { callId, engineId, moveId, type CallId } from '../core/ids.ts'
import type { Effect } from '../core/effect.ts'
import type { Capabilities } from '../core/state.ts'
import type { EngineCommand, EngineCondition, EnginePort, EngineSink, Measurement, MeasureRequest } from '../driver/ports.ts'
import { toolCallIdOf } from '../protocol/chat.ts'
import type { EngineEvent, WireEngine } from '../protocol/engine.ts'
import { undeclared } from './capability.ts'
import { argsOf, capabilitiesOf, reportOf, type EngineSettings } from './embedded-words.ts'
import type { LinkTerms } from './engine-link.ts'
import { EngineProcess } from './engine-process.ts'
import { EngineRemote, type RemoteOptions } from './engine-remote.ts'
import { awaitOrphan } from './orphan.ts'
import { EngineReports, type Attempt } from './reports.ts'
import { RESTART_LIMITS, Restarts } from './restarts.ts'

const EMBEDDED_LIMITS = {
  leaseMs: 10_000,
  batchMsMax: 120_000,
  startMsMax: 180_000,
  memoryBytesMax: null as number | null,
  ...RESTART_LIMITS,
}

interface AnyOptions {
  readonly id: string
  /** Names under which the model is asked for. */
  readonly models: readonly string[]
  /** What the tools a call ends with do to the world; `read` by default. */
  readonly toolEffect?: (names: readonly string[]) => Effect
  readonly limits?: Partial<typeof EMBEDDED_LIMITS>
}

/** Its process is our child. */
export interface EmbeddedOptions extends AnyOptions, EngineSettings {
  /** Holds the pid file; one for each data directory. */
  readonly runtimeDir: string
  /** Another program that speaks the protocol. */
  readonly workerPath?: string
}

/** Its process is another machine's. */
interface RemoteEngineOptions extends AnyOptions {
  readonly remote: RemoteOptions
}

type LifeHandlers = ConstructorParameters<typeof EngineRemote>[1]
type EngineLife = Pick<EngineRemote, 'gone' | 'send' | 'stop' | 'condemn'>

interface Asked {
  readonly request: MeasureRequest
  readonly answer: (measurement: Measurement) => void
}

type EventOf<Kind extends EngineEvent['kind']> = Extract<EngineEvent, { kind: Kind }>

export class EmbeddedEngine implements EnginePort {
  readonly id
  readonly #options: EmbeddedOptions | RemoteEngineOptions
  readonly #limits: typeof EMBEDDED_LIMITS
  readonly #reports: EngineReports
  readonly #measuring = new Map<CallId, Asked[]>()
  #capabilities: Capabilities | null = null
  #process: EngineLife | null = null
  /** The last process, gone or going. */
  #before: Promise<void> = Promise.resolve()
  #restarts: Restarts
  #condition: EngineCondition = { stage: 'starting', why: null }
  #restart: NodeJS.Timeout | null = null
  #awaySinceMs: number | null = null
  #awaySaid = false
  #closed = false

  constructor(options: EmbeddedOptions | RemoteEngineOptions) {
    this.id = engineId(options.id)
    this.#options = options
    this.#limits = { ...EMBEDDED_LIMITS, ...options.limits }
    this.#reports = new EngineReports(this.id)
    this.#restarts = new Restarts(this.#limits)
  }

  get condition(): EngineCondition { return this.#condition }

  open(reign: number, sink: EngineSink): void {
    if (!this.#reports.open(reign, sink)) return
    this.#restarts = new Restarts(this.#limits)
    this.#condition = { stage: 'starting', why: null }
    this.#letGo(`reign ${reign} took the engine over`)
    void this.#launch(reign)
  }

  measure(request: MeasureRequest): Promise<Measurement> {
    if (!this.#reports.joined || this.#process === null) return Promise.resolve(unavailable(`${this.id} is not joined`))
    const { call, body, records } = request
    this.#process.send(
      { kind: 'measure', reign: this.#reports.reign, call, body, records: records.map((record) => record.call) },
      records.map(({ record }) => record),
    )
    return new Promise((answer) => {
      this.#measuring.set(call, [...this.#measuring.get(call) ?? [], { request, answer }])
    })
  }

  perform(command: EngineCommand): void {
    const missing = this.#capabilities === null ? null : undeclared(this.#capabilities, command)
    const why = `${this.id} does not declare ${missing}`
    const { reign } = this.#reports
    switch (command.kind) {
      case 'start': {
        if (missing !== null) return this.#reports.refuse(command, why, false)
        if (this.#reports.begin(command) === null) return
        const { prepared, ...start } = command
        return this.#process?.send({ ...start, reign }, [prepared])
      }
      case 'offload':
      case 'onboard':
        if (missing !== null) return this.#reports.refuseMove(command.move, why)
        if (this.#reports.beginMove(command.move)) this.#process?.send({ ...command, reign })
        return
      case 'cancel':
        if (this.#reports.cancel(command.call, command.attempt) !== null) this.#process?.send({ ...command, reign })
        return
      default:
        if (missing === null && this.#reports.joined) this.#process?.send({ ...command, reign })
    }
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#reports.close(`${this.id} was closed`)
    this.#letGo(`${this.id} was closed`)
    await this.#before
  }

  // ---------------------------------------------------------------- lives

  #letGo(why: string): void {
    if (this.#restart !== null) clearTimeout(this.#restart)
    this.#restart = null
    if (this.#process !== null) this.#before = this.#process.stop()
    this.#process = null
    this.#answerAll(unavailable(why))
  }

  async #launch(reign: number): Promise<void> {
    const isOver = (): boolean => this.#closed || reign !== this.#reports.reign
    try {
      await this.#before
      if (isOver()) return
      const left = 'remote' in this.#options ? null : await awaitOrphan(pidFileOf(this.#options), this.#limits.leaseMs)
      if (isOver()) return
      if (left !== null) return this.#stay(left)
      const life: EngineLife = startLife(this.#options, { ...this.#limits, reign }, {
        event: (event, bin) => { if (this.#process === life) this.#hear(life, event, bin) },
        lost: (why, refused) => { if (this.#process === life) this.#lost(life, why, refused, reign) },
      })
      this.#process = life
    } catch (error) {
      this.#stay(`its process cannot be started: ${error instanceof Error ? error.message : String(error)}`)
    }
  }

  #lost(life: EngineLife, why: string, refused: boolean, reign: number): void {
    this.#process = null
    this.#before = life.gone
    const pauseMs = this.#restarts.lost(performance.now())
    const { early, isLoop } = this.#restarts
    const loop = isLoop ? `crash loop: ${early} lives in a row ended early; ` : ''
    const next = refused ? 'it stays lost: it would end the same' : `${loop}it is started again in ${pauseMs / 1_000} s`
    this.#condition = { stage: refused ? 'refused' : isLoop ? 'crash-loop' : 'lost', why: `${why}; ${next}` }
    if (this.#isNews()) this.#reports.lost(`${why}; ${next}`)
    this.#answerAll(unavailable(`${this.id} was lost: ${why}`))
    if (!refused) this.#restart = setTimeout(() => { void this.#launch(reign) }, pauseMs).unref()
  }

  /** Another machine's that is out of reach is said to be so when that has lasted for a lease, and once until it joins. */
  #isNews(): boolean {
    const nowMs = performance.now()
    this.#awaySinceMs ??= nowMs
    const isNews = !('remote' in this.#options) || this.#reports.joined || (!this.#awaySaid && nowMs - this.#awaySinceMs >= this.#limits.leaseMs)
    this.#awaySaid ||= isNews
    return isNews
  }

  #stay(why: string): void {
    this.#condition = { stage: 'refused', why }
    this.#reports.lost(why)
  }

  #answerAll(measurement: Measurement): void {
    for (const asked of this.#measuring.values()) for (const { answer } of asked) answer(measurement)
    this.#measuring.clear()
  }

  // ---------------------------------------------------------------- what it says

  #hear(life: EngineLife, event: EngineEvent, bin: readonly Uint8Array[]): void {
    const wrong = this.#take(life, event, bin)
    if (wrong !== null) life.condemn(`it broke the protocol: ${wrong}`)
  }

  /** Why it does not fit, where it does not. */
  #take(life: EngineLife, event: EngineEvent, bin: readonly Uint8Array[]): string | null {
    switch (event.kind) {
      case 'welcome': return this.#know(event.engine, true)
      // The link's own.
      case 'alive': return null
      case 'engine': return this.#know(event.engine, false)
      case 'measured': return this.#measured(event, bin[0] ?? new Uint8Array())
      case 'unmeasurable': return this.#answer(event.call, () => ({ ok: false, code: event.code, why: event.why }))
      case 'tokens': return this.#tokens(event)
      case 'progress': return this.#progress(event)
      case 'paused': return this.#ended(event, (attempt) => this.#reports.paused(attempt, reportOf(event.report)))
      case 'failed': return this.#ended(event, (attempt) => this.#reports.failed(attempt, event.why, event.retryable))
      case 'finished': return this.#ended(event, (attempt) => this.#finished(attempt, event, bin[0] ?? null))
      case 'moved':
        this.#reports.moveDone(moveId(event.move), event.bytes, event.digest, event.copyUs)
        return null
      case 'moveFailed':
        this.#reports.moveFailed(moveId(event.move), event.why, event.sourceLost)
        return null
      case 'refused':
        // We and it disagree on what is so; a fresh process agrees.
        life.condemn(`it refused ${event.what}: ${event.why}`)
        return null
    }
  }

  /** Joins, or says again what it can do once more is known. */
  #know(engine: WireEngine, joins: boolean): string | null {
    const before = JSON.stringify(this.#capabilities)
    this.#capabilities = capabilitiesOf(this.#options.models, engine)
    if (joins) {
      this.#restarts.joined(performance.now())
      this.#condition = { stage: 'joined', why: engine.fallback }
      this.#awaySinceMs = null
      this.#awaySaid = false
    }
    if (joins || JSON.stringify(this.#capabilities) !== before) this.#reports.join(this.#capabilities, engine.speeds)
    else this.#reports.progress(engine.speeds, [])
    return null
  }

  #measured({ call, promptTokens, matched, renderingWon }: EventOf<'measured'>, prepared: Uint8Array): string | null {
    const given = this.#measuring.get(callId(call))?.[0]?.request.records ?? []
    const record = matched === null ? null : given.find((one) => one.call === matched.record)?.call ?? null
    if (matched !== null && record === null) return `it matched ${call} with ${matched.record}, which it was not given`
    if (matched !== null && matched.tokens > promptTokens) {
      return `it matched ${matched.tokens} of ${promptTokens} tokens`
    }
    const match = record === null ? null : { record, tokens: matched?.tokens ?? 0 }
    // A copy: the frame it lies in holds more.
    const copy = prepared.slice()
    return this.#answer(call, () => ({ ok: true, prepared: copy, promptTokens, matched: match, renderingWon }))
  }

  #answer(call: string, measurement: () => Measurement): string | null {
    const [first, ...rest] = this.#measuring.get(callId(call)) ?? []
    if (first === undefined) return `it measured ${call} and was not asked to`
    if (rest.length > 0) this.#measuring.set(callId(call), rest)
    else this.#measuring.delete(callId(call))
    first.answer(measurement())
    return null
  }

  #tokens({ call, attempt: number, index, tokens, parts }: EventOf<'tokens'>): string | null {
    const attempt = this.#reports.find(callId(call), number)
    if (attempt === null) return null
    if (index !== attempt.nextIndex) return `the tokens of ${call} go on at ${index}, not at ${attempt.nextIndex}`
    this.#reports.chunk(attempt, tokens, parts)
    return null
  }

  #progress({ speeds, calls }: EventOf<'progress'>): string | null {
    const reports = calls.flatMap(({ call, attempt, report }) => {
      const found = this.#reports.find(callId(call), attempt)
      return found === null ? [] : [{ attempt: found, report: reportOf(report) }]
    })
    this.#reports.progress(speeds, reports)
    return null
  }

  #ended(event: EventOf<'paused' | 'failed' | 'finished'>, end: (attempt: Attempt) => void): string | null {
    const attempt = this.#reports.find(callId(event.call), event.attempt)
    if (attempt === null) return null
    if (event.epoch !== attempt.epoch) return `it ended ${event.call} in epoch ${event.epoch}, not ${attempt.epoch}`
    end(attempt)
    return null
  }

  #finished(attempt: Attempt, event: EventOf<'finished'>, record: Uint8Array | null): void {
    const { promptTokens, outputTokens, cachedTokens, finish, report, parts, spans, resume } = event
    const toolCalls = event.toolCalls.map(({ name }, index) => ({ id: toolCallIdOf(attempt.call, index), name }))
    this.#reports.finished(attempt, { record: record?.slice() ?? null, promptTokens, outputTokens, cachedTokens }, {
      finish,
      report: reportOf(report),
      parts,
      spans,
      toolCalls,
      toolEffect: this.#options.toolEffect?.(toolCalls.map(({ name }) => name)) ?? 'read',
      resume,
    })
  }
}

const pidFileOf = ({ runtimeDir, id }: EmbeddedOptions): string => join(runtimeDir, `${id}.pid`)

/** Throws where a process cannot be started. */
function startLife(options: EmbeddedOptions | RemoteEngineOptions, limits: LinkTerms & { readonly startMsMax: number }, handlers: LifeHandlers): EngineLife {
  if ('remote' in options) return new EngineRemote({ ...options.remote, ...limits }, handlers)
  return new EngineProcess({ ...limits, workerPath: options.workerPath ?? WORKER_PATH, args: argsOf(options), pidFile: pidFileOf(options) }, handlers)
}

/** Beside us in the build. */
const WORKER_PATH = fileURLToPath(new URL('../engine/worker.js', import.meta.url))

const unavailable = (why: string): Measurement => ({ ok: false, code: 'engine_unavailable', why })
