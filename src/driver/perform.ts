/**
 * Owns what a decided fact does to the world: one small function a fact. It decides nothing; what engines answer comes
 * back as inputs. Every command carries the attempt it is for, and perform remembers which attempt runs where, so that a
 * cancelled or superseded one is stopped.
 */
import { must } from '../core/assert.ts'
import { isReplayable } from '../core/effects.ts'
import type { Fact, Logged } from '../core/fact.ts'
import type { CallId, EngineId, InterruptId } from '../core/ids.ts'
import type { Input } from '../core/input.ts'
import type { CoreState, Origin, State } from '../core/state.ts'
import type { Tokens } from '../core/units.ts'
import type { EngineCommand, EnginePort, ImageIdentity, ImageSpan, Ports } from './ports.ts'
import type { Streams } from './streams.ts'
import { bodyOf, preparedOf, recordOf, resultOf } from './working-bodies.ts'

type Of<Kind extends Fact['kind']> = Extract<Fact, { kind: Kind }>

export class Performer {
  readonly #core: Readonly<CoreState>
  readonly #ports: Ports
  readonly #streams: Streams
  readonly #post: (input: Input) => void
  readonly #engines: ReadonlyMap<EngineId, EnginePort>
  readonly #running = new Map<CallId, { engine: EngineId; attempt: number }>()
  readonly #measuring = new Set<CallId>()
  /** Calls that no engine could size yet; the next that joins does. */
  #unsized: CallId[] = []
  readonly #timers = new Map<string, () => void>()
  /** The fact that is performed. */
  #seq = 0
  /** When each engine joined last. */
  readonly #joinedSeq = new Map<EngineId, number>()

  constructor(core: Readonly<CoreState>, ports: Ports, streams: Streams, post: (input: Input) => void) {
    this.#core = core
    this.#ports = ports
    this.#streams = streams
    this.#post = post
    this.#engines = new Map(ports.engines.map((engine) => [engine.id, engine]))
  }

  /** Of a decision, before it is durable and performed. */
  decided({ seq, fact }: Logged): void {
    if (fact.kind === 'engine.joined') this.#joinedSeq.set(fact.engine, seq)
  }

  perform({ seq, fact }: Logged): void {
    this.#seq = seq
    switch (fact.kind) {
      case 'call.arrived': return this.#measureNext(fact.call)
      case 'call.scheduled': return this.#start(fact)
      case 'call.preempted': return this.#tellRunning(fact.call, 'pause')
      case 'call.paused': return void this.#running.delete(fact.call)
      case 'call.retried':
        this.#stop(fact.call)
        return this.#measureNext(fact.call)
      case 'call.detached': return this.#stop(fact.call)
      case 'call.completed': return this.#completed(fact)
      case 'call.cancelled':
      case 'call.failed': return this.#ended(fact.call)
      case 'interrupt.completed':
      case 'interrupt.expired':
      case 'interrupt.cancelled': return this.#dropResult(fact.interrupt)
      case 'program.completed':
      case 'program.closed':
      case 'program.cancelled':
      case 'program.failed': return isEnd(fact) ? this.#dropResults(this.#core.programs.get(fact.program)?.calls ?? []) : undefined
      // It may have been forgotten before its end was performed.
      case 'program.forgotten': return this.#dropResults(fact.calls)
      case 'timer.set': return this.#setTimer(fact.timer, fact.atUs)
      case 'timer.cleared': return this.#clearTimer(fact.timer)
      default: return this.#performKv(fact)
    }
  }

  #performKv(fact: Fact): void {
    const { images } = this.#ports
    switch (fact.kind) {
      case 'engine.joined':
        for (const call of this.#unsized.splice(0)) this.#measureNext(call)
        return
      case 'engine.ordered': return this.#tell(fact.engine, { kind: 'order', orders: fact.orders })
      case 'kv.offload.begun': return this.#offload(fact)
      case 'kv.onboard.begun': return this.#onboard(fact)
      case 'kv.moved': return this.#moved(fact)
      case 'kv.move.failed':
        if (fact.dropImage !== null) images.drop(fact.dropImage)
        // A copy that came in for nobody must not stay on the device, nor one that is counted as lost.
        if (fact.to === 'device' || fact.sourceLost) this.#tell(fact.engine, { kind: 'discard', state: fact.state })
        return
      case 'kv.discarded':
        if (fact.dropImage !== null) images.drop(fact.dropImage)
        if (fact.engine !== null) this.#tell(fact.engine, { kind: 'discard', state: fact.state })
        return
      case 'kv.unclaimed':
        for (const { state } of fact.states) this.#tell(fact.engine, { kind: 'discard', state })
        return
      case 'kv.forgotten':
        if (fact.record !== null) this.#ports.bodies.drop(recordOf(fact.record))
        return
      default:
    }
  }

