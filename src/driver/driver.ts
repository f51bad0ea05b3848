/**
 * Owns the only main loop. A turn takes what arrived, stamps it, lets the core decide, appends the facts, and performs
 * them: at once where all are flow facts, after they are durable where one is a barrier fact, and never out of order.
 * Production, the simulator and the tests run this same turn; time, ids, randomness, log and engines come through ports.
 */
import { InvariantError } from '../core/assert.ts'
import type { EffectRemaining } from '../core/effect.ts'
import { effectsRemaining } from '../core/effects.ts'
import { isBarrier, type Logged } from '../core/fact.ts'
import { callId, engineId, moveId, programId, threadId, type CallId, type TenantId } from '../core/ids.ts'
import type { Input } from '../core/input.ts'
import { checkInvariants } from '../core/invariants.ts'
import { nothingSeen } from '../core/invariants/law.ts'
import { openTurn } from '../core/step.ts'
import type { CoreState } from '../core/state.ts'
import { upcast } from '../core/upcast.ts'
import { Admissions, type EngineAct, type ProgramAct } from './admissions.ts'
import { BlackBox, type Dump } from './black-box.ts'
import type { CallHandle, EngineReply, EngineStanding, Gateway, GraphReport, ProgramReply, Submission } from './gateway.ts'
import { standingOf } from './engine-standing.ts'
import { Performer } from './perform.ts'
import type { EngineSink, Outcome, Ports, StreamChunk } from './ports.ts'
import type { Recovered } from './recover.ts'
import { Streams } from './streams.ts'
import { FACTS_MAX, Trace } from './trace.ts'
import { bodyOf, neededBodies, recordOf } from './working-bodies.ts'

interface DriverOptions {
  /** The invariants are checked every so many turns; 1 in tests, 0 never. */
  readonly checkEveryTurns: number
  /** A bug, or a log that cannot be written: memory is ahead of the disk, and only a restart is honest. `dump` is for who looks for it. */
  readonly onFatal: (error: Error, dump: () => Dump) => void
  /** When the store cannot write: go on with facts in memory only, or refuse every call. */
  readonly storeFailure: 'pass' | 'refuse'
  /** Facts between two snapshots; 0: none is made. */
  readonly snapshotEveryFacts: number
}

/** At it, the rest waits for the next turn. */
export const INPUTS_PER_TURN_MAX = 256
/** Facts read again in one go for the traces of before the snapshot. */
const RECALL_FACTS = 1_000
/** At it calls and acts on programs are refused (`queue_full`): the core does not keep up. */
const INBOX_MAX = 10_000

const STOPPING = { ok: false, code: 'engine_unavailable', why: 'the server is stopping' } as const
const INBOX_FULL = { ok: false, code: 'queue_full', why: `${INBOX_MAX} inputs wait to be looked at` } as const

export class Driver implements Gateway {
  readonly core: CoreState
  readonly #ports: Ports
  readonly #options: DriverOptions
  readonly #trace: Trace
  readonly #streams: Streams
  readonly #performer: Performer
  readonly #admissions: Admissions
  readonly #seen = nothingSeen()
  readonly #blackBox = new BlackBox()
  readonly #watchers = new Set<(logged: Logged) => void>()
  #inbox: Input[] = []
  #turnDue = false
  #turns = 0
  #stopped = false
  #storeFailed = false
  /** The last fact of the newest snapshot asked for. */
  #snapshotSeq: number
  readonly #recoveredSeq: number
  /** Turns appended and not yet performed, oldest first. */
  #unperformed: { facts: readonly Logged[]; durable: boolean }[] = []

  /** Nothing runs before `start`. */
  constructor(ports: Ports, options: DriverOptions, recovered: Recovered) {
    this.#ports = ports
    this.#options = options
    this.core = recovered.core
    this.#trace = recovered.trace
    this.#snapshotSeq = recovered.snapshotSeq
    this.#recoveredSeq = recovered.snapshotSeq
    this.#streams = new Streams(ports.bodies, ports.clock)
    this.#performer = new Performer(this.core, ports, this.#streams, (input) => this.post(input))
    this.#admissions = new Admissions(this.core, ports, this.#streams)
  }

