/**
 * Owns the adapter to any OpenAI-compatible base URL: identity and order only. It forwards a chat call, passes on what
 * comes back, and keeps nothing; tokens are counted as chunks, because the upstream names no others.
 *
 * O1 An attempt that showed something is not tried again: the upstream cannot go on from there, and would say
 *    something else. So forced tokens are refused, and a stream that broke ends its call.
 * O2 A failure worth a retry is said after a pause that grows with the attempts, or as long as the upstream asked for:
 *    attempts are not burnt on an upstream that is catching its breath.
 */
import { performance } from 'node:perf_hooks'
import { engineId, type CallId } from '../core/ids.ts'
import type { AttemptReport } from '../core/input.ts'
import type { Effect } from '../core/effect.ts'
import type { Capabilities, EngineSpeeds } from '../core/state.ts'
import type { Tokens, Us } from '../core/units.ts'
import type {
  EngineCommand, EnginePort, EngineSink, Measurement, MeasureRequest, StartCommand,
} from '../driver/ports.ts'
import { toolCallIdOf } from '../protocol/chat.ts'
import { undeclared } from './capability.ts'
import { estimateTokens, readChatCall } from './chat-body.ts'
import { AnswerReader, requestBody, seedOf, UpstreamError } from './openai-wire.ts'
import { EngineReports, type Attempt } from './reports.ts'
import { ServiceMeter } from './service-meter.ts'
import { reasonOf, Upstream } from './upstream.ts'

const PROGRESS_MS = 100
/** Between looks at an upstream that nobody uses. */
const CHECK_MS = 15_000
/** A joined upstream is lost after so many looks in a row that failed. */
const FAILED_CHECKS_MAX = 2
const CHECK_AGAIN_MS_MIN = 500
const CHECK_AGAIN_MS_MAX = 30_000
/** A stream that says nothing at all for so long is given up; a comment is something. */
const SILENT_MS_MAX = 300_000
const RETRY_MS_MIN = 250
const RETRY_MS_MAX = 5_000

/** Nobody measured them: plain figures of a served model, so that estimates have an order of magnitude. */
const SPEEDS: EngineSpeeds = {
  prefillNsPerToken: 500_000, decodeBaseNs: 20_000_000, decodeRowNs: 500_000, copyOutNsPerToken: 0, copyInNsPerToken: 0,
}

export interface OpenaiOptions {
  readonly id: string
  readonly baseUrl: string
  readonly apiKey: string | null
  /** The upstream's names for what it serves. */
  readonly models: readonly string[]
  readonly contextTokens: Tokens
  readonly runningMax: number
  /** What the tools a call ends with do to the world; `read` by default. */
  readonly toolEffect?: (names: readonly string[]) => Effect
  /** Instead of SILENT_MS_MAX. */
  readonly silentMsMax?: number
}

interface Running {
  readonly attempt: Attempt
  readonly abort: AbortController
  readonly startedUs: Us
  firstUs: Us | null
}

export class OpenaiEngine implements EnginePort {
  readonly id
  readonly #options: OpenaiOptions
  readonly #capabilities: Capabilities
  readonly #reports: EngineReports
  readonly #upstream: Upstream
  readonly #running = new Map<CallId, Running>()
  readonly #meter = new ServiceMeter<Attempt>()
  #failedChecks = 0
  #heardUs: Us = 0
  #lostWhy: string | null = null
  #checkTimer: NodeJS.Timeout | null = null
  #progressTimer: NodeJS.Timeout | null = null
  #closed = false

  constructor(options: OpenaiOptions) {
    this.id = engineId(options.id)
    this.#options = options
    this.#capabilities = capabilitiesOf(options)
    this.#reports = new EngineReports(this.id)
    this.#upstream = new Upstream(options.baseUrl, options.apiKey)
  }

