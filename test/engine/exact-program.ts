/**
 * Owns one program of the exactness tests, as its control plane knows it: it knows of a State only what an engine told
 * it, plays its calls, does to them what the plot says, and keeps what must be equal. Leaves engines to the stage.
 */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { readImage } from '../../src/engine/kv-image.ts'
import type { ChatCall, ChatMessage, ChatToolCall, TokenRules } from '../../src/protocol/chat.ts'
import type { EngineEvent, WireIdentity, WireSpan } from '../../src/protocol/engine.ts'
import { CallPlay, Events, cutSpans, turns } from './exact-call.ts'
import type { CallPlot, Disturbance, ProgramPlot } from './exact-plot.ts'
import { Killed } from './played-engine.ts'
import type { Command, Heard, PlayedEngine } from './played-engine.ts'

/** Where programs are played. */
export interface Stage {
  /** Nothing is done to anybody. */
  readonly calm: boolean
  /** The reign of the control plane. */
  readonly reign: number
  /** The engine of a place, 0 or 1; where there is one only, both are it. */
  engine(place: number): PlayedEngine
  /** A folder for images. */
  directory(tier: ProgramPlot['tier']): string
  /** Ends the engine of a place as a crash would; another takes its place, with nothing on device. */
  kill(place: number): Promise<void>
  /** Until every place has an engine. */
  ready(): Promise<void>
}

/** What of a call must be equal. */
export interface CallResult {
  readonly tokens: readonly number[]
  readonly content: string
  readonly toolCalls: readonly { readonly name: string; readonly arguments: string }[]
  readonly finish: string
  readonly spans: readonly unknown[]
  readonly promptTokens: number
  readonly outputTokens: number
}

/** `chunks`: digests of the State's bytes at the end; empty where a State of this model has no image. */
export interface ProgramResult { readonly calls: readonly CallResult[]; readonly chunks: readonly string[] }

/** What depends on every token before: a third of the calls have it. */
const RULES: TokenRules = {
  presencePenalty: 0.5, frequencyPenalty: 0.7, repetitionPenalty: 1.2, bias: [[5, 1.5], [9, -20]], minTokens: 0,
  ignoreEos: false, stopTokens: [11],
}

type Start = Extract<Command, { kind: 'start' }>

interface Image { readonly path: string; readonly digest: string; readonly tokens: number }

export class ProgramPlay {
  /** What was done to it, and how often. */
  readonly happened: Record<string, number> = {}
  /** Its first token is out, so that its prompt is in its lane. */
  readonly fed: Promise<void>
  readonly #stage: Stage
  readonly #program: ProgramPlot
  readonly #id: string
  readonly #state: string
  /** In company all are one tenant's, and what is alike is copied; alone nothing is. */
  readonly #tenant: string
  readonly #messages: ChatMessage[] = []
  readonly #results: CallResult[] = []
  #isFed: () => void = () => undefined
  #place = 0
  #spans: WireSpan[] = []
  #record: { readonly call: string; readonly bytes: Uint8Array } | null = null
  /** Tokens on device, and the engine they are on; the most that were ever fed. */
  #device = 0
  #on: PlayedEngine | null = null
  #fedMost = 0
  #image: Image | null = null
  #moves = 0
  #last: { readonly start: Start; readonly prepared: Uint8Array; readonly tokens: readonly number[] } | null = null

