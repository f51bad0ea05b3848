/**
 * Owns one attempt under way: how far its plan is fed, the tokens it has put out and what they show. Shown tokens that
 * come with a start (`forced`) are put out again in silence, so that grammar, stop, UTF-8 and parse positions are what
 * they were (E2). Leaves batches to the schedule and the lane's cells to the loop.
 *
 *   position  0 ...... prompt ............ fed
 *   held      prompt   | outputs but the last (the pending token, sampled and never fed)
 */
import assert from 'node:assert/strict'
import type { Sampling } from '../protocol/chat.ts'
import type { EngineRequest, WireLogprob, WirePart } from '../protocol/engine.ts'
import type { Fed } from './fed.ts'
import type { Lane } from './lanes.ts'
import { LazyGrammar } from './lazy-grammar.ts'
import type { MovingGrammar } from './lazy-grammar.ts'
import { logprobOf } from './logprobs.ts'
import type { OutputEnd, OutputPipeline } from './output.ts'
import type { Piece, Plan } from './plan.ts'
import type { Sampler } from './sampler.ts'
import { Account } from './service.ts'
import type { LogitChanges } from './token-rules.ts'
import type { Prepared } from './token-record.ts'

export type StartRequest = Extract<EngineRequest, { kind: 'start' }>

type Ending =
  | { readonly kind: 'complete'; readonly reason: 'stop' | 'length' }
  | { readonly kind: 'failed'; readonly why: string; readonly retryable: boolean }

/** What a start needs besides its message. */
interface SequenceParts {
  readonly start: StartRequest
  readonly lane: Lane
  readonly fed: Fed
  readonly plan: Plan
  readonly sampling: Sampling
  readonly choice: number
  readonly sampler: Sampler
  readonly grammar: MovingGrammar | LazyGrammar | null
  /** Null: the call asks for none. */
  readonly changes: LogitChanges | null
  readonly topLogprobs: number | null
  readonly spell: (token: number) => Uint8Array
  readonly output: OutputPipeline
  readonly prepared: Prepared
  readonly isEog: (token: number) => boolean
  /** Tokens a State can have. */
  readonly contextTokens: number
  readonly startedUs: number
}

/** Output tokens not yet sent, and what they show. */
interface Shown { readonly index: number; readonly tokens: readonly number[]; readonly parts: readonly WirePart[] }

export class Sequence {
  readonly start: StartRequest
  readonly lane: Lane
  readonly fed: Fed
  readonly plan: Plan
  readonly account: Account
  readonly prepared: Prepared
  rank: number
  ending: Ending | null = null
  #last: { readonly token: number; readonly fresh: boolean; readonly eog: boolean } | null = null
  readonly #parts: SequenceParts
  readonly #outputs: number[] = []
  #unsent: { index: number; tokens: number[]; parts: WirePart[] }

  constructor(parts: SequenceParts) {
    this.#parts = parts
    this.start = parts.start
    this.lane = parts.lane
    this.fed = parts.fed
    this.plan = parts.plan
    this.prepared = parts.prepared
    this.rank = parts.start.rank
    this.account = new Account(parts.startedUs)
    this.#unsent = { index: parts.start.forced.length, tokens: [], parts: [] }
    assert(this.fed.length === this.plan.begin, 'a sequence begins where its lane ends')
    this.settle(null)
  }

  get outputs(): readonly number[] {
    return this.#outputs
  }

  /** What comes next, at most `chunkTokens` of it. */
  piece(chunkTokens: number): Piece {
    if (this.fed.length < this.plan.tokens.length) return this.plan.piece(this.fed.length, chunkTokens)
    return { kind: 'decode' }
  }

  tokenAt(position: number): number {
    const token = this.plan.tokens[position] ?? this.#outputs[position - this.plan.promptTokens]
    assert(token !== undefined, `no token is known for position ${position}`)
    return token
  }

  /** A token is drawn from the logits at `position`: everything shown before has been fed. */
  drawsAt(position: number): boolean {
    return position + 1 >= this.plan.promptTokens + this.start.forced.length
  }

  /** Positions that an earlier attempt or call had fed, and that were evicted. */
  redoneRows(count: number): number {
    const redoneEnd = this.start.keepTokens + this.start.recomputeTokens
    return Math.max(0, Math.min(count, redoneEnd - this.fed.length))
  }

  /** The next `count` tokens are in the lane. */
  advance(count: number): void {
    for (let i = 0; i < count; i++) this.fed.push(this.tokenAt(this.fed.length), this.plan.origin(this.fed.length))
  }

