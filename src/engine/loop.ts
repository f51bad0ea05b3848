/**
 * Owns the engine's loop: schedule -> execute -> postprocess. Commands are obeyed in their order, between batches only,
 * after the batch before was sampled (no State moves with logits and no token). START HERE to read the engine:
 * `schedule.ts` says what runs, `sequence.ts` what an attempt is, `plan.ts` and `lanes.ts` keep the law of origins and
 * of lanes, `moves.ts` takes States out and in, `probe.ts` finds out whether all of this is exact here.
 *
 * A command of a lower reign than was seen is refused and changes nothing (invariant 15).
 */
import assert from 'node:assert/strict'
import { ENGINE_PROTOCOL } from '../protocol/engine.ts'
import type { EngineEvent, EngineRequest, WireEngine } from '../protocol/engine.ts'
import { admit } from './admission.ts'
import { membersOf, rowsOf } from './batch.ts'
import type { Batch } from './batch.ts'
import { readRequest } from './commands.ts'
import { imageKey } from './kv-image.ts'
import { Lanes, heldTokens } from './lanes.ts'
import { LlamaError } from './llama/llama.ts'
import type { Llama } from './llama/llama.ts'
import { measure } from './measure.ts'
import { Moves } from './moves.ts'
import { Probe } from './probe.ts'
import type { Exact } from './probe.ts'
import { attemptOf, finishedOf, reportOf } from './reports.ts'
import { Schedule } from './schedule.ts'
import type { Sequence, StartRequest } from './sequence.ts'
import { divide } from './service.ts'
import { Speeds } from './speeds.ts'
import type { Calibration } from './speeds.ts'
import type { ChatTemplate } from './template.ts'
import { encodePrepared } from './token-record.ts'

export interface EngineOptions {
  readonly llama: Llama
  readonly template: ChatTemplate
  readonly modelDigest: string
  readonly chunkTokens: number
  readonly calibration: Calibration
  /** What is known of exactness already; null: the probe finds out when the engine is idle. */
  readonly exact: Exact | null
  /** Told once, when the probe has found out. */
  readonly probed: (exact: Exact) => void
  readonly emit: (event: EngineEvent, bin?: readonly Uint8Array[]) => void
  readonly nowUs: () => number
}

/** Tokens of one call are sent together where they come closer than this. */
const TOKENS_EVERY_US = 20_000
const PROGRESS_EVERY_US = 100_000
const SPEEDS_EVERY_US = 1_000_000

const UNKNOWN: Exact = { answer: 'unknown', because: 'the probe has not run yet' }

export class EngineLoop {
  readonly #options: EngineOptions
  readonly #lanes: Lanes
  readonly #schedule: Schedule
  readonly #speeds: Speeds
  readonly #moves: Moves
  readonly #running = new Map<string, Sequence>()
  readonly #inbox: (() => void)[] = []
  readonly #imageKey: string
  readonly #contextTokens: number
  readonly #sentUs = new Map<Sequence, number>()
  #exact: Exact
  #probe: Probe | null = null
  #reign: number | null = null
  #progressUs = 0
  #speedsUs = 0
  #busyUs = 0
  #wake: () => void = () => undefined
  #stopping = false

