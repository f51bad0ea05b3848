/**
 * Owns an engine with no control plane before it: what a bench orders is done at once, and every token's time is kept. For
 * what the door would blur: a State that moves while others decode, with nothing else going on.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { callId, moveId, segmentId, stateId, tenantId, type CallId, type StateId } from '../src/core/ids.ts'
import type { Finished, Input } from '../src/core/input.ts'
import type { ImageIdentity, ImageSpan, StreamChunk } from '../src/driver/ports.ts'
import { EmbeddedEngine } from '../src/engines/embedded.ts'
import { cacheDirectory, PROBES_FILE } from '../src/models/cache.ts'
import { Corpus } from '../src/eval/corpus.ts'

const SHARED_MEMORY = '/dev/shm'
const REIGN = 1
const SEED = 1
const TENANT = tenantId('bench')
const CHARACTERS_PER_TOKEN = 4.57
const FRAME_TOKENS = 32
const POLL_MS = 5
const ON_AND_ON = { presencePenalty: 0, frequencyPenalty: 0, repetitionPenalty: 1, bias: [], minTokens: 0, ignoreEos: true, stopTokens: [] }
const WAIT_MS_MAX = 300_000

export interface LoneOptions {
  readonly modelPath: string
  readonly lanes: number
  readonly laneTokens: number
  readonly threads: number
}

/** When tokens of a call came, and how many. */
export interface Came { readonly atMs: number; readonly tokens: number }

/** A State that nobody runs. */
export interface Parked { readonly state: StateId; readonly spans: readonly ImageSpan[]; readonly tokens: number }

export class LoneEngine {
  readonly #engine: EmbeddedEngine
  readonly #folder: string
  readonly #inputs: Input[] = []
  readonly #came = new Map<CallId, Came[]>()
  #fresh = 0