  /**
   * Its lane was filled with the first `tokens` of the plan out of another lane and holds the first `held` of them:
   * fewer only where the library failed, and then the rest is fed.
   */
  reuse(tokens: number, held: number): void {
    const gain = Math.max(0, Math.min(tokens, held) - this.fed.length)
    this.account.reused(gain, this.redoneRows(gain))
    while (this.fed.length < tokens) this.fed.push(this.tokenAt(this.fed.length), this.plan.origin(this.fed.length), true)
    this.fed.cut(held)
    this.settle(null)
  }

  /** Puts out what can be: shown tokens whose turn it is, then one drawn from the last row's logits (masked in place). */
  settle(logits: Float32Array | null): void {
    const { forced } = this.start
    while (this.ending === null && this.#outputs.length < forced.length && this.fed.length >= this.#drawnFrom()) {
      this.#put(forced[this.#outputs.length] ?? 0, false)
    }
    if (this.ending !== null || logits === null) return
    assert(this.fed.length === this.#drawnFrom(), 'logits of another position')
    const { sampling, choice, sampler, grammar, changes, topLogprobs, spell } = this.#parts
    const given = topLogprobs === null ? null : logits.slice()
    changes?.apply(logits)
    const token = sampler.sample(logits, sampling, { seed: this.start.seed, choice, position: this.fed.length }, grammar)
    if (token === null) {
      this.ending = { kind: 'failed', why: grammarFault(grammar, 'the grammar allows no token here'), retryable: false }
      return
    }
    this.#put(token, true)
    if (given !== null && this.#last?.eog === false) this.#tell(logprobOf(given, token, topLogprobs ?? 0, spell))
  }

  /** What may be sent, if anything; asked for once. */
  takeUnsent(): Shown | null {
    const unsent = this.#unsent
    if (unsent.tokens.length === 0 && unsent.parts.length === 0) return null
    this.#unsent = { index: unsent.index + unsent.tokens.length, tokens: [], parts: [] }
    return unsent
  }

  /**
   * What is kept of the output, once it is complete; asked for once. What was held back until then is shown with the
   * last token, so that a journal which has that token has everything; where that token is the ending one, it is sent.
   */
  end(reason: 'stop' | 'length'): OutputEnd {
    const end = this.#parts.output.end(reason)
    const shownBefore = this.#last !== null && !this.#last.fresh
    if (end.parts.length > 0 && !shownBefore) {
      this.#unsent.parts.push(...end.parts)
      if (this.#last?.eog === true) this.#unsent.tokens.push(this.#last.token)
    }
    return end
  }

  /** Tokens that must be fed before the next output is known. */
  #drawnFrom(): number {
    return this.plan.promptTokens + this.#outputs.length
  }

  /** A token's likelihood goes out with the token itself, whatever of its text is held back: it cannot be had again. */
  #tell(logprob: WireLogprob): void {
    const { parts } = this.#unsent
    const last = parts.at(-1)
    const isText = last?.kind === 'text'
    if (isText) parts.pop()
    parts.push({ kind: 'text', text: isText ? last.text : '', logprobs: [...(isText ? last.logprobs ?? [] : []), logprob] })
  }

  #put(token: number, fresh: boolean): void {
    const { grammar, isEog, output, changes, contextTokens } = this.#parts
    if (grammar !== null) {
      if (!fresh && !grammar.allows(token)) {
        const why = grammarFault(grammar, 'a token already shown does not fit the grammar')
        this.ending = { kind: 'failed', why, retryable: false }
        return
      }
      grammar.accept(token)
    }
    const eog = isEog(token)
    this.#last = { token, fresh, eog }
    const { parts, stopped } = output.push(token)
    if (grammar instanceof LazyGrammar) grammar.look()
    if (fresh) this.#unsent.parts.push(...parts)
    if (eog) {
      this.ending = { kind: 'complete', reason: 'stop' }
      return
    }
    this.#outputs.push(token)
    changes?.push(token)
    if (fresh) this.#unsent.tokens.push(token)
    const full = this.plan.promptTokens + this.#outputs.length > contextTokens
    if (stopped) this.ending = { kind: 'complete', reason: 'stop' }
    else if (full || this.#outputs.length >= this.start.maxTokens) this.ending = { kind: 'complete', reason: 'length' }
  }
}

const grammarFault = (grammar: { readonly fault: string | null } | null, otherwise: string): string =>
  grammar === null || grammar.fault === null ? otherwise : `the grammar is too much: ${grammar.fault}`