  constructor(options: EngineOptions) {
    const { llama, chunkTokens, calibration, modelDigest, exact, nowUs } = options
    this.#options = options
    this.#lanes = new Lanes(llama.info.lanes)
    this.#schedule = new Schedule(chunkTokens)
    this.#speeds = new Speeds(calibration)
    this.#imageKey = imageKey(llama.info, modelDigest)
    this.#contextTokens = Math.min(llama.info.laneTokens, llama.info.trainedContext)
    this.#exact = exact ?? UNKNOWN
    if (exact === null) this.#probe = new Probe(llama, this.#lanes, chunkTokens)
    this.#moves = new Moves({
      llama, lanes: this.#lanes, speeds: this.#speeds, modelDigest, imageKey: this.#imageKey, nowUs,
      emit: (event) => options.emit(event),
      between: (work) => this.#between(work),
      isRunning: (state) => this.#on(state) !== null,
    })
  }

  /** Takes a message as it came in; the request where it was accepted. */
  receive(message: unknown, bin: readonly Uint8Array[]): EngineRequest | null {
    const read = readRequest(message, bin)
    if (!read.ok) return this.#refuse(read.what, read.why)
    const { request } = read
    if (this.#reign === null && request.kind !== 'hello') return this.#refuse(request.kind, 'nobody said hello yet')
    if (request.reign < (this.#reign ?? 0)) return this.#refuse(request.kind, `reign ${request.reign} is over: ${this.#reign} was seen`)
    if (request.kind === 'hello' && request.protocol !== ENGINE_PROTOCOL) {
      return this.#refuse('hello', `protocol ${request.protocol} is not spoken here, ${ENGINE_PROTOCOL} is`)
    }
    this.#reign = request.reign
    if (request.kind === 'hello') this.#options.emit({ kind: 'welcome', protocol: ENGINE_PROTOCOL, engine: this.describe() })
    else if (request.kind === 'measure') setImmediate(() => this.#measure(request, bin))
    else if (request.kind === 'stop') this.stop()
    else if (request.kind !== 'ping') this.#between(() => this.#obey(request, bin))
    return request
  }

  /** Ends when told to stop. Throws for bugs only: then nothing here can be trusted any more. */
  async run(): Promise<void> {
    for (;;) {
      while (this.#inbox.length > 0) this.#inbox.shift()?.()
      if (this.#stopping) break
      const batch = this.#schedule.next(this.#running.values())
      if (batch === null) await this.#idle()
      else await this.#iterate(batch)
    }
    this.#probe?.release()
    await this.#moves.quiet()
    for (const sequence of this.#running.values()) sequence.dispose()
  }

  stop(): void {
    this.#stopping = true
    this.#wake()
  }

  describe(): WireEngine {
    const { llama, modelDigest } = this.#options
    const { library, cpuKernel, lanes, laneTokens, kvBytesPerToken } = llama.info
    return {
      library, cpuKernel, modelDigest, lanes, laneTokens, kvBytesPerToken,
      contextTokens: this.#contextTokens, imageKey: this.#imageKey, exact: this.#exact, speeds: this.#speeds.snapshot(),
    }
  }

  /** Time spent in iterations: what the work charged to attempts sums to. */
  get busyUs(): number {
    return this.#busyUs
  }

  // -------------------------------------------------------------- commands

  #refuse(what: string, why: string): null {
    this.#options.emit({ kind: 'refused', what, why })
    return null
  }

  #between(work: () => void): void {
    this.#inbox.push(work)
    this.#wake()
  }

  #measure(request: Extract<EngineRequest, { kind: 'measure' }>, bin: readonly Uint8Array[]): void {
    const { llama, template, modelDigest, emit } = this.#options
    if (this.#stopping) return
    const records = request.records.map((call, i) => ({ call, record: bin[i] ?? new Uint8Array() }))
    const limits = { contextTokens: this.#contextTokens, vocabulary: modelDigest }
    const measured = measure(llama, template, request.body, records, limits)
    if (!measured.ok) return emit({ kind: 'unmeasurable', call: request.call, code: measured.code, why: measured.why })
    const { promptTokens, matched, renderingWon } = measured
    emit({ kind: 'measured', call: request.call, promptTokens, matched, renderingWon }, [encodePrepared(measured.prepared)])
  }

  #obey(request: Exclude<EngineRequest, { kind: 'hello' | 'ping' | 'measure' | 'stop' }>, bin: readonly Uint8Array[]): void {
    this.#probe?.release()
    switch (request.kind) {
      case 'start': return this.#start(request, bin[0] ?? new Uint8Array())
      case 'order':
        for (const { call, rank } of request.orders) this.#rerank(call, rank)
        return
      case 'pause': return this.#pause(request.call, request.attempt)
      case 'cancel': return this.#cancel(request.call, request.attempt)
      case 'offload': return this.#moves.offload(request)
      case 'onboard': return this.#moves.onboard(request)
      case 'discard': return this.#discard(request.state)
    }
  }

  #start(start: StartRequest, prepared: Uint8Array): void {
    const { llama, modelDigest, emit, nowUs } = this.#options
    if (this.#running.has(start.call)) return void this.#refuse('start', `the call ${start.call} is running`)
    const busy = this.#on(start.state) !== null
    const admitted = busy
      ? { ok: false as const, why: 'its State is running another call', retryable: true }
      : admit({ llama, lanes: this.#lanes, modelDigest, contextTokens: this.#contextTokens, nowUs: nowUs() }, start, prepared)
    if (!admitted.ok) {
      const { call, attempt, epoch } = start
      return emit({ kind: 'failed', call, attempt, epoch, why: admitted.why, retryable: admitted.retryable })
    }
    this.#running.set(start.call, admitted.sequence)
    this.#conclude(admitted.sequence)
  }

  /** Grants are of whole lanes and a call has one; victims are named by the control plane, which keeps a lane spare. */
  #rerank(call: string, rank: number): void {
    const sequence = this.#running.get(call)
    if (sequence !== undefined) sequence.rank = rank
  }

  #pause(call: string, attempt: number): void {
    const sequence = this.#attempt(call, attempt)
    if (sequence === null) return
    this.#send(sequence)
    this.#leave(sequence)
    this.#options.emit({ kind: 'paused', ...attemptOf(sequence), report: reportOf(sequence) })
  }

  #cancel(call: string, attempt: number): void {
    const sequence = this.#attempt(call, attempt)
    if (sequence === null) return
    this.#leave(sequence)
    this.#cut(sequence, sequence.start.baseTokens)
  }

  #discard(state: string): void {
    const lane = this.#lanes.find(state)
    if (lane === null) return
    const sequence = this.#on(state)
    if (sequence !== null) this.#fail(sequence, 'its State was discarded', true)
    if (heldTokens(lane) > 0) this.#options.llama.cut(lane.index, 0)
    this.#lanes.release(lane)
  }

  // -------------------------------------------------------------- schedule -> execute -> postprocess

  async #iterate(batch: Batch): Promise<void> {
    const begunMs = performance.now()
    const rows = rowsOf(batch)
    try {
      await this.#options.llama.decode(rows)
    } catch (error) {
      if (!(error instanceof LlamaError)) throw error
      for (const member of membersOf(batch)) this.#fail(member, error.message, true)
      return
    }
    this.#postprocess(batch, rows, begunMs)
    this.#report()
  }

  #postprocess(batch: Batch, rows: readonly { readonly logits: boolean; readonly position: number }[], begunMs: number): void {
    const members = membersOf(batch)
    const count = batch.kind === 'prefill' ? batch.count : 1
    const redone = members.map((member) => member.redoneRows(count))
    members.forEach((member, i) => {
      const last = batch.kind === 'prefill' ? rows.length - 1 : i
      member.advance(count, batch.kind === 'prefill' ? 'prefilled' : 'decoded')
      member.settle(rows[last]?.logits === true ? this.#options.llama.logits(last) : null)
    })
    const tookMs = performance.now() - begunMs
    const tookUs = Math.max(1, Math.round(tookMs * 1_000))
    const held = rows.map(({ position }) => position + 1)
    const shares = batch.kind === 'prefill' ? [tookUs] : divide(tookUs, this.#speeds.weights(held))
    members.forEach((member, i) => {
      member.account.charge({ kind: batch.kind, residentUs: tookUs, workUs: shares[i] ?? 0, rows: count, redoneRows: redone[i] ?? 0 })
    })
    this.#busyUs += tookUs
    if (batch.kind === 'prefill') this.#speeds.prefilled(count, tookMs * 1e6)
    else this.#speeds.decoded(held, tookMs * 1e6)
    for (const member of members) this.#conclude(member)
  }

  /** Ends the attempt where its last token ended it. */
  #conclude(sequence: Sequence): void {
    const { ending } = sequence
    if (ending === null) return
    if (ending.kind === 'failed') return this.#fail(sequence, ending.why, ending.retryable)
    const end = sequence.end(ending.reason)
    this.#cut(sequence, sequence.plan.promptTokens + end.keptTokens)
    this.#send(sequence)
    this.#leave(sequence)
    const { event, record } = finishedOf(sequence, end, this.#exact.answer === 'yes', this.#options.nowUs())
    this.#options.emit(event, [record])
  }

  #fail(sequence: Sequence, why: string, retryable: boolean): void {
    this.#send(sequence)
    this.#leave(sequence)
    this.#cut(sequence, sequence.start.baseTokens)
    this.#options.emit({ kind: 'failed', ...attemptOf(sequence), why, retryable })
  }

  #leave(sequence: Sequence): void {
    this.#running.delete(sequence.start.call)
    this.#sentUs.delete(sequence)
    sequence.dispose()
  }

  #cut(sequence: Sequence, tokens: number): void {
    if (sequence.fed.length <= tokens) return
    this.#options.llama.cut(sequence.lane.index, tokens)
    sequence.fed.cut(tokens)
  }

  // -------------------------------------------------------------- telling

  #report(): void {
    const nowUs = this.#options.nowUs()
    for (const sequence of this.#running.values()) {
      if (nowUs - (this.#sentUs.get(sequence) ?? -Infinity) >= TOKENS_EVERY_US) this.#send(sequence, nowUs)
    }
    if (nowUs - this.#progressUs < PROGRESS_EVERY_US || this.#running.size === 0) return
    this.#progressUs = nowUs
    const speedsDue = nowUs - this.#speedsUs >= SPEEDS_EVERY_US
    if (speedsDue) this.#speedsUs = nowUs
    const calls = [...this.#running.values()].map((sequence) => ({ ...attemptOf(sequence), report: reportOf(sequence) }))
    this.#options.emit({ kind: 'progress', speeds: speedsDue ? this.#speeds.snapshot() : null, calls })
  }

  #send(sequence: Sequence, nowUs = 0): void {
    const shown = sequence.takeUnsent()
    if (shown === null) return
    this.#sentUs.set(sequence, nowUs)
    const { call, attempt } = sequence.start
    this.#options.emit({ kind: 'tokens', call, attempt, ...shown })
  }

  // -------------------------------------------------------------- idle

  async #idle(): Promise<void> {
    this.#check()
    if (this.#probe !== null && this.#probe.canAdvance()) return await this.#advanceProbe(this.#probe)
    await new Promise<void>((resolve) => {
      this.#wake = resolve
      if (this.#inbox.length > 0 || this.#stopping) resolve()
    })
    this.#wake = () => undefined
  }

  async #advanceProbe(probe: Probe): Promise<void> {
    const found = await probe.advance()
    if (found === null) return
    this.#probe = null
    this.#exact = found
    this.#options.probed(found)
    this.#options.emit({ kind: 'engine', engine: this.describe() })
  }

  /** The ledger of lanes balances, and says of each lane what the library says. */
  #check(): void {
    this.#lanes.check()
    for (const lane of this.#lanes.owned()) {
      const used = this.#options.llama.laneUsed(lane.index)
      assert(this.#probe?.holds(lane) === true || used === heldTokens(lane), `lane ${lane.index} holds ${used} tokens, not ${heldTokens(lane)}`)
    }
  }

  // -------------------------------------------------------------- who runs

  #attempt(call: string, attempt: number): Sequence | null {
    const sequence = this.#running.get(call)
    return sequence?.start.attempt === attempt ? sequence : null
  }

  #on(state: string): Sequence | null {
    for (const sequence of this.#running.values()) if (sequence.start.state === state) return sequence
    return null
  }
}
