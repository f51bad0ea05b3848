/**
 * Owns what an adapter may say to its sink: engine and reign on every input, and the laws that do not depend on the
 * engine behind. The adapter owns when to say it.
 *
 * R1 An attempt ends once: finished, paused, attemptFailed, or engineLost for all of them at once.
 * R2 After cancel or an end an attempt says nothing.
 * R3 Chunk indexes are contiguous: each begins where the one before ended, the first after the forced tokens.
 * R4 A move ends once: moveDone, moveFailed, or engineLost.
 * R5 Nothing is said under a reign that a higher one replaced, and a lower one is refused.
 * R6 The sink is never called from within `perform`; a refusal comes right after it.
 */
import type { AttemptReport, Finished, FromAttempt, Held } from '../core/input.ts'
import type { CallId, EngineId, MoveId } from '../core/ids.ts'
import type { Capabilities, EngineSpeeds } from '../core/state.ts'
import type { Bytes, Us } from '../core/units.ts'
import type { EngineSink, Outcome, StartCommand, StreamPart } from '../driver/ports.ts'

export interface Attempt {
  readonly call: CallId
  readonly attempt: number
  readonly run: number
  readonly epoch: number
  /** Index of the output token that comes next. */
  nextIndex: number
  /** Something of it was shown, here or by an attempt before. */
  shown: boolean
}

type End = Pick<Finished, 'finish' | 'report' | 'parts' | 'spans' | 'toolCalls' | 'toolEffect' | 'resume'>
type Report = { readonly attempt: Attempt; readonly report: AttemptReport }

export class EngineReports {
  readonly engine: EngineId
  #sink: EngineSink | null = null
  #reign = 0
  #joined = false
  readonly #attempts = new Map<CallId, Attempt>()
  readonly #moves = new Set<MoveId>()

  constructor(engine: EngineId) {
    this.engine = engine
  }

