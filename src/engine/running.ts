/**
 * Owns the attempts under way: how each begins, what is told of it, and how it ends. Called between batches only.
 * Leaves which of them runs next to the schedule and what they feed to their plans.
 *
 * R1 the rows of a cancelled or failed attempt are cut before anyone goes on with its State; those of a finished one that
 *    are not kept, too. A cancelled one's were fed rightly: who waits to read the same may copy them first.
 * R2 every attempt that begins is answered once: paused, finished or failed; a cancelled one is not.
 */
import type { EngineEvent } from '../protocol/engine.ts'
import { admit } from './admission.ts'
import type { AdmissionHost } from './admission.ts'
import { heldTokens } from './lanes.ts'
import type { Lane } from './lanes.ts'
import type { Prefixes } from './prefixes.ts'
import { attemptOf, finishedOf, reportOf } from './reports.ts'
import type { Sequence, StartRequest } from './sequence.ts'
import type { Speeds } from './speeds.ts'

interface RunningHost extends AdmissionHost {
  readonly prefixes: Prefixes
  readonly speeds: Speeds
  readonly isExact: () => boolean
  readonly emit: (event: EngineEvent, bin?: readonly Uint8Array[]) => void
}

/** Tokens of one call are sent together where they come closer than this. */
const TOKENS_EVERY_US = 20_000
const PROGRESS_EVERY_US = 100_000
const SPEEDS_EVERY_US = 1_000_000

export class Running {
  readonly #host: RunningHost
  readonly #sequences = new Map<string, Sequence>()
  readonly #sentUs = new Map<Sequence, number>()
  #progressUs = 0
  #speedsUs = 0

  constructor(host: RunningHost) {
    this.#host = host
  }

  values(): Iterable<Sequence> {
    return this.#sequences.values()
  }

  /** Somebody waits for the next batch. */
  get isBusy(): boolean {
    return this.#sequences.size > 0
  }

  /** The attempt that runs on a State, if one does. */
  on(state: string): Sequence | null {
    for (const sequence of this.#sequences.values()) if (sequence.start.state === state) return sequence
    return null
  }

  // -------------------------------------------------------------- commands

  start(start: StartRequest, prepared: Uint8Array): void {
    const { call, attempt, epoch } = start
    if (this.#sequences.has(call)) {
      return this.#host.emit({ kind: 'refused', what: 'start', why: `the call ${call} is running already` })
    }
    const admitted = this.on(start.state) === null
      ? admit(this.#host, start, prepared)
      : { ok: false as const, why: 'its State is running another call', retryable: true }
    if (!admitted.ok) {
      return this.#host.emit({ kind: 'failed', call, attempt, epoch, why: admitted.why, retryable: admitted.retryable })
    }
    this.#sequences.set(call, admitted.sequence)
    this.conclude(admitted.sequence)
  }

  /** Of an order only the rank is used: a grant is the lane a call has, and the control plane keeps a lane spare. */
  rerank(call: string, rank: number): void {
    const sequence = this.#sequences.get(call)
    if (sequence !== undefined) sequence.rank = rank
  }

  pause(call: string, attempt: number): void {
    const sequence = this.#attempt(call, attempt)
    if (sequence === null) return
    this.#leave(sequence)
    this.#host.emit({ kind: 'paused', ...attemptOf(sequence), report: reportOf(sequence) })
  }

  cancel(call: string, attempt: number): void {
    const sequence = this.#attempt(call, attempt)
    if (sequence === null) return
    sequence.takeUnsent()
    this.#leave(sequence)
    this.#handOn(sequence.lane)
    this.#cut(sequence, sequence.start.baseTokens)
  }

  discard(state: string): void {
    const { llama, lanes } = this.#host
    const lane = lanes.find(state)
    if (lane === null) return
    this.#handOn(lane)
    const sequence = this.on(state)
    if (sequence !== null) this.fail(sequence, 'its State was discarded', true)
    if (heldTokens(lane) > 0) llama.cut(lane.index, 0)
    lanes.release(lane)
  }

  // -------------------------------------------------------------- ends

  /** Ends the attempt where its last token ended it. */
  conclude(sequence: Sequence): void {
    const { ending } = sequence
    if (ending === null) return
    if (ending.kind === 'failed') return this.fail(sequence, ending.why, ending.retryable)
    const end = sequence.end(ending.reason)
    const kept = sequence.plan.promptTokens + end.keptTokens
    const isLonger = sequence.fed.length > kept
    this.#leave(sequence)
    // What the State is does not depend on whether the lane could be cut to it.
    sequence.fed.cut(kept)
    const { event, record } = finishedOf(sequence, end, this.#host.isExact(), this.#host.nowUs())
    if (isLonger) sequence.fed.cut(this.#host.llama.cut(sequence.lane.index, kept))
    this.#host.emit(event, [record])
  }

  fail(sequence: Sequence, why: string, retryable: boolean): void {
    this.#leave(sequence)
    this.#cut(sequence, sequence.start.baseTokens)
    this.#host.emit({ kind: 'failed', ...attemptOf(sequence), why, retryable })
  }

  // -------------------------------------------------------------- what is told meanwhile

  report(): void {
    const nowUs = this.#host.nowUs()
    for (const sequence of this.#sequences.values()) {
      if (nowUs - (this.#sentUs.get(sequence) ?? -Infinity) >= TOKENS_EVERY_US) this.#send(sequence, nowUs)
    }
    if (nowUs - this.#progressUs < PROGRESS_EVERY_US || this.#sequences.size === 0) return
    this.#progressUs = nowUs
    const speedsDue = nowUs - this.#speedsUs >= SPEEDS_EVERY_US
    if (speedsDue) this.#speedsUs = nowUs
    this.#host.emit({
      kind: 'progress',
      speeds: speedsDue ? this.#host.speeds.snapshot() : null,
      calls: [...this.#sequences.values()].map((each) => ({ ...attemptOf(each), report: reportOf(each) })),
    })
  }

  #send(sequence: Sequence, nowUs: number): void {
    const shown = sequence.takeUnsent()
    if (shown === null) return
    this.#sentUs.set(sequence, nowUs)
    const { call, attempt } = sequence.start
    this.#host.emit({ kind: 'tokens', call, attempt, ...shown })
  }

  #leave(sequence: Sequence): void {
    this.#send(sequence, this.#host.nowUs())
    this.#sequences.delete(sequence.start.call)
    this.#sentUs.delete(sequence)
  }

  /** Of what is about to be cut. */
  #handOn(lane: Lane): void {
    const heir = this.#host.prefixes.handOn(lane, this.#sequences.values())
    if (heir !== null) this.conclude(heir)
  }

  #cut(sequence: Sequence, tokens: number): void {
    if (sequence.fed.length <= tokens) return
    sequence.fed.cut(this.#host.llama.cut(sequence.lane.index, tokens))
  }

  #attempt(call: string, attempt: number): Sequence | null {
    const sequence = this.#sequences.get(call)
    return sequence?.start.attempt === attempt ? sequence : null
  }
}
