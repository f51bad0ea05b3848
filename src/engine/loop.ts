/**
 * Owns the engine's loop: schedule -> execute -> postprocess. START HERE to read the engine: `schedule.ts` says what
 * runs next, `prefixes.ts` what need not be computed, `batch.ts` what goes to the library, `density.ts` in which lanes,
 * `sequence.ts` what an attempt is; `plan.ts` and `lanes.ts` keep the laws of origins and of lanes, `running.ts` begins
 * and ends attempts, `moves.ts` takes States out and in, `probe.ts` finds out whether all of this is exact here.
 *
 * L1 commands are obeyed in their order, between batches only, after the batch before was sampled: no State moves with
 *    logits and no token.
 * L2 a command of a lower reign than was seen is refused and changes nothing (invariant 15).
 * L3 whenever the engine is idle, free + owned = total lanes (invariant 11), and each lane holds what we think.
 */
import assert from 'node:assert/strict'
import { setImmediate as immediate } from 'node:timers/promises'
import { ENGINE_PROTOCOL } from '../protocol/engine.ts'
import type { EngineEvent, EngineRequest, WireEngine } from '../protocol/engine.ts'
import { planFault } from './admission.ts'
import { membersOf, rowsOf } from './batch.ts'
import type { Batch } from './batch.ts'
import { readRequest } from './commands.ts'
import { Density } from './density.ts'
import { Grammars } from './grammar/grammars.ts'
import { Inbox } from './inbox.ts'
import { imageKey } from './kv-image.ts'
import { LaneCopies } from './lane-copies.ts'
import { Lanes, heldTokens } from './lanes.ts'
import { prefillRowsMin } from './llama/attention.ts'
import { LlamaError } from './llama/llama.ts'
import type { Llama, Row } from './llama/llama.ts'
import { measuring } from './measure.ts'
import { Moves } from './moves.ts'
import { Prefixes } from './prefixes.ts'
import { tagsOf } from './output.ts'
import { Probe } from './probe.ts'
import type { Exact } from './probe.ts'
import { Running } from './running.ts'
import { Sampler } from './sampler.ts'
import { Schedule } from './schedule.ts'
import { divide } from './service.ts'
import { Speeds } from './speeds.ts'
import type { Calibration } from './speeds.ts'
import type { ChatTemplate } from './template.ts'
import { Threads } from './threads.ts'
import { encodePrepared } from './token-record.ts'

export interface EngineOptions {
  readonly llama: Llama
  readonly template: ChatTemplate
  readonly modelDigest: string
  readonly chunkTokens: number
  /** Of copies of States, between two batches. */
  readonly copiesMsMax: number
  readonly calibration: Calibration
  /** Beginnings of prompts that tenants may share; none where it is left out. */
  readonly publicPrefixes?: readonly Int32Array[]
  /** What is known of exactness already; null: the probe finds out when the engine is idle. */
  readonly exact: Exact | null
  /** Told once, when the probe has found out. */
  readonly probed: (exact: Exact) => void
  readonly emit: (event: EngineEvent, bin?: readonly Uint8Array[]) => void
  readonly nowUs: () => number
}

type MeasureRequest = Extract<EngineRequest, { kind: 'measure' }>
/** What is obeyed between batches. */
type Order = Exclude<EngineRequest, { kind: 'hello' | 'ping' | 'measure' | 'stop' }>

const UNKNOWN: Exact = { answer: 'unknown', because: 'the probe has not run yet' }

export class EngineLoop {
  readonly #options: EngineOptions
  readonly #contextTokens: number
  readonly #imageKey: string
  readonly #lanes: Lanes
  readonly #grammars: Grammars
  readonly #schedule: Schedule
  readonly #density: Density
  readonly #prefixes: Prefixes
  readonly #running: Running
  readonly #speeds: Speeds
  readonly #moves: Moves
  readonly #threads: Threads
  /** Of the row that is sampled. */
  readonly #logits: Float32Array
  readonly #inbox: Inbox
  #probe: Probe | null
  #exact: Exact
  #reign: number | null = null
  #busyUs = 0
  #wake: () => void = () => undefined
  /** The measurements asked for, one after the other. */
  #measuring: Promise<void> = Promise.resolve()
  #stopping = false