  /** `id` names its State and its calls; what is said depends on the plot alone. */
  constructor(stage: Stage, program: ProgramPlot, id: string = program.name) {
    this.#stage = stage
    this.#program = program
    this.#id = id
    this.#state = `state-${id}`
    this.#tenant = stage.calm ? this.#state : 't'
    this.fed = new Promise((resolve) => { this.#isFed = resolve })
  }

  /** Its State is let go of at the end. */
  async run(): Promise<ProgramResult> {
    const result = await this.stay()
    await this.#leave()
    return result
  }

  /** Its State stays on device. */
  async stay(): Promise<ProgramResult> {
    await this.#begin()
    for (const index of this.#program.calls.keys()) await this.#call(index)
    return await this.#result()
  }

  /** Before the last call a second State goes on from where this one is: first its result, then that of `other`'s. */
  async runForked(other: ProgramPlot): Promise<readonly [ProgramResult, ProgramResult]> {
    const last = this.#program.calls.length - 1
    await this.#begin()
    for (let index = 0; index < last; index++) await this.#call(index)
    const branch = this.#branch(other)
    const ended = async (program: ProgramPlay): Promise<ProgramResult> => {
      await program.#call(last)
      const result = await program.#result()
      await program.#leave()
      return result
    }
    return await Promise.all([ended(this), ended(branch)])
  }

  async #leave(): Promise<void> {
    await this.#again(async () => this.#discard())
  }

  async #begin(): Promise<void> {
    if (!this.#stage.calm) await turns(this.#program.delay)
    this.#messages.push({ role: 'system', content: this.#program.system, toolCalls: [], toolCallId: null })
  }

  #branch(other: ProgramPlot): ProgramPlay {
    const branch = new ProgramPlay(this.#stage, other, `${this.#id}-fork`)
    branch.#messages.push(...this.#messages)
    branch.#results.push(...this.#results)
    branch.#spans = [...this.#spans]
    branch.#record = this.#record
    branch.#place = this.#place
    branch.#fedMost = this.#spans.reduce((sum, span) => sum + span.tokens, 0)
    return branch
  }

  get #engine(): PlayedEngine {
    return this.#stage.engine(this.#place)
  }

  async #call(index: number): Promise<void> {
    const plot = this.#program.calls[index]
    assert(plot !== undefined)
    this.#messages.push(...this.#said(plot, index))
    const call = `${this.#id}-${index}`
    const body = JSON.stringify(this.#body(plot))
    const { prepared, promptTokens, base } = await this.#again(() => this.#measure(call, body))
    this.#trim(base)
    const attempt = new CallPlay(this.#stage.calm ? [] : plot.disturbances)
    for (;;) {
      try {
        const number = attempt.begin()
        const held = await this.#arrive(plot)
        // Any prefix may be kept: some attempts keep a little less than there is.
        const keep = number === 1 ? held : Math.max(0, held - (plot.seed + number) % 4)
        const start = {
          kind: 'start', call, attempt: number, epoch: 0, state: this.#state, body, baseTokens: base, keepTokens: keep,
          recomputeTokens: Math.max(0, this.#fedMost - keep), replay: 'exact', forced: attempt.tokens, seed: plot.seed,
          maxTokens: plot.maxTokens, rank: plot.rank, tenant: this.#tenant, grantGranules: 1,
        } as const
        const finished = await this.#follow(start, prepared, attempt, base)
        if (finished === null) continue
        this.#commit(call, index, finished, attempt, base, promptTokens)
        this.#last = { start, prepared, tokens: attempt.tokens }
        await this.#between(plot)
        return
      } catch (error) {
        await this.#revived(error)
        if (this.#results.length > index) return
      }
    }
  }

  /** Until it is finished; null where it must be started again. */
  async #follow(start: Start, prepared: Uint8Array, attempt: CallPlay, base: number): Promise<Heard | null> {
    const engine = this.#engine
    const events = new Events(engine, start.call, start.attempt)
    engine.tell(start, [prepared])
    for (;;) {
      const due = attempt.due()
      if (due !== null) {
        await turns(due.delay)
        this.#count(due.kind)
        if (due.kind === 'kill') {
          await this.#stage.kill(this.#place)
          throw new Killed()
        }
        if (due.kind === 'cancel' || due.kind === 'cancel and forget') {
          engine.tell({ kind: 'cancel', call: start.call, attempt: start.attempt })
          this.#device = Math.min(this.#device, base)
          attempt.restart(due.kind === 'cancel and forget')
          return null
        }
        engine.tell({ kind: 'pause', call: start.call, attempt: start.attempt })
      }
      for (;;) {
        const heard = await events.next()
        const { event } = heard
        if (event.kind === 'tokens') {
          attempt.take(event)
          this.#isFed()
        } else if (event.kind === 'finished') return heard
        else if (event.kind === 'failed') throw new Error(`${start.call} failed: ${event.why}`)
        else if (event.kind === 'paused') {
          this.#holds(base + event.report.tailPrefilled + event.report.tailDecoded)
          await this.#afterPause(due)
          return null
        }
        if (due === null && attempt.isDue()) break
      }
    }
  }

  async #afterPause(due: Disturbance | null): Promise<void> {
    if (due?.kind === 'pause and offload') await this.#offload()
    if (due?.kind === 'pause and discard') this.#discard()
    if (due?.kind === 'pause and migrate') await this.#migrate()
  }

  /** What may be kept on device once the State is where it should be. */
  async #arrive(plot: CallPlot): Promise<number> {
    if (this.#on !== this.#engine) this.#device = 0
    if (this.#device === 0 && this.#image !== null && plot.usesImage) await this.#onboard(this.#image)
    return this.#device
  }

  /** The next prompt continues so much of the State; what follows is other text. */
  #trim(base: number): void {
    this.#spans = cutSpans(this.#spans, base)
    this.#device = Math.min(this.#device, base)
    this.#fedMost = Math.min(this.#fedMost, base)
    if (this.#image !== null) this.#image = { ...this.#image, tokens: Math.min(this.#image.tokens, base) }
  }

  #holds(tokens: number): void {
    this.#device = tokens
    this.#on = this.#engine
    this.#fedMost = Math.max(this.#fedMost, tokens)
  }

  #commit(call: string, index: number, { event, bin }: Heard, attempt: CallPlay, base: number, promptTokens: number): void {
    assert(event.kind === 'finished')
    this.#isFed()
    assert.deepEqual(event.report.outputTokens, event.outputTokens)
    const spans = event.spans.map(({ tokens, origin, digest }) => ({ id: digest, tokens, origin }))
    this.#spans = [...this.#spans, ...spans]
    this.#fedMost = 0
    this.#holds(base + spans.reduce((sum, span) => sum + span.tokens, 0))
    this.#image = null
    this.#record = { call, bytes: bin[0] ?? new Uint8Array() }
    const { content, toolCalls } = attempt.message()
    this.#messages.push({
      role: 'assistant', content, toolCallId: null,
      toolCalls: toolCalls.map((each, i): ChatToolCall => ({ id: `${this.#program.name}_${index}_${i}`, ...each })),
    })
    this.#results.push({
      tokens: attempt.tokens, content, toolCalls, finish: event.finish, spans: event.spans, promptTokens,
      outputTokens: event.outputTokens,
    })
    assert.equal(event.promptTokens, promptTokens)
    if (event.report.reusedTokens > 0) this.#count('prefix reused')
    const { parts, report } = event
    const fedUs = report.usefulResidentUs + report.recomputedResidentUs
    assert.equal(parts.recomputeUs + parts.prefillUs + parts.decodeUs, fedUs)
  }

  async #between({ after }: CallPlot): Promise<void> {
    if (this.#stage.calm) return
    if (after === 'offload') await this.#offload()
    if (after === 'discard') this.#discard()
    if (after === 'migrate') await this.#migrate()
    if (after !== 'keep') this.#count(`${after} between calls`)
  }

  // -------------------------------------------------------------- moves

  async #offload(): Promise<void> {
    const engine = this.#engine
    if (this.#device === 0 || !engine.images) return this.#discard()
    const tokens = this.#device
    const { event, path } = await this.#out('', cutSpans(this.#spans, tokens))
    // A pause inside a recompute leaves less on device than the base: then there is nothing whole to keep.
    if (event.kind === 'moved') this.#image = { path, digest: event.digest, tokens }
    else assert.match(event.kind === 'moveFailed' ? event.why : '', /fewer than the spans|not on this device/)
    this.#discard()
  }

  async #out(name: string, spans: readonly WireSpan[]): Promise<{ readonly event: EngineEvent; readonly path: string }> {
    const move = `${this.#state}-${this.#moves++}`
    const path = join(this.#stage.directory(this.#program.tier), `${move}${name}`)
    return { event: await this.#moved({ kind: 'offload', move, state: this.#state, path, spans, identity: this.#identity() }), path }
  }

  async #moved(order: Extract<Command, { kind: 'offload' | 'onboard' }>): Promise<EngineEvent> {
    const engine = this.#engine
    engine.tell(order)
    return (await engine.next((e) => (e.kind === 'moved' || e.kind === 'moveFailed') && e.move === order.move)).event
  }

  /** To the other engine, by image where there is one; else its tokens are fed again there. */
  async #migrate(): Promise<void> {
    await this.#offload()
    this.#place = 1 - this.#place
  }

  async #onboard({ path, digest, tokens }: Image): Promise<void> {
    // A cancelled attempt may have left an empty lane.
    this.#discard()
    const move = `${this.#state}-${this.#moves++}`
    const event = await this.#moved({ kind: 'onboard', move, state: this.#state, path, digest, identity: this.#identity() })
    assert.equal(event.kind, 'moved', JSON.stringify(event))
    this.#holds(tokens)
    this.#count('onboard')
  }

  #discard(): void {
    this.#engine.tell({ kind: 'discard', state: this.#state })
    this.#device = 0
  }

  // -------------------------------------------------------------- what it comes to

  async #result(): Promise<ProgramResult> {
    return { calls: this.#results, chunks: this.#engine.images ? await this.#lastImage() : [] }
  }

  /** Digests of the State's chunks at the end: every byte of KV. */
  async #lastImage(): Promise<string[]> {
    return await this.#again(async () => {
      if (this.#on !== this.#engine || this.#device === 0) await this.#rebuild()
      const { event, path } = await this.#out(this.#stage.calm ? '-calm' : '-last', this.#spans)
      assert(event.kind === 'moved', JSON.stringify(event))
      const { imageKey, lanes } = this.#engine
      const { manifest } = await readImage(path, { key: imageKey, digest: event.digest, identity: this.#identity() }, lanes)
      return manifest.chunks.map((chunk) => `${chunk.id} ${chunk.crc32}`)
    })
  }

  /** Brings what is gone back to the device: by image, or by the last call's start once more, all its output shown. */
  async #rebuild(): Promise<void> {
    if (this.#image !== null) return await this.#onboard(this.#image)
    const last = this.#last
    assert(last !== null)
    const engine = this.#engine
    const events = new Events(engine, last.start.call, last.start.attempt + 1)
    engine.tell({ ...last.start, attempt: last.start.attempt + 1, keepTokens: 0, forced: last.tokens }, [last.prepared])
    const { event } = await events.next()
    assert(event.kind === 'finished', JSON.stringify(event))
    this.#holds(event.promptTokens)
    this.#count('rebuilt at the end')
  }

  #identity(): WireIdentity {
    return { tenant: this.#tenant, state: this.#state, owner: this.#program.name, epoch: 0, reign: this.#stage.reign }
  }

  #count(what: string): void {
    this.happened[what] = (this.happened[what] ?? 0) + 1
  }

  // -------------------------------------------------------------- what is said

  async #measure(call: string, body: string): Promise<{ prepared: Uint8Array; promptTokens: number; base: number }> {
    const engine = this.#engine
    const record = this.#record
    const bin = record === null ? [] : [record.bytes]
    engine.tell({ kind: 'measure', call, body, records: record === null ? [] : [record.call] }, bin)
    const isAnswer = (e: EngineEvent): boolean => (e.kind === 'measured' || e.kind === 'unmeasurable') && e.call === call
    const { event, bin: parts } = await engine.next(isAnswer)
    assert(event.kind === 'measured', JSON.stringify(event))
    const { promptTokens, matched } = event
    return { prepared: parts[0] ?? new Uint8Array(), promptTokens, base: matched?.tokens ?? 0 }
  }

  #body(plot: CallPlot): ChatCall {
    return {
      model: 'm', messages: this.#messages, tools: this.#program.tools, toolChoice: plot.forced ? 'required' : 'auto',
      sampling: plot.sampling, stop: plot.stop, maxTokens: plot.maxTokens,
      ...(plot.seed % 3 === 0 ? { tokenRules: RULES, topLogprobs: 2 } : {}),
    }
  }

  #said(plot: CallPlot, index: number): ChatMessage[] {
    const calls = index === 0 ? [] : this.#messages.at(-1)?.toolCalls ?? []
    if (calls.length === 0) return [{ role: 'user', content: plot.says, toolCalls: [], toolCallId: null }]
    return calls.map(({ id }) => ({ role: 'tool', content: plot.says, toolCalls: [], toolCallId: id }))
  }

  async #again<T>(work: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await work()
      } catch (error) {
        await this.#revived(error)
      }
    }
  }

  /** Goes on once another engine is there; any other error is thrown. */
  async #revived(error: unknown): Promise<void> {
    if (!(error instanceof Killed)) throw error
    this.#count('revived')
    await this.#stage.ready()
  }
}
