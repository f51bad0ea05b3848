/**
 * The exactness test: a script of programs is played alone and undisturbed, then again in company with pauses, moves,
 * discards, cancelled attempts and killed engines; every token, every shown part, every span and every byte of KV must
 * be the same. It plays the control plane's part: it knows of a State only what the engine told it.
 */
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readImage } from '../../src/engine/kv-image.ts'
import type { ChatCall, ChatMessage, ChatToolCall, TokenRules } from '../../src/protocol/chat.ts'
import type { EngineEvent, WireSpan } from '../../src/protocol/engine.ts'
import { EngineUnderTest, Killed, PROVEN } from './engine-under-test.ts'
import type { Command, EngineShape, Heard } from './engine-under-test.ts'
import { CallPlay, Events, cutSpans, turns } from './exact-call.ts'
import { drawPlot } from './exact-plot.ts'
import type { CallPlot, Disturbance, Plot, ProgramPlot, Scale } from './exact-plot.ts'

export interface ExactOptions {
  readonly modelPath: string
  readonly scale: Scale
  readonly laneTokens: number
  readonly threads: number
  /** For images; emptied at the end. */
  readonly directory: string
}

export interface ScriptResult {
  readonly seed: number
  readonly calls: number
  readonly tokens: number
  readonly disturbed: Readonly<Record<string, number>>
  /** Empty: everything was equal. */
  readonly differences: readonly string[]
}

/** What of a call must be equal. */
interface CallResult {
  readonly tokens: readonly number[]
  readonly content: string
  readonly toolCalls: readonly { readonly name: string; readonly arguments: string }[]
  readonly finish: string
  readonly spans: readonly unknown[]
  readonly promptTokens: number
  readonly outputTokens: number
}

interface ProgramResult { readonly calls: readonly CallResult[]; readonly chunks: readonly string[] }

export async function runScript(seed: number, options: ExactOptions): Promise<ScriptResult> {
  const plot = drawPlot(seed, options.scale)
  mkdirSync(options.directory, { recursive: true })
  const alone = new Play(plot, options, true)
  const expected = await alone.run()
  const company = new Play(plot, options, false)
  const seen = await company.run()
  rmSync(options.directory, { recursive: true, force: true })
  const calls = expected.flatMap((program) => program.calls)
  return {
    seed,
    calls: calls.length,
    tokens: calls.reduce((sum, call) => sum + call.tokens.length, 0),
    disturbed: company.disturbed,
    differences: plot.programs.flatMap((program, i) => compare(`seed ${seed} ${program.name}`, expected[i], seen[i])),
  }
}