  constructor(options: EngineOptions) {
    const { llama, template, chunkTokens, calibration, modelDigest, exact, emit, nowUs } = options
    this.#options = options
    this.#logits = new Float32Array(llama.info.vocabSize)
    this.#contextTokens = Math.min(llama.info.laneTokens, llama.info.trainedContext)
    this.#imageKey = imageKey(llama.info, modelDigest)
    this.#exact = exact ?? UNKNOWN
    const grammars = this.#grammars = new Grammars(llama, tagsOf(template.toolUse.format, template.reasoning))
    const lanes = this.#lanes = new Lanes(llama.info.lanes)
    const speeds = this.#speeds = new Speeds(calibration)
    this.#schedule = new Schedule(chunkTokens)
    this.#inbox = new Inbox(options.copiesMsMax)
    this.#threads = new Threads(llama.info.threads, llama.info.flashAttention !== true)
    const copies = new LaneCopies(llama, calibration)
    this.#density = new Density(llama, lanes, speeds, copies)
    const prefixes = this.#prefixes = new Prefixes(llama, lanes, speeds, copies, options.publicPrefixes ?? [])
    this.#probe = exact === null ? new Probe(llama, lanes, chunkTokens) : null
    this.#running = new Running({
      llama, grammars, template, lanes, speeds, prefixes, modelDigest, emit, nowUs,
      sampler: new Sampler(),
      contextTokens: this.#contextTokens,
      isExact: () => this.#exact.answer === 'yes',
    })
    this.#moves = new Moves({
      llama, lanes, speeds, modelDigest, emit, nowUs,
      imageKey: this.#imageKey,
      between: (work) => this.#between(work, true),
      isRunning: (state) => this.#running.on(state) !== null,
    })
  }

  /** Takes a message as it came in; the request where it was accepted. */
  receive(message: unknown, bin: readonly Uint8Array[]): EngineRequest | null {
    const read = readRequest(message, bin)
    if (!read.ok) return this.#refuse(read.what, read.why)
    const { request } = read
    const { kind, reign } = request
    if (this.#reign === null && kind !== 'hello') return this.#refuse(kind, 'nobody said hello yet')
    if (reign < (this.#reign ?? 0)) return this.#refuse(kind, `reign ${reign} is over: ${this.#reign} was seen`)
    if (kind === 'hello' && request.protocol !== ENGINE_PROTOCOL) {
      return this.#refuse(kind, `protocol ${request.protocol} is not spoken here, ${ENGINE_PROTOCOL} is`)
    }
    this.#reign = reign
    this.#accept(request, bin)
    return request
  }

  /** Ends when told to stop. Throws for bugs only: then nothing here can be trusted any more. */
  async run(): Promise<void> {
    for (;;) {
      this.#inbox.empty(() => this.#running.isBusy)
      if (this.#stopping) break
      const batch = this.#schedule.next(this.#running.values())
      if (batch === null) await this.#idle()
      else if (batch.kind === 'prefill' && this.#prefixes.reuse(batch.member)) this.#running.conclude(batch.member)
      else if (await this.#execute(this.#density.gather(batch))) this.#running.report()
    }
    this.#probe?.release()
    await this.#measuring
    await this.#moves.quiet()
  }

  stop(): void {
    this.#stopping = true
    this.#wake()
  }

  describe(): WireEngine {
    const { library, gpu, fallback, cpuKernel, lanes, laneTokens, kvBytesPerToken, stateBytes, trims, copies, images } = this.#options.llama.info
    return {
      library, gpu, fallback, cpuKernel, lanes, laneTokens,
      // What does not grow is shared out over the lane's tokens.
      kvBytesPerToken: kvBytesPerToken + Math.ceil(stateBytes / laneTokens),
      can: { trim: trims, copy: copies, image: images },
      modelDigest: this.#options.modelDigest,
      contextTokens: this.#contextTokens,
      imageKey: this.#imageKey,
      exact: this.#exact,
      speeds: this.#speeds.snapshot(),
    }
  }

  /** Time spent in batches: what the work charged to attempts sums to. */
  get busyUs(): number {
    return this.#busyUs
  }

  // -------------------------------------------------------------- commands

  #refuse(what: string, why: string): null {
    this.#options.emit({ kind: 'refused', what, why })
    return null
  }

  #accept(request: EngineRequest, bin: readonly Uint8Array[]): void {
    switch (request.kind) {
      case 'hello':
        return this.#options.emit({ kind: 'welcome', protocol: ENGINE_PROTOCOL, engine: this.describe() })
      case 'ping': return this.#options.emit({ kind: 'alive', batchMs: this.#options.llama.busyMs, memoryBytes: process.memoryUsage.rss() })
      case 'stop': return this.stop()
      // Touches no lane, so it may run while a batch does; one at a time, long texts
      // on a thread of their own, so that a batch that ends waits for a template at most.
      case 'measure':
        this.#measuring = this.#measuring.then(() => this.#measure(request, bin))
        return
      default: this.#between(() => this.#obey(request, bin), request.kind === 'offload')
    }
  }

  #between(work: () => void, copies: boolean): void {
    this.#inbox.put(work, copies)
    this.#wake()
  }

  async #measure({ call, body, records: calls }: MeasureRequest, bin: readonly Uint8Array[]): Promise<void> {
    await immediate()
    const { llama, template, modelDigest, emit } = this.#options
    if (this.#stopping) return
    const records = calls.map((of, i) => ({ call: of, record: bin[i] ?? new Uint8Array() }))
    const limits = { contextTokens: this.#contextTokens, vocabulary: modelDigest, rowsMin: prefillRowsMin(llama.info.flashAttention) }
    const steps = measuring(llama, template, body, records, limits)
    let step = steps.next()
    while (step.done !== true) step = steps.next(await llama.tokenizeAside(step.value.text, step.value.parseSpecial))
    const measured = step.value
    if (!measured.ok) return emit({ kind: 'unmeasurable', call, code: measured.code, why: measured.why })
    const { prepared, promptTokens, matched, renderingWon, plan } = measured
    const fault = planFault(llama, this.#grammars, plan)
    if (fault !== null) return emit({ kind: 'unmeasurable', call, ...fault })
    emit({ kind: 'measured', call, promptTokens, matched, renderingWon }, [encodePrepared(prepared)])
  }

  #obey(order: Order, bin: readonly Uint8Array[]): void {
    this.#probe?.release()
    switch (order.kind) {
      case 'start': return this.#running.start(order, bin[0] ?? new Uint8Array())
      case 'order':
        for (const { call, rank } of order.orders) this.#running.rerank(call, rank)
        return
      case 'pause': return this.#running.pause(order.call, order.attempt)
      case 'cancel': return this.#running.cancel(order.call, order.attempt)
      case 'offload': return this.#moves.offload(order)
      case 'onboard': return this.#moves.onboard(order)
      case 'discard': return this.#running.discard(order.state)
    }
  }

  // -------------------------------------------------------------- a batch

  /** False: the library failed, and with it the attempts of the batch. */
  async #execute(batch: Batch): Promise<boolean> {
    const begunMs = performance.now()
    const { llama } = this.#options
    const rows = rowsOf(batch)
    llama.useThreads(this.#threads.count)
    try {
      await llama.decode(rows)
    } catch (error) {
      if (!(error instanceof LlamaError)) throw error
      for (const member of membersOf(batch)) this.#running.fail(member, error.message, true)
      return false
    }
    this.#threads.took(`${batch.kind} ${rows.length}`, (performance.now() - begunMs) * 1e6)
    this.#postprocess(batch, rows, begunMs)
    return true
  }

  #postprocess(batch: Batch, rows: readonly Row[], begunMs: number): void {
    const { kind } = batch
    const members = membersOf(batch)
    const count = kind === 'prefill' ? batch.count : 1
    const redone = members.map((member) => member.redoneRows(count))
    for (const [i, member] of members.entries()) {
      const last = kind === 'prefill' ? count - 1 : i
      member.advance(count)
      member.settle(rows[last]?.logits === true ? this.#options.llama.logits(last, this.#logits) : null)
    }

    const tookMs = performance.now() - begunMs
    const residentUs = Math.max(1, Math.round(tookMs * 1_000))
    const held = rows.map(({ position }) => position + 1)
    const work = kind === 'prefill' ? [residentUs] : divide(residentUs, this.#speeds.weights(held))
    for (const [i, member] of members.entries()) {
      member.account.charge({ kind, residentUs, workUs: work[i] ?? 0, rows: count, redoneRows: redone[i] ?? 0 })
    }
    this.#busyUs += residentUs
    if (kind === 'prefill') this.#speeds.prefilled(count, tookMs * 1e6)
    else this.#speeds.decoded(held, tookMs * 1e6)
    for (const member of members) this.#running.conclude(member)
  }

  // -------------------------------------------------------------- idle

  async #idle(): Promise<void> {
    this.#check()
    if (this.#probe?.canAdvance() === true) return await this.#advance(this.#probe)
    await new Promise<void>((resolve) => {
      this.#wake = resolve
      if (!this.#inbox.isEmpty || this.#stopping) resolve()
    })
  }

  async #advance(probe: Probe): Promise<void> {
    const found = await probe.advance()
    if (found === null) return
    this.#probe = null
    this.#exact = found
    this.#options.probed(found)
    this.#options.emit({ kind: 'engine', engine: this.describe() })
  }

  #check(): void {
    this.#lanes.check()
    for (const lane of this.#lanes.owned()) {
      if (this.#probe?.holds(lane) === true) continue
      const used = this.#options.llama.laneUsed(lane.index)
      assert(used === heldTokens(lane), `lane ${lane.index} holds ${used} tokens, not ${heldTokens(lane)}`)
    }
  }
}
