/** A sink that remembers what an engine said, and lets a test wait for it. Every wait has an end. */
import type { Input } from '../../src/core/input.ts'
import type { CallId } from '../../src/core/ids.ts'
import type { EngineSink, Outcome, StreamChunk } from '../../src/driver/ports.ts'

type InputOf<Kind extends Input['kind']> = Extract<Input, { kind: Kind }>
export type Said =
  | { readonly kind: 'input'; readonly input: Input }
  | { readonly kind: 'chunk'; readonly chunk: StreamChunk }
  | { readonly kind: 'outcome'; readonly call: CallId; readonly attempt: number; readonly outcome: Outcome }

const WAIT_MS_MAX = 30_000
const ENDS: readonly string[] = ['finished', 'paused', 'attemptFailed']

export class Listener implements EngineSink {
  readonly said: Said[] = []
  /** Set while a command is being given: an engine that speaks now speaks too early. */
  commanding = false
  spokeTooEarly = false
  readonly #waiting = new Set<() => void>()

  input(input: Input): void { this.#add({ kind: 'input', input }) }
  chunk(chunk: StreamChunk): void { this.#add({ kind: 'chunk', chunk }) }
  outcome(call: CallId, attempt: number, outcome: Outcome): void { this.#add({ kind: 'outcome', call, attempt, outcome }) }

  inputs<Kind extends Input['kind']>(kind: Kind): InputOf<Kind>[] {
    return this.said.flatMap((one) => (one.kind === 'input' && one.input.kind === kind ? [one.input as InputOf<Kind>] : []))
  }

  chunks(call: CallId, attempt: number): StreamChunk[] {
    return this.said.flatMap((one) => (one.kind === 'chunk' && one.chunk.call === call && one.chunk.attempt === attempt ? [one.chunk] : []))
  }

  tokens(call: CallId, attempt: number): number[] {
    return this.chunks(call, attempt).flatMap(({ tokens }) => tokens)
  }

  text(call: CallId, attempt: number): string {
    return this.chunks(call, attempt).flatMap(({ parts }) => parts).map((part) => (part.kind === 'text' ? part.text : '')).join('')
  }

  outcomes(call: CallId, attempt: number): Outcome[] {
    return this.said.flatMap((one) => (one.kind === 'outcome' && one.call === call && one.attempt === attempt ? [one.outcome] : []))
  }

  ends(call: CallId, attempt: number): Input[] {
    return this.said.flatMap((one) => (one.kind === 'input' && ENDS.includes(one.input.kind)
      && 'attempt' in one.input && one.input.call === call && one.input.attempt === attempt ? [one.input] : []))
  }

  /** Anything at all that was said of it. */
  of(call: CallId): number {
    return this.said.filter((one) => (one.kind === 'chunk' ? one.chunk.call === call : one.kind === 'outcome' ? one.call === call
      : ('call' in one.input && one.input.call === call) || (one.input.kind === 'progress' && one.input.calls.some((each) => each.call === call)))).length
  }

  /** What `look` finds, as soon as it finds something. */
  async until<T>(what: string, look: () => T | null | undefined | false, msMax = WAIT_MS_MAX): Promise<T> {
    // Engines' timers do not keep a process alive; a test that waits does.
    const alive = setTimeout(() => undefined, msMax + 1_000)
    const endMs = performance.now() + msMax
    try {
      for (;;) {
        const found = look()
        if (found !== null && found !== undefined && found !== false) return found
        const leftMs = endMs - performance.now()
        if (leftMs <= 0) throw new Error(`waited ${msMax} ms for ${what}; the last said was ${JSON.stringify(this.said.slice(-3))}`)
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, Math.min(leftMs, 20))
          this.#waiting.add(() => { clearTimeout(timer); resolve() })
        })
      }
    } finally {
      clearTimeout(alive)
    }
  }

  async end(call: CallId, attempt: number): Promise<Input> {
    return await this.until(`the end of ${call}.${attempt}`, () => this.ends(call, attempt)[0])
  }

  async finished(call: CallId, attempt: number): Promise<InputOf<'finished'>> {
    const end = await this.end(call, attempt)
    if (end.kind !== 'finished') throw new Error(`${call}.${attempt} ended with ${JSON.stringify(end)}`)
    return end
  }

  #add(said: Said): void {
    if (this.commanding) this.spokeTooEarly = true
    this.said.push(said)
    for (const wake of this.#waiting) wake()
    this.#waiting.clear()
  }
}

export const pause = (ms: number): Promise<void> => new Promise((resolve) => { setTimeout(resolve, ms) })