  private constructor(options: LoneOptions) {
    this.#folder = mkdtempSync(join(existsSync(SHARED_MEMORY) ? SHARED_MEMORY : tmpdir(), 'entracte-bench-'))
    process.once('exit', this.#remove)
    this.#engine = new EmbeddedEngine({
      id: 'lone', models: ['lone'], ...options, chunkTokens: 128, flashAttention: false, extraBuffers: true, libraryDir: null,
      runtimeDir: this.#folder, probeCachePath: join(cacheDirectory(process.env), PROBES_FILE),
    })
  }

  /** Resolves when its probe has answered. */
  static async start(options: LoneOptions): Promise<LoneEngine> {
    const lone = new LoneEngine(options)
    lone.#engine.open(REIGN, {
      input: (input) => { if (input.kind !== 'progress') lone.#inputs.push(input) },
      chunk: (chunk) => lone.#chunk(chunk),
      outcome: () => undefined,
    })
    await lone.#until('the engine to join and know itself', () => lone.#find('engineJoined', ({ capabilities }) => capabilities.exact.answer !== 'unknown'))
    return lone
  }

  async close(): Promise<void> {
    await this.#engine.close()
    process.off('exit', this.#remove)
    this.#remove()
  }

  /** Resolves with its first token; the list goes on growing. */
  async decode(number: number, contextTokens: number, outputTokens: number): Promise<{ readonly came: readonly Came[]; cancel(): void }> {
    const { call, state } = await this.#start(number, contextTokens, outputTokens)
    const came = this.#came.get(call) ?? []
    await this.#until('its first token', () => (came.length > 0 ? true : null))
    const cancel = (): void => {
      this.#engine.perform({ kind: 'cancel', call, attempt: 1 })
      this.#engine.perform({ kind: 'discard', state })
    }
    return { came, cancel }
  }

  /** A State of so many tokens in its lane. */
  async park(number: number, contextTokens: number): Promise<Parked> {
    const { call, state } = await this.#start(number, contextTokens, 2)
    const { spans } = await this.#until('a State', () => this.#find('finished', (one: Finished) => one.call === call))
    return {
      state, tokens: spans.reduce((sum, { tokens }) => sum + tokens, 0),
      spans: spans.map(({ tokens, origin, digest }) => ({ id: segmentId(digest), tokens, origin })),
    }
  }

  /** Out of its lane, and in again; how long the two took in all. */
  async outAndIn({ state, spans }: Parked): Promise<number> {
    const begunMs = performance.now()
    const out = this.#move()
    const path = join(this.#folder, `${out}.kv`)
    const identity: ImageIdentity = { tenant: TENANT, state, owner: state, epoch: 0, reign: REIGN }
    this.#engine.perform({ kind: 'offload', move: out, state, path, spans, identity })
    const { digest } = await this.#moved(out)
    this.#engine.perform({ kind: 'discard', state })
    const back = this.#move()
    this.#engine.perform({ kind: 'onboard', move: back, state, path, digest, identity })
    await this.#moved(back)
    const tookMs = performance.now() - begunMs
    rmSync(path, { force: true })
    return tookMs
  }

  discard(state: StateId): void {
    this.#engine.perform({ kind: 'discard', state })
  }

  async #start(number: number, contextTokens: number, outputTokens: number): Promise<{ call: CallId; state: StateId }> {
    const call = callId(`c${this.#fresh += 1}`)
    const state = stateId(`s-${call}`)
    const chat = {
      model: 'lone', messages: [{ role: 'user', content: textOf(number, contextTokens), toolCalls: [], toolCallId: null }], tools: [], toolChoice: 'auto', stop: [],
      maxTokens: outputTokens, sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 }, tokenRules: ON_AND_ON,
    }
    const body = JSON.stringify(chat)
    const measured = await this.#engine.measure({ call, body, records: [] })
    if (!measured.ok) throw new Error(measured.why)
    this.#came.set(call, [])
    this.#engine.perform({
      kind: 'start', call, attempt: 1, run: 0, epoch: 0, state, body, prepared: measured.prepared, tenant: TENANT,
      baseTokens: 0, keepTokens: 0, recomputeTokens: 0, replay: 'exact', forced: [], seed: SEED, maxTokens: outputTokens, rank: number, grantGranules: 1,
    })
    return { call, state }
  }

  #move() {
    return moveId(`m${this.#fresh += 1}`)
  }

  async #moved(move: ReturnType<typeof moveId>): Promise<{ readonly digest: string }> {
    const failed = (): null => {
      const end = this.#find('moveFailed', (one) => one.move === move)
      if (end !== null) throw new Error(`a State did not move: ${end.why}`)
      return null
    }
    return await this.#until('a State to move', () => this.#find('moveDone', (one) => one.move === move) ?? failed())
  }

  #chunk({ call, tokens }: StreamChunk): void {
    if (tokens.length > 0) this.#came.get(call)?.push({ atMs: performance.now(), tokens: tokens.length })
  }

  #find<Kind extends Input['kind']>(kind: Kind, wanted: (input: Extract<Input, { kind: Kind }>) => boolean): Extract<Input, { kind: Kind }> | null {
    const lost = this.#inputs.find((input) => input.kind === 'engineLost' || input.kind === 'attemptFailed')
    if (lost !== undefined) throw new Error(`the engine failed: ${lost.why}`)
    const of = this.#inputs.filter((input): input is Extract<Input, { kind: Kind }> => input.kind === kind)
    return of.find(wanted) ?? null
  }

  async #until<T>(what: string, found: () => T | null): Promise<T> {
    const byMs = performance.now() + WAIT_MS_MAX
    for (;;) {
      const value = found()
      if (value !== null) return value
      if (performance.now() > byMs) throw new Error(`waited ${WAIT_MS_MAX / 1_000} s for ${what}`)
      await sleep(POLL_MS)
    }
  }

  readonly #remove = (): void => rmSync(this.#folder, { recursive: true, force: true })
}

/** Different from the first word on for each number. */
function textOf(number: number, tokens: number): string {
  const passages = Corpus.load().passages.map(({ title, text }) => `${title}: ${text}`)
  const turned = [...passages.slice(number % passages.length), ...passages.slice(0, number % passages.length)].join('\n')
  const characters = Math.round((tokens - FRAME_TOKENS) * CHARACTERS_PER_TOKEN)
  return `${number}: ${turned.repeat(1 + Math.floor(characters / turned.length))}`.slice(0, characters)
}
