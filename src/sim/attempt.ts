/**
 * Owns one attempt at a call on an engine: what it feeds next, what comes out, where it ends. It knows no time and no batch.
 * Everything after `keepTokens` is fed: the prompt with its origins (or all as given, where the replay is plain), then
 * what was shown before, then what it says. The last token is said and never fed.
 */
import type { AttemptReport, Finished } from '../core/input.ts'
import { emptyLedger, type FinishReason, type Ledger } from '../core/state.ts'
import type { Tokens, Us } from '../core/units.ts'
import type { StartCommand } from '../driver/ports.ts'
import { cutRuns, sampled, tokensOf, type Piece, type Run, type Texts } from './content.ts'
import type { Kv, Resident } from './device.ts'
import type { Tool } from './tool.ts'

/** What measuring hands to the start of a call. */
export interface Prompt {
  readonly pieces: readonly Piece[]
  /** How its tokens are fed. */
  readonly runs: readonly Run[]
  /** Tokens the model says before it stops by itself, and what it stops with. */
  readonly says: Tokens
  readonly then: 'tool' | 'end'
  readonly tool: Tool
}

/** What a call leaves to its thread. */
export interface CallRecord {
  readonly pieces: readonly Piece[]
  readonly fed: readonly Run[]
}

/** Tokens in a row that are fed together (given), or one alone (generated). */
export interface Need {
  readonly kind: 'prefill' | 'decode'
  readonly tokens: Tokens
  readonly again: boolean
}

export class Attempt {
  readonly start: StartCommand
  readonly kv: Kv
  readonly lane: number
  readonly begunUs: Us
  readonly service: Ledger = emptyLedger()
  readonly spentUs = { recompute: 0, prefill: 0, decode: 0 }
  rank: number
  roomTokens: Tokens
  pausing = false
  recomputed: Tokens = 0
  readonly outputs: number[]
  /** Of these, told. */
  shown: Tokens
  readonly #prompt: Prompt
  readonly #promptTokens: Tokens
  readonly #texts: Texts
  readonly #limit: Tokens
  /** Where `fed` is in the prompt's pieces. */
  #piece = 0
  #place = 0