  open(reign: number, sink: EngineSink): void {
    if (!this.#reports.open(reign, sink)) return
    for (const running of [...this.#running.values()]) this.#drop(running)
    this.#lostWhy = null
    this.#checkIn(0)
  }

  measure({ body }: MeasureRequest): Promise<Measurement> {
    const promptTokens = estimateTokens(body)
    const { contextTokens } = this.#options
    const tooLong = `the prompt has about ${promptTokens} tokens and the context ${contextTokens}`
    return Promise.resolve(readChatCall(body) === null
      ? { ok: false, code: 'invalid_request', why: 'the body is no chat call' }
      : promptTokens >= contextTokens ? { ok: false, code: 'context_too_long', why: tooLong }
        : { ok: true, prepared: new Uint8Array(), promptTokens, matched: null, renderingWon: null })
  }

  perform(command: EngineCommand): void {
    const missing = undeclared(this.#capabilities, command)
    if (missing !== null) {
      const why = `${this.id} does not declare ${missing}`
      if (command.kind === 'start') this.#reports.refuse(command, why, false)
      if ('move' in command) this.#reports.refuseMove(command.move, why)
      return
    }
    if (command.kind === 'start') this.#start(command)
    if (command.kind === 'cancel') this.#cancel(command.call, command.attempt)
  }

  async close(): Promise<void> {
    this.#closed = true
    for (const timer of [this.#checkTimer, this.#progressTimer]) if (timer !== null) clearTimeout(timer)
    this.#reports.close(`${this.id} was closed`)
    for (const running of [...this.#running.values()]) this.#drop(running)
    await this.#upstream.close()
  }

  // ---------------------------------------------------------------- attempts

  #start(start: StartCommand): void {
    const chat = readChatCall(start.body)
    if (chat === null) return this.#reports.refuse(start, 'the body is no chat call', false)
    if (start.forced.length > 0) {
      return this.#reports.refuse(start, `${this.id} cannot go on with an answer that was shown in part`, false)
    }
    const attempt = this.#reports.begin(start)
    if (attempt === null) return
    const running: Running = { attempt, abort: new AbortController(), startedUs: nowUs(), firstUs: null }
    const before = this.#running.get(start.call)
    if (before !== undefined) this.#drop(before)
    this.#running.set(start.call, running)
    this.#meter.enter(attempt, running.startedUs)
    this.#progressTimer ??= setTimeout(() => this.#progress(), PROGRESS_MS).unref()
    const body = requestBody(chat, seedOf(start.seed, chat.choice ?? 0), start.maxTokens)
    this.#follow(running, body).catch((error: unknown) => this.#failed(running, error))
  }

  async #follow(running: Running, body: string): Promise<void> {
    const { attempt, abort } = running
    const reader = new AnswerReader((parts) => {
      running.firstUs ??= nowUs()
      this.#reports.chunk(attempt, [attempt.nextIndex], parts)
    })
    const silentMsMax = this.#options.silentMsMax ?? SILENT_MS_MAX
    const silent = (): void => abort.abort(new UpstreamError(`the upstream said nothing for ${silentMsMax} ms`, true))
    const timer = setTimeout(silent, silentMsMax).unref()
    try {
      for await (const bytes of await this.#upstream.chat(body, abort.signal)) {
        timer.refresh()
        this.#heardUs = nowUs()
        reader.feed(bytes)
        if (reader.ended) break
      }
    } catch (error) {
      // A stream that breaks after its last word has ended.
      if (reader.finish === null || error instanceof UpstreamError) throw abort.signal.reason ?? error
    } finally {
      clearTimeout(timer)
    }
    if (reader.finish === null) throw new UpstreamError('the stream of the upstream ended early', true)
    this.#finish(running, reader, reader.finish)
  }

  #finish(running: Running, reader: AnswerReader, finish: 'stop' | 'length' | 'tool_calls'): void {
    const { attempt } = running
    if (this.#running.get(attempt.call) !== running) return
    const endUs = nowUs()
    const report = this.#report(running)
    const promptUs = (running.firstUs ?? endUs) - running.startedUs
    const toolCalls = finish === 'tool_calls'
      ? reader.toolCalls.map(({ name }, index) => ({ id: toolCallIdOf(attempt.call, index), name })) : []
    this.#drop(running)
    this.#reports.finished(attempt, {
      record: null,
      promptTokens: reader.usage?.promptTokens ?? 0,
      outputTokens: reader.usage?.outputTokens ?? report.outputTokens,
      cachedTokens: reader.usage?.cachedTokens ?? 0,
    }, {
      finish,
      report,
      parts: { waitUs: 0, recomputeUs: 0, prefillUs: promptUs, decodeUs: endUs - running.startedUs - promptUs },
      spans: [],
      toolCalls,
      toolEffect: this.#options.toolEffect?.(toolCalls.map(({ name }) => name)) ?? 'read',
      resume: 'none',
    })
  }

  #failed(running: Running, error: unknown): void {
    const { attempt } = running
    if (this.#running.get(attempt.call) !== running) return
    const known = error instanceof UpstreamError ? error
      : new UpstreamError(`the stream of the upstream broke: ${reasonOf(error)}`, true)
    if (!known.reached) this.#checkIn(0)
    const retryable = known.retryable && !attempt.shown
    const ownPauseMs = RETRY_MS_MIN * 2 ** (attempt.attempt - 1)
    const pauseMs = retryable ? Math.min(known.retryAfterMs ?? ownPauseMs, RETRY_MS_MAX) : 0
    setTimeout(() => {
      if (this.#running.get(attempt.call) !== running) return
      this.#drop(running)
      this.#reports.failed(attempt, known.message, retryable)
    }, pauseMs).unref()
  }

  #cancel(call: CallId, number: number): void {
    const cancelled = this.#reports.cancel(call, number)
    const running = this.#running.get(call)
    if (cancelled !== null && running?.attempt === cancelled) this.#drop(running)
  }

  /** Nothing more is heard of it, and the upstream sees its client gone. */
  #drop(running: Running): void {
    this.#running.delete(running.attempt.call)
    this.#meter.leave(running.attempt, nowUs())
    running.abort.abort()
  }

  #report({ attempt }: Running): AttemptReport {
    const service = this.#meter.read(attempt, nowUs())
    return { service, tailPrefilled: 0, tailDecoded: 0, outputTokens: attempt.nextIndex, recomputedTokens: 0 }
  }

  #progress(): void {
    const running = [...this.#running.values()]
    this.#reports.progress(null, running.map((one) => ({ attempt: one.attempt, report: this.#report(one) })))
    this.#progressTimer = this.#running.size === 0 ? null : setTimeout(() => this.#progress(), PROGRESS_MS).unref()
  }

  // ---------------------------------------------------------------- health

  #checkIn(ms: number): void {
    if (this.#closed) return
    if (this.#checkTimer !== null) clearTimeout(this.#checkTimer)
    this.#checkTimer = setTimeout(() => { void this.#check() }, ms).unref()
  }

  async #check(): Promise<void> {
    const reign = this.#reports.reign
    const why = await this.#upstream.check().then(() => null, reasonOf)
    if (this.#closed || reign !== this.#reports.reign) return
    // A stream that speaks is a better witness than a list of models that does not come.
    if (why !== null && this.#running.size > 0 && nowUs() - this.#heardUs < CHECK_MS * 1_000) {
      return this.#checkIn(CHECK_AGAIN_MS_MIN)
    }
    this.#failedChecks = why === null ? 0 : this.#failedChecks + 1
    if (why === null) {
      if (!this.#reports.joined) this.#reports.join(this.#capabilities, SPEEDS)
      this.#lostWhy = null
      return this.#checkIn(CHECK_MS)
    }
    if (!this.#reports.joined || this.#failedChecks >= FAILED_CHECKS_MAX) this.#lose(why)
    this.#checkIn(Math.min(CHECK_AGAIN_MS_MIN * 2 ** (this.#failedChecks - 1), CHECK_AGAIN_MS_MAX))
  }

  /** Said once for each reason: an upstream may be away for hours. */
  #lose(why: string): void {
    for (const running of [...this.#running.values()]) {
      if (running.attempt.shown) this.#reports.failed(running.attempt, why, false)
      this.#drop(running)
    }
    if (this.#lostWhy !== why) this.#reports.lost(why)
    this.#lostWhy = why
  }
}

function capabilitiesOf({ models, contextTokens, runningMax }: OpenaiOptions): Capabilities {
  return {
    models,
    contextTokens,
    runningMax,
    tokenise: false,
    rank: false,
    preempt: false,
    cancel: true,
    memory: null,
    kvBytesPerToken: 0,
    sharesBytes: false,
    copy: false,
    trim: false,
    offload: false,
    onboard: false,
    discard: false,
    exact: { answer: 'no', because: 'the upstream says nothing of how it computes' },
    replayByOrigin: false,
    imageKey: null,
    progress: true,
    inventory: false,
  }
}

const nowUs = (): Us => Math.floor(performance.now() * 1_000)