/** Plays scripts one after another; throws at the first that differs, and counts what was done to all of them. */
export async function allEqual(
  firstSeed: number, scripts: number, options: Omit<ExactOptions, 'directory'>,
): Promise<Record<string, number>> {
  const directory = mkdtempSync(join(tmpdir(), 'entracte-exact-'))
  const disturbed: Record<string, number> = {}
  try {
    for (let seed = firstSeed; seed < firstSeed + scripts; seed++) {
      const result = await runScript(seed, { ...options, directory })
      assert.deepEqual(result.differences, [])
      for (const [kind, count] of Object.entries(result.disturbed)) disturbed[kind] = (disturbed[kind] ?? 0) + count
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
  return disturbed
}

function compare(name: string, expected: ProgramResult | undefined, seen: ProgramResult | undefined): string[] {
  try {
    assert.deepEqual(seen, expected)
    return []
  } catch (error) {
    return [`${name}: ${error instanceof Error ? error.message : String(error)}`]
  }
}

/** One performance of a script. */
class Play {
  readonly plot: Plot
  readonly options: ExactOptions
  readonly calm: boolean
  readonly disturbed: Record<string, number> = {}
  engine: EngineUnderTest
  #reign = 1
  #restarting: Promise<void> | null = null
  #over = false

  constructor(plot: Plot, options: ExactOptions, calm: boolean) {
    this.plot = plot
    this.options = options
    this.calm = calm
    this.engine = new EngineUnderTest(this.#shape(), this.#reign)
  }

  async run(): Promise<ProgramResult[]> {
    try {
      if (this.calm) {
        const results: ProgramResult[] = []
        for (const program of this.plot.programs) results.push(await new ProgramPlay(this, program).run())
        return results
      }
      const squatting = this.#squat()
      const results = await Promise.all(this.plot.programs.map((program) => new ProgramPlay(this, program).run()))
      await squatting
      return results
    } finally {
      this.#over = true
      await this.engine.kill()
    }
  }

  /** Another engine takes over: other chunks, other lanes, nothing on device. */
  async kill(): Promise<void> {
    this.#restarting ??= this.#restart().finally(() => { this.#restarting = null })
    await this.#restarting
  }

  async ready(): Promise<void> {
    await this.#restarting
    if (this.#over) throw new Error('the play is over')
  }

  count(what: string): void {
    this.disturbed[what] = (this.disturbed[what] ?? 0) + 1
  }

  async #restart(): Promise<void> {
    await this.engine.kill()
    this.engine = new EngineUnderTest(this.#shape(), ++this.#reign)
  }

  #shape(): EngineShape {
    const { modelPath, laneTokens, threads } = this.options
    const { lanes, chunkTokens } = this.plot
    const shape = { modelPath, laneTokens, threads, flashAttention: false, exact: PROVEN }
    if (this.calm) return { ...shape, lanes, chunkTokens: 64 }
    return { ...shape, lanes: lanes + (this.#reign - 1), chunkTokens: chunkTokens + 3 * (this.#reign - 1) }
  }

  /** Strangers in lanes, so that the programs' lanes have gaps. */
  async #squat(): Promise<void> {
    for (const [i, leaves] of this.plot.squatters.entries()) {
      const stranger: ProgramPlot = {
        name: `stranger${i}`, system: 'x', tools: [], delay: 0,
        calls: [{
          says: 'hello', forced: false, sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 }, stop: [], seed: 1,
          maxTokens: 3, disturbances: [], after: 'keep', usesImage: false, rank: 5,
        }],
      }
      try {
        await new ProgramPlay(this, stranger).squat(leaves)
      } catch (error) {
        if (!(error instanceof Killed)) throw error
      }
    }
  }
}

/** What depends on every token before: a third of the calls have it. */
const RULES: TokenRules = {
  presencePenalty: 0.5, frequencyPenalty: 0.7, repetitionPenalty: 1.2, bias: [[5, 1.5], [9, -20]], minTokens: 0,
  ignoreEos: false, stopTokens: [11],
}

type Start = Extract<Command, { kind: 'start' }>

interface Image { readonly path: string; readonly digest: string; readonly tokens: number }

/** One program, as its control plane knows it. */
class ProgramPlay {
  readonly #play: Play
  readonly #program: ProgramPlot
  readonly #state: string
  /** In company all are one tenant's, and what is alike is copied; alone nothing is. */
  readonly #tenant: string
  readonly #messages: ChatMessage[] = []
  readonly #results: CallResult[] = []
  #spans: WireSpan[] = []
  #record: { readonly call: string; readonly bytes: Uint8Array } | null = null
  /** Tokens on device, and the engine they are on; the most that were ever fed. */
  #device = 0
  #onReign = 0
  #fedMost = 0
  #image: Image | null = null
  #moves = 0
  #last: { readonly start: Start; readonly prepared: Uint8Array; readonly tokens: readonly number[] } | null = null

  constructor(play: Play, program: ProgramPlot) {
    this.#play = play
    this.#program = program
    this.#state = `state-${program.name}`
    this.#tenant = play.calm ? this.#state : 't'
  }

  async run(): Promise<ProgramResult> {
    if (!this.#play.calm) await turns(this.#program.delay)
    this.#messages.push({ role: 'system', content: this.#program.system, toolCalls: [], toolCallId: null })
    for (const [i, plot] of this.#program.calls.entries()) await this.#call(plot, i)
    return { calls: this.#results, chunks: await this.#lastImage() }
  }

  async squat(leaves: boolean): Promise<void> {
    await this.run()
    if (leaves) this.#tell({ kind: 'discard', state: this.#state })
  }

  async #call(plot: CallPlot, index: number): Promise<void> {
    this.#messages.push(...this.#said(plot, index))
    const call = `${this.#program.name}-${index}`
    const body = JSON.stringify(this.#body(plot))
    const { prepared, promptTokens, base } = await this.#again(() => this.#measure(call, body))
    this.#trim(base)
    const attempt = new CallPlay(this.#play.calm ? [] : plot.disturbances)
    for (;;) {
      try {
        const number = attempt.begin()
        const held = await this.#place(plot)
        // Any prefix may be kept: some attempts keep a little less than there is.
        const keep = number === 1 ? held : Math.max(0, held - (plot.seed + number) % 4)
        const start = {
          kind: 'start', call, attempt: number, epoch: 0, state: this.#state, body, baseTokens: base, keepTokens: keep,
          recomputeTokens: Math.max(0, this.#fedMost - keep), replay: 'exact', forced: attempt.tokens, seed: plot.seed,
          maxTokens: plot.maxTokens, rank: plot.rank, tenant: this.#tenant, grantGranules: 1,
        } as const
        const finished = await this.#follow(start, prepared, attempt, base)
        if (finished === null) continue
        this.#commit(call, finished, attempt, base, promptTokens)
        this.#last = { start, prepared, tokens: attempt.tokens }
        await this.#between(plot)
        return
      } catch (error) {
        if (!(error instanceof Killed)) throw error
        await this.#play.ready()
        if (this.#results.length > index) return
      }
    }
  }

  /** Until it is finished; null where it must be started again. */
  async #follow(start: Start, prepared: Uint8Array, attempt: CallPlay, base: number): Promise<Heard | null> {
    const { engine } = this.#play
    const events = new Events(engine, start.call, start.attempt)
    engine.tell(start, [prepared])
    for (;;) {
      const due = attempt.due()
      if (due !== null) {
        await turns(due.delay)
        this.#play.count(due.kind)
        if (due.kind === 'kill') {
          await this.#play.kill()
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
        if (event.kind === 'tokens') attempt.take(event)
        else if (event.kind === 'finished') return heard
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
  }

  /** What may be kept on device once the State is where it should be. */
  async #place(plot: CallPlot): Promise<number> {
    if (this.#onReign !== this.#play.engine.reign) this.#device = 0
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
    this.#onReign = this.#play.engine.reign
    this.#fedMost = Math.max(this.#fedMost, tokens)
  }

  #commit(call: string, { event, bin }: Heard, attempt: CallPlay, base: number, promptTokens: number): void {
    assert(event.kind === 'finished')
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
      toolCalls: toolCalls.map((each, i): ChatToolCall => ({ id: `${call}_${i}`, ...each })),
    })
    this.#results.push({
      tokens: attempt.tokens, content, toolCalls, finish: event.finish, spans: event.spans, promptTokens,
      outputTokens: event.outputTokens,
    })
    assert.equal(event.promptTokens, promptTokens)
    if (event.report.reusedTokens > 0) this.#play.count('prefix reused')
    const { parts, report } = event
    const fedUs = report.usefulResidentUs + report.recomputedResidentUs
    assert.equal(parts.recomputeUs + parts.prefillUs + parts.decodeUs, fedUs)
  }

  async #between({ after }: CallPlot): Promise<void> {
    if (this.#play.calm) return
    if (after === 'offload') await this.#offload()
    if (after === 'discard') this.#discard()
    if (after !== 'keep') this.#play.count(`${after} between calls`)
  }

  // -------------------------------------------------------------- moves

  async #offload(): Promise<void> {
    if (this.#device === 0) return
    const { engine, options } = this.#play
    const move = `${this.#state}-${this.#moves++}`
    const path = join(options.directory, `${move}-${engine.reign}`)
    const tokens = this.#device
    const spans = cutSpans(this.#spans, tokens)
    engine.tell({ kind: 'offload', move, state: this.#state, path, spans, identity: this.#identity() })
    const { event } = await engine.next((e) => (e.kind === 'moved' || e.kind === 'moveFailed') && e.move === move)
    // A pause inside a recompute leaves less on device than the base: then there is nothing whole to keep.
    if (event.kind === 'moved') this.#image = { path, digest: event.digest, tokens }
    else assert.match(event.kind === 'moveFailed' ? event.why : '', /fewer than the spans|not on this device/)
    this.#discard()
  }

  async #onboard(image: Image): Promise<void> {
    const { engine } = this.#play
    // A cancelled attempt may have left an empty lane.
    this.#discard()
    const move = `${this.#state}-${this.#moves++}`
    const { path, digest } = image
    engine.tell({ kind: 'onboard', move, state: this.#state, path, digest, identity: this.#identity() })
    const { event } = await engine.next((e) => (e.kind === 'moved' || e.kind === 'moveFailed') && e.move === move)
    assert.equal(event.kind, 'moved', JSON.stringify(event))
    this.#holds(image.tokens)
    this.#play.count('onboard')
  }

  #discard(): void {
    this.#tell({ kind: 'discard', state: this.#state })
    this.#device = 0
  }

  /** Digests of the State's chunks at the end: every byte of KV. */
  async #lastImage(): Promise<string[]> {
    return await this.#again(async () => {
      const { engine, options } = this.#play
      if (this.#onReign !== engine.reign || this.#device === 0) await this.#rebuild()
      const move = `${this.#state}-last`
      const path = join(options.directory, `${move}-${this.#play.calm ? 'calm' : 'wild'}-${engine.reign}`)
      engine.tell({ kind: 'offload', move, state: this.#state, path, spans: this.#spans, identity: this.#identity() })
      const { event } = await engine.next((e) => (e.kind === 'moved' || e.kind === 'moveFailed') && e.move === move)
      assert(event.kind === 'moved', JSON.stringify(event))
      return await this.#chunks(path, event.digest)
    })
  }

  /** Brings what is gone back to the device: by image, or by the last call's start once more, all its output shown. */
  async #rebuild(): Promise<void> {
    if (this.#image !== null) return await this.#onboard(this.#image)
    const last = this.#last
    assert(last !== null)
    const { engine } = this.#play
    const events = new Events(engine, last.start.call, last.start.attempt + 1)
    engine.tell({ ...last.start, attempt: last.start.attempt + 1, keepTokens: 0, forced: last.tokens }, [last.prepared])
    const { event } = await events.next()
    assert(event.kind === 'finished', JSON.stringify(event))
    this.#holds(event.promptTokens)
    this.#play.count('rebuilt at the end')
  }

  async #chunks(path: string, digest: string): Promise<string[]> {
    const { llama, loop } = this.#play.engine
    const expected = { key: loop.describe().imageKey, digest, identity: this.#identity() }
    const { manifest } = await readImage(path, expected, llama.info.lanes)
    return manifest.chunks.map((chunk) => `${chunk.id} ${chunk.crc32}`)
  }

  #identity() {
    return { tenant: this.#tenant, state: this.#state, owner: this.#program.name, epoch: 0, reign: this.#play.engine.reign }
  }

  #tell(command: Command): void {
    this.#play.engine.tell(command)
  }

  // -------------------------------------------------------------- what is said

  async #measure(call: string, body: string): Promise<{ prepared: Uint8Array; promptTokens: number; base: number }> {
    const { engine } = this.#play
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
        if (!(error instanceof Killed)) throw error
        await this.#play.ready()
      }
    }
  }
}