  constructor(start: StartCommand, prompt: Prompt, resident: Resident, room: { readonly granted: Tokens; readonly context: Tokens }, texts: Texts, nowUs: Us) {
    this.start = start
    this.kv = resident.kv
    this.lane = resident.lane
    this.begunUs = nowUs
    this.rank = start.rank
    this.roomTokens = room.granted
    this.outputs = [...start.forced]
    this.shown = start.forced.length
    this.#prompt = prompt
    this.#promptTokens = tokensOf(prompt.pieces)
    this.#texts = texts
    this.#limit = Math.min(prompt.says, start.maxTokens, room.context - this.#promptTokens)
    // Something must be fed for something to be said.
    this.kv.cut(this.#promptTokens + Math.max(0, this.outputs.length) - 1)
    this.#place = this.kv.tokens
    this.#settle()
  }

  get done(): boolean {
    return this.outputs.length >= this.#limit && this.kv.tokens >= this.#promptTokens + this.#limit - 1
  }

  /** Tokens that it says one after another now, each fed as it is said. */
  get saysAlone(): Tokens {
    if (this.kv.tokens - this.#promptTokens < this.start.forced.length - 1) return 1
    return Math.max(1, Math.min(this.#limit - this.outputs.length, this.roomTokens - this.kv.tokens))
  }

  /** What it would feed now; null where it has no room, or nothing to feed. */
  next(): Need | null {
    const fed = this.kv.tokens
    const room = this.roomTokens - fed
    if (room <= 0 || this.done) return null
    const again = fed < this.start.keepTokens + this.start.recomputeTokens
    const most = again ? Math.min(room, this.start.keepTokens + this.start.recomputeTokens - fed) : room
    if (fed < this.#promptTokens) {
      const run = this.#runAt(fed)
      return run.origin === 'prefilled' ? { kind: 'prefill', tokens: Math.min(most, run.left), again } : { kind: 'decode', tokens: 1, again }
    }
    const shownLeft = this.#promptTokens + this.start.forced.length - 1 - fed
    if (this.start.replay === 'plain' && shownLeft > 0) return { kind: 'prefill', tokens: Math.min(most, shownLeft), again }
    return { kind: 'decode', tokens: 1, again }
  }

  /** Feeds so many tokens, and says one more where all that is known was fed. */
  feed({ kind, again }: Need, tokens: Tokens): void {
    const origin = kind === 'prefill' ? 'prefilled' : 'decoded'
    if (this.#texts.isBlank) this.kv.skip(tokens, origin)
    else for (let count = 0; count < tokens; count += 1) {
      this.kv.feed(this.#tokenToFeed(), origin)
      this.#place += 1
      this.#settle()
    }
    if (again) this.recomputed += tokens
    const place = this.kv.tokens - this.#promptTokens
    if (place < 0 || place < this.outputs.length || this.outputs.length >= this.#limit) return
    this.outputs.push(this.#texts.isBlank ? 0 : sampled(this.start.seed, place, this.kv.last))
  }

  report(): AttemptReport {
    const tail = cutRuns(this.kv.runs, this.kv.tokens, this.start.baseTokens)
    const of = (origin: Run['origin']): Tokens => tokensOf(tail.filter((run) => run.origin === origin))
    return {
      service: copyOf(this.service), tailPrefilled: of('prefilled'), tailDecoded: of('decoded'),
      outputTokens: this.outputs.length, recomputedTokens: this.recomputed,
    }
  }

  parts(nowUs: Us): Finished['parts'] {
    const { recompute, prefill, decode } = this.spentUs
    return { waitUs: nowUs - this.begunUs - recompute - prefill - decode, recomputeUs: recompute, prefillUs: prefill, decodeUs: decode }
  }

  /** What was fed after the base, in order. */
  spans(): Finished['spans'] {
    let place = this.start.baseTokens
    return cutRuns(this.kv.runs, this.kv.tokens, place).map(({ tokens, origin }) => {
      place += tokens
      return { tokens, origin, digest: this.kv.at(place).toString(16) }
    })
  }

  record(): CallRecord {
    const said = this.#texts.keep(this.outputs)
    return { pieces: [...this.#prompt.pieces, said], fed: cutRuns(this.kv.runs, this.kv.tokens) }
  }

  get finish(): FinishReason {
    return this.#limit < this.#prompt.says ? 'length' : this.#prompt.then === 'tool' ? 'tool_calls' : 'stop'
  }

  get tool(): Tool {
    return this.#prompt.tool
  }

  get promptTokens(): Tokens {
    return this.#promptTokens
  }

  #tokenToFeed(): number {
    const piece = this.#prompt.pieces[this.#piece]
    if (piece !== undefined) return this.#texts.token(piece, this.#place)
    return this.outputs[this.kv.tokens - this.#promptTokens] ?? 0
  }

  /** Past the end of a piece is the beginning of the next. */
  #settle(): void {
    for (let piece = this.#prompt.pieces[this.#piece]; piece !== undefined && this.#place >= piece.tokens; piece = this.#prompt.pieces[this.#piece]) {
      this.#place -= piece.tokens
      this.#piece += 1
    }
  }

  #runAt(fed: Tokens): { origin: Run['origin']; left: Tokens } {
    if (this.start.replay === 'plain') return { origin: 'prefilled', left: this.#promptTokens - fed }
    let place = 0
    for (const { origin, tokens } of this.#prompt.runs) {
      place += tokens
      if (fed < place) return { origin, left: place - fed }
    }
    return { origin: 'prefilled', left: this.#promptTokens - fed }
  }
}

const copyOf = ({ useful, retried, recomputed }: Ledger): Ledger => ({ useful: { ...useful }, retried: { ...retried }, recomputed: { ...recomputed } })
