/**
 * Owns one attempt on the scripted engine as time passes: what it feeds (again), what it says and when, what it stops
 * at. Knows no timer and no sink: `advance` is told the time and returns what came out.
 *
 *   catch-up   tokens not on device, up to the prompt's end or the last output but one; recomputed ones first
 *   latency    once, before the first token of this attempt
 *   decode     one step an output token: feeds the token before, samples the next
 *
 * The end is sampled and never fed; at `maxTokens` the last token is sampled and not fed.
 */
import type { AttemptParts } from '../core/input.ts'
import type { FinishReason } from '../core/state.ts'
import type { Tokens, Us } from '../core/units.ts'
import type { StartCommand, StreamPart } from '../driver/ports.ts'
import type { Attempt } from './reports.ts'
import { cutRuns, spanDigest, sumOf, type Answer, type Run, type TokenRecord } from './script.ts'

export interface AttemptSpeeds { readonly promptNs: number; readonly decodeNs: number; readonly latencyNs: number }

/** Tokens in a row that cost alike. */
interface Stretch { tokens: Tokens; readonly ns: number; readonly kind: 'recompute' | 'prefill' }

type Step =
  /** `nextUs`: until something can be seen of it; null: until it is granted more memory. */
  | { readonly kind: 'going'; readonly nextUs: Us | null }
  | { readonly kind: 'fails' }
  | { readonly kind: 'ends'; readonly finish: FinishReason }

export interface Emission { readonly tokens: number[]; readonly parts: StreamPart[] }

export class ScriptedRun {
  readonly attempt: Attempt
  readonly start: StartCommand
  readonly answer: Answer
  readonly #prompt: TokenRecord
  readonly #speeds: AttemptSpeeds
  /** Output tokens after which it goes wrong. */
  readonly #failsAfter: Tokens | null
  readonly #catchUp: Stretch[]
  readonly #spentNs = { waitUs: 0, recomputeUs: 0, prefillUs: 0, decodeUs: 0 }
  #latencyNs: number
  #creditNs = 0
  #sinceUs: Us
  #outputs: Tokens
  /** Tokens of the State on device. */
  fed: Tokens
  recomputed: Tokens = 0

  constructor(
    attempt: Attempt, start: StartCommand, prompt: TokenRecord, answer: Answer, speeds: AttemptSpeeds,
    failsAfter: Tokens | null, nowUs: Us,
  ) {
    this.attempt = attempt
    this.start = start
    this.#prompt = prompt
    this.answer = answer
    this.#speeds = speeds
    this.#failsAfter = failsAfter
    this.#latencyNs = speeds.latencyNs
    this.#sinceUs = nowUs
    this.#outputs = start.forced.length
    this.fed = start.keepTokens
    this.#catchUp = catchUpOf(start, this.#runs(Math.max(0, this.#outputs - 1)), speeds)
  }