  /** Timers of a state that was recovered. */
  armTimers(): void {
    for (const [timer, atUs] of this.#core.timers) this.#setTimer(timer, atUs)
  }

  isRunning(call: CallId, attempt: number): boolean {
    return this.#running.get(call)?.attempt === attempt
  }

  stop(): void {
    for (const cancel of this.#timers.values()) cancel()
    this.#timers.clear()
  }

  // ------------------------------------------------------------------ measuring

  /** Sizes the call whose turn it is in the thread of `call`, off every engine's decode loop. */
  #measureNext(of: CallId): void {
    const thread = this.#core.threads.get(this.#core.calls.get(of)?.thread ?? ('' as never))
    const id = thread?.active ?? null
    const call = id === null ? undefined : this.#core.calls.get(id)
    if (call?.stage.kind === 'arrived' && !this.#measuring.has(call.id)) void this.#measure(call.id)
  }

  async #measure(id: CallId): Promise<void> {
    this.#measuring.add(id)
    const call = must(this.#core.calls, id)
    const { tenant } = must(this.#core.programs, call.program)
    const engine = this.#engineFor(call.model)
    const body = this.#ports.bodies.get(bodyOf(call.id))
    if (engine === null || body === null) {
      this.#measuring.delete(id)
      if (body === null) return this.#post({ kind: 'measureFailed', call: id, code: 'store_failed', why: 'its body is gone' })
      this.#unsized.push(id)
      return
    }
    const measurement = await engine.measure({ call: id, body: Buffer.from(body).toString('utf8'), records: this.#recordsFor(id) })
    this.#measuring.delete(id)
    // Its client may have left meanwhile; then nothing of it is kept.
    if (this.#core.calls.get(id)?.stage.kind !== 'arrived') return
    if (!measurement.ok && measurement.code === 'engine_unavailable') return void this.#unsized.push(id)
    if (!measurement.ok) return this.#post({ kind: 'measureFailed', call: id, code: measurement.code, why: measurement.why })
    this.#ports.bodies.put(preparedOf(id), tenant, measurement.prepared)
    const { promptTokens, matched, renderingWon } = measurement
    this.#post({ kind: 'measured', call: id, promptTokens, matched, renderingWon })
  }

  /** The thread's own record first, then what earlier turns left to the session, newest first. */
  #recordsFor(id: CallId): { call: CallId; record: Uint8Array }[] {
    const call = must(this.#core.calls, id)
    const { state } = must(this.#core.threads, call.thread)
    const { session } = must(this.#core.programs, call.program)
    const states = state !== null ? [state] : session === null ? [] : [...this.#core.sessions.get(session)?.states ?? []].reverse()
    const records: { call: CallId; record: Uint8Array }[] = []
    for (const candidate of states) {
      const from = must(this.#core.states, candidate).record
      const record = from === null ? null : this.#ports.bodies.get(recordOf(from))
      if (from !== null && record !== null) records.push({ call: from, record })
    }
    return records
  }

  #engineFor(model: string): EnginePort | null {
    for (const engine of this.#core.engines.values()) {
      if (engine.stage === 'joined' && engine.capabilities.models.includes(model)) return this.#engines.get(engine.id) ?? null
    }
    return null
  }

  // ------------------------------------------------------------------ attempts

  #start(fact: Of<'call.scheduled'>): void {
    const call = this.#core.calls.get(fact.call)
    if (call === undefined) return
    const body = this.#ports.bodies.get(bodyOf(call.id))
    const prepared = this.#ports.bodies.get(preparedOf(call.id))
    if (body === null || prepared === null) {
      const from = { engine: fact.engine, reign: this.#core.reign, call: call.id, attempt: fact.attempt, run: call.preemptions, epoch: call.epoch }
      return this.#post({ kind: 'attemptFailed', ...from, retryable: false, why: 'its body is no longer kept' })
    }
    this.#running.set(call.id, { engine: fact.engine, attempt: fact.attempt })
    this.#tell(fact.engine, {
      kind: 'start', call: call.id, attempt: fact.attempt, run: call.preemptions, epoch: call.epoch, state: fact.state,
      tenant: must(this.#core.programs, call.program).tenant, body: Buffer.from(body).toString('utf8'), prepared, baseTokens: fact.baseTokens, keepTokens: fact.keepTokens,
      recomputeTokens: fact.recomputeTokens, replay: fact.replay, forced: [...this.#streams.tokens(call.id)], seed: call.seed,
      maxTokens: call.maxTokens, rank: fact.rank, grantGranules: fact.granules,
    })
  }

  #completed(fact: Of<'call.completed'>): void {
    this.#running.delete(fact.call)
    this.#dropCall(fact.call)
    if (fact.supersedes !== null && fact.supersedes !== fact.call) this.#ports.bodies.drop(recordOf(fact.supersedes))
    this.#measureNext(fact.call)
  }

  #ended(call: CallId): void {
    this.#stop(call)
    this.#dropCall(call)
    this.#ports.bodies.drop(recordOf(call))
    this.#ports.bodies.drop(resultOf(call))
    this.#measureNext(call)
  }

  /** What is never made anew is kept for its retry, as long as its program is open. */
  #dropResult(id: InterruptId): void {
    const interrupt = this.#core.interrupts.get(id)
    if (interrupt === undefined || !isReplayable(interrupt)) this.#ports.bodies.drop(resultOf(callOfInterrupt(id)))
  }

  #dropResults(calls: readonly CallId[]): void {
    for (const call of calls) this.#ports.bodies.drop(resultOf(call))
  }

  #dropCall(call: CallId): void {
    this.#ports.bodies.drop(bodyOf(call))
    this.#ports.bodies.drop(preparedOf(call))
  }

  #stop(call: CallId): void {
    this.#tellRunning(call, 'cancel')
    this.#running.delete(call)
  }

  #tellRunning(call: CallId, kind: 'pause' | 'cancel'): void {
    const running = this.#running.get(call)
    if (running !== undefined) this.#tell(running.engine, { kind, call, attempt: running.attempt })
  }

  /** What waited for the disk may be meant for a life of the engine that is over: the next knows nothing of it. */
  #tell(engine: EngineId, command: EngineCommand): void {
    if (this.#seq < (this.#joinedSeq.get(engine) ?? 0)) return
    if (this.#core.engines.get(engine)?.stage === 'joined') this.#engines.get(engine)?.perform(command)
  }

  // ------------------------------------------------------------------ moves

  #offload(fact: Of<'kv.offload.begun'>): void {
    const state = this.#core.states.get(fact.state)
    if (state === undefined) return
    this.#tell(fact.engine, {
      kind: 'offload', move: fact.move, state: fact.state, path: this.#ports.images.path(fact.move),
      spans: this.#spansOf(state, fact.tokens), identity: this.#identityOf(state),
    })
  }