  get reign(): number { return this.#reign }
  get joined(): boolean { return this.#joined }
  /** Attempts or moves that wait for an end. */
  get owes(): boolean { return this.#attempts.size > 0 || this.#moves.size > 0 }

  /** False where a reign at least as high holds the engine already; the sink has its refusal then. */
  open(reign: number, sink: EngineSink): boolean {
    if (this.#reign >= reign) {
      const why = `reign ${reign} is refused: ${this.engine} obeys reign ${this.#reign}`
      queueMicrotask(() => sink.input({ kind: 'engineLost', engine: this.engine, reign, why }))
      return false
    }
    this.close(`reign ${reign} took the engine over`)
    this.#reign = reign
    this.#sink = sink
    return true
  }

  /** The last word under this reign: engineLost where something still waits for its end. */
  close(why: string): void {
    if (this.#joined && this.owes) this.lost(why)
    this.#joined = false
    this.#sink = null
    this.#attempts.clear()
    this.#moves.clear()
  }

  join(capabilities: Capabilities, speeds: EngineSpeeds, inventory: readonly Held[] = []): void {
    this.#joined = this.#sink !== null
    this.#sink?.input({ kind: 'engineJoined', ...this.#from(), capabilities, speeds, inventory })
  }

  lost(why: string): void {
    this.#joined = false
    this.#attempts.clear()
    this.#moves.clear()
    this.#sink?.input({ kind: 'engineLost', ...this.#from(), why })
  }

  // ---------------------------------------------------------------- attempts

  /** Null where the engine cannot take it; its end has been said then, or it has begun before. */
  begin(start: StartCommand): Attempt | null {
    if (!this.#joined) {
      this.refuse(start, `${this.engine} is not joined`, true)
      return null
    }
    const running = this.#attempts.get(start.call)
    if (running?.attempt === start.attempt) return null
    if (running !== undefined) {
      this.refuse(start, `${start.call} runs already, as attempt ${running.attempt}`, false)
      return null
    }
    const { call, attempt, run, epoch, forced } = start
    const begun: Attempt = { call, attempt, run, epoch, nextIndex: forced.length, shown: forced.length > 0 }
    this.#attempts.set(call, begun)
    return begun
  }

  find(call: CallId, attempt: number): Attempt | null {
    const found = this.#attempts.get(call)
    return found?.attempt === attempt ? found : null
  }

  live(): Iterable<Attempt> {
    return this.#attempts.values()
  }

  /** It never began: the only thing it says is why. */
  refuse(start: StartCommand, why: string, retryable: boolean): void {
    this.#later((sink) => sink.input({ kind: 'attemptFailed', ...this.#of(start), why, retryable }))
  }

  cancel(call: CallId, attempt: number): Attempt | null {
    const found = this.find(call, attempt)
    if (found !== null) this.#attempts.delete(call)
    return found
  }

  chunk(attempt: Attempt, tokens: readonly number[], parts: readonly StreamPart[]): void {
    if (!this.#isLive(attempt)) return
    const index = attempt.nextIndex
    attempt.nextIndex += tokens.length
    attempt.shown = true
    this.#sink?.chunk({ call: attempt.call, attempt: attempt.attempt, index, tokens, parts })
  }

  progress(speeds: EngineSpeeds | null, reports: readonly Report[]): void {
    const calls = reports.filter(({ attempt }) => this.#isLive(attempt))
      .map(({ attempt: { call, attempt, run, epoch }, report }) => ({ call, attempt, run, epoch, report }))
    if (!this.#joined || (speeds === null && calls.length === 0)) return
    this.#sink?.input({ kind: 'progress', ...this.#from(), speeds, calls })
  }

  paused(attempt: Attempt, report: AttemptReport): void {
    if (this.#end(attempt)) this.#sink?.input({ kind: 'paused', ...this.#of(attempt), report })
  }

  finished(attempt: Attempt, outcome: Outcome, end: End): void {
    if (!this.#end(attempt)) return
    this.#sink?.outcome(attempt.call, attempt.attempt, outcome)
    this.#sink?.input({ kind: 'finished', ...this.#of(attempt), ...end })
  }

  failed(attempt: Attempt, why: string, retryable: boolean): void {
    if (this.#end(attempt)) this.#sink?.input({ kind: 'attemptFailed', ...this.#of(attempt), why, retryable })
  }

  // ---------------------------------------------------------------- moves

  beginMove(move: MoveId): boolean {
    if (!this.#joined) {
      this.refuseMove(move, `${this.engine} is not joined`)
      return false
    }
    if (this.#moves.has(move)) return false
    this.#moves.add(move)
    return true
  }

  refuseMove(move: MoveId, why: string): void {
    this.#later((sink) => sink.input({ kind: 'moveFailed', ...this.#from(), move, why, sourceLost: false }))
  }

  moveDone(move: MoveId, bytes: Bytes, digest: string, copyUs: Us): void {
    if (this.#moves.delete(move)) this.#sink?.input({ kind: 'moveDone', ...this.#from(), move, bytes, digest, copyUs })
  }

  moveFailed(move: MoveId, why: string, sourceLost: boolean): void {
    if (this.#moves.delete(move)) this.#sink?.input({ kind: 'moveFailed', ...this.#from(), move, why, sourceLost })
  }

  #isLive(attempt: Attempt): boolean {
    return this.#attempts.get(attempt.call) === attempt
  }

  #end(attempt: Attempt): boolean {
    return this.#isLive(attempt) && this.#attempts.delete(attempt.call)
  }

  #from(): { engine: EngineId; reign: number } {
    return { engine: this.engine, reign: this.#reign }
  }

  #of({ call, attempt, run, epoch }: Pick<Attempt, 'call' | 'attempt' | 'run' | 'epoch'>): FromAttempt {
    return { ...this.#from(), call, attempt, run, epoch }
  }

  #later(say: (sink: EngineSink) => void): void {
    const sink = this.#sink
    if (sink === null) return
    queueMicrotask(() => { if (sink === this.#sink) say(sink) })
  }
}
