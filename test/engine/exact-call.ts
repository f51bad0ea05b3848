/** Owns what the control plane of a script keeps of one call: what was shown, what is to happen yet, what is heard. */
import assert from 'node:assert/strict'
import type { EngineEvent, WirePart, WireSpan } from '../../src/protocol/engine.ts'
import type { Disturbance } from './exact-plot.ts'
import type { Heard, PlayedEngine } from './played-engine.ts'

/** One call over its attempts: what was shown so far, and what is still to happen to it. */
export class CallPlay {
  tokens: number[] = []
  #parts: WirePart[] = []
  #attempt = 0
  readonly #disturbances: Disturbance[]

  constructor(disturbances: readonly Disturbance[]) {
    this.#disturbances = [...disturbances]
  }

  begin(): number {
    return ++this.#attempt
  }

  restart(forget: boolean): void {
    if (!forget) return
    this.tokens = []
    this.#parts = []
  }

  isDue(): boolean {
    const [next] = this.#disturbances
    return next !== undefined && this.tokens.length >= next.atTokens
  }

  due(): Disturbance | null {
    return this.isDue() ? this.#disturbances.shift() ?? null : null
  }

  take(event: Extract<EngineEvent, { kind: 'tokens' }>): void {
    assert.equal(event.index, this.tokens.length, 'tokens come in order, none twice')
    this.tokens = [...this.tokens, ...event.tokens]
    this.#parts.push(...event.parts)
  }

  message(): { content: string; toolCalls: { name: string; arguments: string }[] } {
    let content = ''
    const toolCalls: { name: string; arguments: string }[] = []
    for (const part of this.#parts) {
      if (part.kind === 'text') {
        content += part.text
        continue
      }
      if (part.kind === 'reasoning') continue
      const call = toolCalls[part.index] ??= { name: '', arguments: '' }
      call.name += part.name ?? ''
      call.arguments += part.arguments
    }
    return { content, toolCalls }
  }
}

/** Events of one attempt, none lost between two waits. */
export class Events {
  readonly #queue: Heard[] = []
  readonly #engine: PlayedEngine
  readonly #wants: (event: EngineEvent) => boolean
  #from: number

  constructor(engine: PlayedEngine, call: string, attempt: number) {
    this.#engine = engine
    this.#from = engine.heard.length
    this.#wants = (event) =>
      event.kind !== 'progress' && 'attempt' in event && event.call === call && event.attempt === attempt
  }

  async next(): Promise<Heard> {
    for (;;) {
      while (this.#from < this.#engine.heard.length) {
        const heard = this.#engine.heard[this.#from++]
        if (heard !== undefined && this.#wants(heard.event)) this.#queue.push(heard)
      }
      const first = this.#queue.shift()
      if (first !== undefined) return first
      await this.#engine.next(this.#wants)
    }
  }
}

export function cutSpans(spans: readonly WireSpan[], tokens: number): WireSpan[] {
  const kept: WireSpan[] = []
  let left = tokens
  for (const span of spans) {
    if (left === 0) break
    kept.push({ ...span, tokens: Math.min(span.tokens, left) })
    left -= Math.min(span.tokens, left)
  }
  return kept
}

export async function turns(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await new Promise((resolve) => setImmediate(resolve))
}