  /** Takes the next reign, fences what ran before, and opens the engines. */
  async start(): Promise<void> {
    this.#ports.bodies.keepOnly(neededBodies(this.core))
    const images = await this.#verifiedImages()
    const reign = this.#ports.log.nextReign()
    this.post({ kind: 'restart', reign, wallOffsetUs: this.#ports.clock.wallOffsetUs(), images })
    this.#turn()
    this.#performer.armTimers()
    for (const engine of this.#ports.engines) engine.open(reign, this.#sink())
    if (this.#recoveredSeq > 0) this.#recall()
  }

  /** Those that a State has; a crash may have kept others from being dropped. */
  async #verifiedImages(): Promise<readonly string[]> {
    const verified = await this.#ports.images.verify()
    const needed = new Set([...this.core.states.values()].map(({ host }) => host?.image))
    for (const image of verified.map(moveId)) if (!needed.has(image)) this.#ports.images.drop(image)
    return verified.filter((image) => needed.has(moveId(image)))
  }

  async stop(): Promise<void> {
    this.#stopped = true
    this.#performer.stop()
    this.#streams.stop()
    await Promise.all(this.#ports.engines.map((engine) => engine.close()))
  }

  post(input: Input): void {
    this.#inbox.push(input)
    if (this.#turnDue || this.#stopped) return
    this.#turnDue = true
    this.#ports.clock.soon(() => this.#turn())
  }

  // ------------------------------------------------------------------ the turn

  #turn(): void {
    this.#turnDue = false
    if (this.#stopped) return
    try {
      this.#decideAll(this.#inbox.splice(0, INPUTS_PER_TURN_MAX))
    } catch (error) {
      return this.#fail(error instanceof Error ? error : new Error(String(error)))
    }
    if (this.#inbox.length > 0 && !this.#turnDue) {
      this.#turnDue = true
      this.#ports.clock.soon(() => this.#turn())
    }
  }

  #decideAll(inputs: readonly Input[]): void {
    const nowUs = this.#ports.clock.nowUs()
    const facts: Logged[] = []
    const turn = openTurn(this.core, nowUs)
    const decided = (some: readonly Logged[]): void => {
      for (const logged of some) {
        this.#trace.note(this.core, logged)
        this.#performer.decided(logged)
        facts.push(logged)
      }
    }
    for (const input of inputs) {
      // Its last reader left, and since then another came.
      if (input.kind === 'hangUp' && this.#admissions.isHeard(input.call)) continue
      this.#blackBox.note(this.core, nowUs, input, this.#turns)
      const some = turn.take(input)
      decided(some)
      this.#admissions.decided(input, some)
    }
    decided(turn.end())
    this.#turns += 1
    const { checkEveryTurns } = this.#options
    if (checkEveryTurns > 0 && this.#turns % checkEveryTurns === 0) checkInvariants(this.core, this.#seen)
    if (facts.length > 0) this.#append(facts)
    this.#snapshotIfDue()
  }

  #append(facts: readonly Logged[]): void {
    const barrier = facts.some(({ fact }) => isBarrier(fact))
    const turn = { facts, durable: !barrier }
    this.#unperformed.push(turn)
    if (this.#storeFailed) turn.durable = true
    else this.#ports.log.append(facts, barrier, () => {
      turn.durable = true
      this.#performDurable()
    })
    this.#performDurable()
  }

  #snapshotIfDue(): void {
    const { snapshotEveryFacts } = this.#options
    if (snapshotEveryFacts === 0 || this.core.seq - this.#snapshotSeq < snapshotEveryFacts || this.#storeFailed) return
    this.#snapshotSeq = this.core.seq
    this.#ports.log.snapshot()
  }

  /** Serving goes before reading: what programs did before the snapshot is read from the log a little at a time. */
  #recall(): void {
    const facts = this.#ports.log.read(Math.max(0, this.#recoveredSeq - FACTS_MAX))[Symbol.iterator]()
    const earlier = new Trace()
    const more = (): void => {
      for (let count = 0; count < RECALL_FACTS; count += 1) {
        if (this.#stopped || this.#storeFailed) return
        const next = facts.next()
        if (next.done === true || next.value.seq > this.#recoveredSeq) return this.#trace.precede(earlier)
        earlier.note(this.core, upcast(next.value))
      }
      this.#ports.clock.soon(more)
    }
    more()
  }

  #performDurable(): void {
    try {
      while (this.#unperformed[0]?.durable === true && !this.#stopped) {
        const turn = this.#unperformed.shift()
        for (const logged of turn?.facts ?? []) this.#show(logged)
      }
    } catch (error) {
      this.#fail(error instanceof Error ? error : new Error(String(error)))
    }
  }

  #show(logged: Logged): void {
    this.#admissions.show(logged)
    this.#performer.perform(logged)
    for (const watcher of this.#watchers) watcher(logged)
  }

  /** Nothing will be durable from here on; what was decided and not yet shown is shown, or nothing is any more. */
  storeFailed(): void {
    this.#storeFailed = true
    if (this.#options.storeFailure === 'refuse') {
      this.#admissions.refuseAll('store_failed', 'facts can no longer be written, and storeFailure says refuse')
      return void this.stop()
    }
    for (const turn of this.#unperformed) turn.durable = true
    this.#performDurable()
  }

  #fail(error: Error): void {
    this.#stopped = true
    this.#performer.stop()
    const told = error instanceof InvariantError ? error : new Error(`the driver stopped: ${error.message}`, { cause: error })
    this.#options.onFatal(told, () => this.#blackBox.dump(error, this.core, this.#ports.log))
  }

  // ------------------------------------------------------------------ what engines say

  #sink(): EngineSink {
    return {
      input: (input) => this.post(input),
      chunk: (chunk) => this.#chunk(chunk),
      outcome: (call, attempt, outcome) => this.#outcome(call, attempt, outcome),
    }
  }

  #chunk(chunk: StreamChunk): void {
    if (!this.#performer.isRunning(chunk.call, chunk.attempt)) return
    if (this.#streams.chunk(chunk)) return
    const call = this.core.calls.get(chunk.call)
    if (call?.stage.kind !== 'running') return
    const from = { engine: call.stage.engine, reign: this.core.reign, call: call.id, attempt: chunk.attempt, run: call.preemptions, epoch: call.epoch }
    this.post({ kind: 'attemptFailed', ...from, retryable: true, why: 'the engine left out output tokens' })
  }

  #outcome(id: CallId, attempt: number, outcome: Outcome): void {
    const call = this.core.calls.get(id)
    if (call === undefined || !this.#performer.isRunning(id, attempt)) return
    const program = this.core.programs.get(call.program)
    if (program === undefined) return
    if (outcome.record !== null) this.#ports.bodies.put(recordOf(id), program.tenant, outcome.record)
    this.#admissions.outcome(id, outcome)
  }

  // ------------------------------------------------------------------ the gateway

  submit(submission: Submission): CallHandle {
    const call = callId(this.#ports.ids.fresh())
    const closed = this.#closed()
    if (closed !== null) return this.#admissions.refused(closed.code, closed.why)
    const body = bodyOf(call)
    this.#ports.bodies.put(body, submission.tenant, Buffer.from(submission.body))
    const handle = this.#admissions.handle(call, (gone) => this.post({ kind: 'hangUp', call: gone }))
    const { tenant, claims, model, digest, promptTokensEstimate, maxTokens, exactResume, priorityClass, deadlineUs } = submission
    this.post({
      kind: 'submit', tenant, call, body, freshProgram: this.#ports.ids.fresh(), claims, model, digest,
      seed: submission.seed ?? this.#ports.ids.seed(), promptTokensEstimate, maxTokens, exactResume, priorityClass, deadlineUs,
    })
    return handle
  }

  /** Why nothing is taken in now; null where it is. */
  #closed(): Extract<ProgramReply, { ok: false }> | null {
    if (this.#stopped) return STOPPING
    return this.#inbox.length >= INBOX_MAX ? INBOX_FULL : null
  }

  async #act(act: ProgramAct): Promise<ProgramReply> {
    const closed = this.#closed()
    if (closed !== null) return closed
    const refusal = this.#admissions.reply(act)
    this.post(act)
    return await refusal ?? { ok: true, program: act.program }
  }

  declare(program: Parameters<Gateway['declare']>[0]): Promise<ProgramReply> {
    return this.#act({ kind: 'declareProgram', ...program, program: program.program ?? this.#ports.ids.fresh() })
  }

  finish(tenant: TenantId, program: string): Promise<ProgramReply> {
    return this.#act({ kind: 'finishProgram', tenant, program })
  }

  cancel(tenant: TenantId, program: string): Promise<ProgramReply> {
    return this.#act({ kind: 'cancelProgram', tenant, program })
  }

  report(tenant: TenantId, program: string, report: GraphReport): Promise<ProgramReply> {
    return this.#act({ kind: 'reportGraph', tenant, program, ...report })
  }

  cancelThread(tenant: TenantId, program: string, thread: string): Promise<ProgramReply> {
    return this.#act({ kind: 'cancelThread', tenant, program, thread })
  }

  cancelCall(tenant: TenantId, program: string, call: string): Promise<ProgramReply> {
    return this.#act({ kind: 'cancelCall', tenant, program, call })
  }

  commitEffect(tenant: TenantId, program: string, toolCall: string, record: string | null): Promise<ProgramReply> {
    return this.#act({ kind: 'commitEffect', tenant, program, toolCall, record })
  }

  effectsRemaining(tenant: TenantId, program: string, thread: string | null): readonly EffectRemaining[] {
    const id = programId(tenant, program)
    return effectsRemaining(this.core, id, thread === null ? null : threadId(id, thread))
  }

  facts(tenant: TenantId, program: string, max: number): readonly Logged[] {
    return this.#trace.of(programId(tenant, program), max)
  }

  watch(watcher: (logged: Logged) => void): () => void {
    this.#watchers.add(watcher)
    return () => void this.#watchers.delete(watcher)
  }

  engines(): readonly EngineStanding[] {
    return this.#ports.engines.map(({ id, condition }) => standingOf(id, this.core.engines.get(id), condition))
  }

  drain(engine: string, withinUs: number): Promise<EngineReply> {
    return this.#order( { kind: 'drainEngine', engine: engineId(engine), withinUs })
  }

  undrain(engine: string): Promise<EngineReply> {
    return this.#order( { kind: 'undrainEngine', engine: engineId(engine) })
  }

  async #order(order: EngineAct): Promise<EngineReply> {
    const closed = this.#closed()
    if (closed !== null) return closed
    if (!this.core.engines.has(order.engine)) return { ok: false, code: 'unknown_engine', why: `"${order.engine}"` }
    const refusal = this.#admissions.reply(order)
    this.post(order)
    return await refusal ?? { ok: true }
  }

  nowUs(): number {
    return this.#ports.clock.nowUs()
  }
}