  get isRecomputing(): boolean { return this.#catchUp[0]?.kind === 'recompute' }

  /** Lives up to `nowUs` with room for `roomTokens` on device; what was said is added to `into`. */
  advance(nowUs: Us, roomTokens: Tokens, into: Emission): Step {
    this.#creditNs += (nowUs - this.#sinceUs) * 1_000
    this.#sinceUs = nowUs
    if (!this.#feed(roomTokens)) {
      return this.fed >= roomTokens ? this.#stall() : this.#going()
    }
    if (!this.#pay('waitUs', this.#latencyNs)) return this.#going()
    this.#latencyNs = 0
    const most = Math.min(this.answer.tokens.length, this.start.maxTokens)
    for (;;) {
      if (this.#failsAfter !== null && this.#outputs >= this.#failsAfter) return { kind: 'fails' }
      const feeds = this.#outputs > 0 && this.fed < this.#prompt.promptTokens + this.#outputs ? 1 : 0
      if (this.#outputs >= most) return this.#ending(feeds)
      if (this.fed + feeds > roomTokens) return this.#stall()
      if (!this.#pay('decodeUs', this.#speeds.decodeNs)) return this.#going()
      this.fed += feeds
      this.#say(into)
    }
  }

  report(): { tailPrefilled: Tokens; tailDecoded: Tokens; outputTokens: Tokens; recomputedTokens: Tokens } {
    const tail = cutRuns(this.#fedRuns(), this.fed, this.start.baseTokens)
    const of = (origin: Run['origin']): Tokens => sumOf(tail.filter((run) => run.origin === origin))
    return {
      tailPrefilled: of('prefilled'), tailDecoded: of('decoded'),
      outputTokens: this.#outputs, recomputedTokens: this.recomputed,
    }
  }

  /** What was fed after the base, as it lies in the State. */
  spans(): { tokens: Tokens; origin: Run['origin']; digest: string }[] {
    const { tokens: ids, fed } = this.record()
    let position = this.start.baseTokens
    return cutRuns(fed, this.fed, position).map(({ tokens, origin }) => {
      position += tokens
      return { tokens, origin, digest: spanDigest(ids, fed, position) }
    })
  }

  record(): TokenRecord {
    const outputs = this.answer.tokens.slice(0, this.#outputs).map(({ id }) => id)
    return {
      tokens: [...this.#prompt.tokens, ...outputs],
      promptTokens: this.#prompt.promptTokens,
      fed: cutRuns(this.#fedRuns(), this.fed),
    }
  }

  /** They add up to the attempt's time. */
  parts(): AttemptParts {
    const us = (ns: number): Us => Math.floor(ns / 1_000)
    const spent = this.#spentNs
    const totalUs = us(spent.waitUs + spent.recomputeUs + spent.prefillUs + spent.decodeUs + this.#creditNs)
    const parts = { waitUs: us(spent.waitUs), recomputeUs: us(spent.recomputeUs), prefillUs: us(spent.prefillUs) }
    return { ...parts, decodeUs: totalUs - parts.waitUs - parts.recomputeUs - parts.prefillUs }
  }

  #fedRuns(): Run[] {
    return this.#runs(Math.max(0, this.fed - this.#prompt.promptTokens))
  }

  #runs(outputs: Tokens): Run[] {
    return [...this.#prompt.fed, ...(outputs > 0 ? [{ tokens: outputs, origin: 'decoded' } as const] : [])]
  }

  /** True once everything before the next output token is on device. */
  #feed(roomTokens: Tokens): boolean {
    for (let stretch = this.#catchUp[0]; stretch !== undefined; stretch = this.#catchUp[0]) {
      const count = Math.min(stretch.tokens, Math.floor(this.#creditNs / stretch.ns), roomTokens - this.fed)
      this.#pay(stretch.kind === 'recompute' ? 'recomputeUs' : 'prefillUs', count * stretch.ns)
      this.fed += count
      if (stretch.kind === 'recompute') this.recomputed += count
      stretch.tokens -= count
      if (stretch.tokens > 0) return false
      this.#catchUp.shift()
    }
    return true
  }

  #pay(part: keyof AttemptParts, ns: number): boolean {
    if (this.#creditNs < ns) return false
    this.#creditNs -= ns
    this.#spentNs[part] += ns
    return true
  }

  #stall(): Step {
    this.#pay('waitUs', this.#creditNs)
    return { kind: 'going', nextUs: null }
  }

  /** Seen next: the end of recomputing, which changes what its time is charged to, else its next token. */
  #going(): Step {
    const seen = this.isRecomputing ? this.#catchUp.filter(({ kind }) => kind === 'recompute') : this.#catchUp
    const thenNs = this.isRecomputing ? 0 : this.#latencyNs + this.#speeds.decodeNs
    const aheadNs = seen.reduce((sum, { tokens, ns }) => sum + tokens * ns, thenNs)
    return { kind: 'going', nextUs: Math.max(1, Math.ceil((aheadNs - this.#creditNs) / 1_000)) }
  }

  #ending(feeds: number): Step {
    const cut = this.#outputs < this.answer.tokens.length
    if (cut) return { kind: 'ends', finish: 'length' }
    this.fed += feeds
    return { kind: 'ends', finish: this.answer.toolCalls.length > 0 ? 'tool_calls' : 'stop' }
  }

  #say(into: Emission): void {
    const token = this.answer.tokens[this.#outputs]
    if (token === undefined) return
    this.#outputs += 1
    into.tokens.push(token.id)
    const { part } = token
    const last = into.parts.at(-1)
    if (last?.kind === 'text' && part.kind === 'text') {
      into.parts[into.parts.length - 1] = { kind: 'text', text: last.text + part.text }
    } else if (last?.kind === 'toolCall' && part.kind === 'toolCall' && part.name === null) {
      into.parts[into.parts.length - 1] = { ...last, arguments: last.arguments + part.arguments }
    } else into.parts.push(part)
  }
}

function catchUpOf(start: StartCommand, runs: readonly Run[], { promptNs, decodeNs }: AttemptSpeeds): Stretch[] {
  const stretches: Stretch[] = []
  const recomputeEnd = start.keepTokens + start.recomputeTokens
  let position = 0
  for (const { tokens, origin } of runs) {
    const end = position + tokens
    const ns = origin === 'decoded' && start.replay === 'exact' ? decodeNs : promptNs
    const from = Math.max(position, start.keepTokens)
    const border = Math.min(Math.max(from, recomputeEnd), end)
    if (border > from) stretches.push({ tokens: border - from, ns, kind: 'recompute' })
    if (end > Math.max(from, border)) stretches.push({ tokens: end - Math.max(from, border), ns, kind: 'prefill' })
    position = end
  }
  return stretches
}