  #onboard(fact: Of<'kv.onboard.begun'>): void {
    const state = this.#core.states.get(fact.state)
    if (state?.host == null) return
    this.#tell(fact.engine, {
      kind: 'onboard', move: fact.move, state: fact.state, path: this.#ports.images.path(state.host.image),
      digest: state.host.digest, identity: this.#identityOf(state),
    })
  }

  #moved(fact: Of<'kv.moved'>): void {
    if (fact.dropImage !== null) this.#ports.images.drop(fact.dropImage)
    if (fact.to === 'device') return
    this.#ports.images.keep(fact.move, fact.bytes, fact.digest)
    this.#tell(fact.engine, { kind: 'discard', state: fact.state })
  }

  /** Its first tokens, by the Segments they are of; what came after the last Segment is the tail. */
  #spansOf(state: State, firstTokens: Tokens): ImageSpan[] {
    const spans: ImageSpan[] = []
    let left = firstTokens
    const add = (id: string, has: Tokens, origin: Origin): void => {
      const tokens = Math.min(has, left)
      left -= tokens
      if (tokens > 0) spans.push({ id, tokens, origin })
    }
    for (const { segment, tokens, origin } of state.spans) add(segment, tokens, origin)
    add('tail.prefilled', state.tail.prefilled, 'prefilled')
    add('tail.decoded', state.tail.decoded, 'decoded')
    return spans
  }

  /** The same while the State lives: what the writer put into an image is what its reader must find. */
  #identityOf(state: State): ImageIdentity {
    return { tenant: state.tenant, state: state.id, owner: state.id, epoch: 0, reign: this.#core.reign }
  }

  // ------------------------------------------------------------------ timers

  #setTimer(timer: string, atUs: number): void {
    this.#clearTimer(timer)
    this.#timers.set(timer, this.#ports.clock.at(atUs, () => {
      this.#timers.delete(timer)
      this.#post({ kind: 'due', timer })
    }))
  }

  #clearTimer(timer: string): void {
    this.#timers.get(timer)?.()
    this.#timers.delete(timer)
  }
}

/** A program is over for good. */
const isEnd = (fact: Fact): fact is Of<'program.completed' | 'program.closed' | 'program.cancelled' | 'program.failed'> =>
  (fact.kind === 'program.completed' && !fact.provisional) || fact.kind === 'program.closed' || fact.kind === 'program.cancelled' || fact.kind === 'program.failed'

const callOfInterrupt = (interrupt: string): CallId => interrupt.replace(/\.wait$/, '') as CallId
