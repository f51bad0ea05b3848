/**
 * Owns the answers to those who asked: which call a request became (its own, the one it retries, a committed one shown
 * again, or none), what its follower reads, and the replies to acts on programs and engines. All of it is driven by facts that may be
 * shown, so nothing is answered that could be lost.
 */
import { must } from '../core/assert.ts'
import type { Fact, Logged } from '../core/fact.ts'
import { rawOf, type CallId } from '../core/ids.ts'
import type { Input } from '../core/input.ts'
import type { Call, CoreState } from '../core/state.ts'
import type { CallHandle, CallUpdate, ProgramReply } from './gateway.ts'
import type { Outcome, Ports, StreamPart } from './ports.ts'
import type { Follower, Streams } from './streams.ts'
import { bodyOf, resultOf } from './working-bodies.ts'

type Of<Kind extends Fact['kind']> = Extract<Fact, { kind: Kind }>
type Last = Extract<CallUpdate, { kind: 'done' }>

interface Asking {
  /** Resolves with a follower, or with updates that are all there will be. */
  readonly answer: (answer: Follower | readonly CallUpdate[]) => void
  readonly gone: (call: CallId) => void
  left: boolean
}

/** What a runtime does to its program. */
export type ProgramAct = Extract<Input, { readonly program: string }>
/** What an operator does to an engine. */
export type EngineAct = Extract<Input, { readonly kind: 'drainEngine' | 'undrainEngine' }>
type Act = ProgramAct | EngineAct

/** Why an act is not done; null where it is. */
type Refusal = Extract<ProgramReply, { ok: false }> | null

interface Told { readonly refusal: Refusal; readonly resolve: (refusal: Refusal) => void }

export class Admissions {
  readonly #core: Readonly<CoreState>
  readonly #ports: Ports
  readonly #streams: Streams
  readonly #asking = new Map<CallId, Asking>()
  readonly #outcomes = new Map<CallId, Outcome>()
  /** How many were attached to a call and are not told yet. */
  readonly #joining = new Map<CallId, number>()
  /** Those who wait for an act that was not decided yet. */
  readonly #acts = new Map<Input, (refusal: Refusal) => void>()
  /** What was decided of an act, by its last fact: that one may be lost until it is shown. */
  readonly #replies = new Map<number, Told>()
  #refusal: Extract<CallUpdate, { kind: 'refused' }> | null = null

  constructor(core: Readonly<CoreState>, ports: Ports, streams: Streams) {
    this.#core = core
    this.#ports = ports
    this.#streams = streams
  }

  handle(call: CallId, gone: (call: CallId) => void): CallHandle {
    let follower: Follower | null = null
    const { promise, resolve } = deferred<Follower | readonly CallUpdate[]>()
    const asking: Asking = { answer: resolve, gone, left: false }
    this.#asking.set(call, asking)
    const updates = async function* (): AsyncGenerator<CallUpdate> {
      const answer = await promise
      if (Array.isArray(answer)) return yield* answer
      follower = answer as Follower
      if (asking.left) follower.leave()
      yield* follower.read()
    }
    return {
      updates: updates(),
      hangUp() {
        asking.left = true
        follower?.leave()
      },
    }
  }

  /** A handle for a call that was never submitted. */
  refused(code: string, why: string): CallHandle {
    const refusal = this.#refusal ?? { kind: 'refused', code, why } as const
    return { updates: (async function* () { yield refusal })(), hangUp: () => undefined }
  }

  /** Everybody who asked is told, and whoever asks later. */
  refuseAll(code: string, why: string): void {
    this.#refusal = { kind: 'refused', code, why }
    for (const [id] of this.#asking) this.#answer(id, [this.#refusal])
    this.#streams.endAll({ kind: 'failed', code, why })
    for (const resolve of [...this.#acts.values(), ...[...this.#replies.values()].map((told) => told.resolve)]) resolve({ ok: false, code, why })
    this.#acts.clear()
    this.#replies.clear()
  }

  /** Comes before the commit, so that what was said is durable with it: a retry can be shown it again. */
  outcome(id: CallId, outcome: Outcome): void {
    const call = this.#core.calls.get(id)
    const program = call === undefined ? undefined : this.#core.programs.get(call.program)
    if (program === undefined) return
    this.#outcomes.set(id, outcome)
    const result = JSON.stringify({ parts: this.#streams.parts(id), outcome: { ...outcome, record: null } })
    this.#ports.bodies.put(resultOf(id), program.tenant, Buffer.from(result))
  }

  /** To the act that is posted now. */
  reply(act: Act): Promise<Refusal> {
    const { promise, resolve } = deferred<Refusal>()
    this.#acts.set(act, resolve)
    return promise
  }

  /** Comes before `show`, as soon as it is decided. */
  decided(input: Input, facts: readonly Logged[]): void {
    for (const { fact } of facts) if (fact.kind === 'call.attached') this.#joining.set(fact.as, (this.#joining.get(fact.as) ?? 0) + 1)
    const resolve = this.#acts.get(input)
    if (resolve === undefined) return
    this.#acts.delete(input)
    const refusal = refusalOf(input as Act, facts)
    const last = facts.at(-1)
    if (last === undefined) resolve(refusal)
    else this.#replies.set(last.seq, { refusal, resolve })
  }

  /** Whether somebody listens to a call, or is about to: it is not given up then, whoever else has left. */
  isHeard(call: CallId): boolean {
    return this.#joining.has(call) || this.#streams.hasFollowers(call)
  }

  show({ fact, seq }: Logged): void {
    this.#showCall(fact)
    const told = this.#replies.get(seq)
    if (told === undefined) return
    this.#replies.delete(seq)
    told.resolve(told.refusal)
  }

  #showCall(fact: Fact): void {
    switch (fact.kind) {
      case 'call.arrived': return this.#arrived(fact.call)
      case 'call.attached': return this.#attached(fact.call, fact.as)
      case 'call.replayed': return this.#replayed(fact.call, fact.as)
      case 'call.refused':
        this.#ports.bodies.drop(bodyOf(fact.call))
        return this.#answer(fact.call, [{ kind: 'refused', code: fact.code, why: fact.why }])
      case 'call.completed': return this.#completed(fact)
      case 'call.cancelled':
        this.#outcomes.delete(fact.call)
        return this.#streams.end(fact.call, { kind: 'failed', code: 'cancelled', why: fact.why })
      case 'call.failed': return this.#failed(fact.call, fact.code, fact.why)
      default:
    }
  }

  // ------------------------------------------------------------------ calls

  #arrived(id: CallId): void {
    const call = this.#core.calls.get(id)
    if (call === undefined) return this.#answer(id, [FORGOTTEN])
    this.#streams.open(id, must(this.#core.programs, call.program).tenant, this.#first(call))
    this.#follow(id, id)
  }

  #attached(id: CallId, as: CallId): void {
    this.#joined(as)
    this.#ports.bodies.drop(bodyOf(id))
    const call = this.#core.calls.get(as)
    if (call === undefined) return this.#answer(id, [FORGOTTEN])
    if (!this.#streams.has(as)) this.#streams.reopen(as, must(this.#core.programs, call.program).tenant, this.#first(call))
    this.#follow(id, as)
  }

  #joined(as: CallId): void {
    const left = (this.#joining.get(as) ?? 0) - 1
    if (left > 0) this.#joining.set(as, left)
    else this.#joining.delete(as)
  }

  #follow(id: CallId, as: CallId): void {
    const asking = this.#asking.get(id)
    const follower = this.#streams.follow(as, (followers) => { if (followers === 0) asking?.gone(as) })
    if (follower === null) return this.#answer(id, [{ kind: 'failed', code: 'internal', why: 'the call is not open' }])
    if (asking?.left === true) follower.leave()
    this.#answer(id, follower)
  }

  /** The committed result of a call whose tool calls wait for results: never generated twice (invariant 7). */
  #replayed(id: CallId, as: CallId): void {
    this.#ports.bodies.drop(bodyOf(id))
    const call = this.#core.calls.get(as)
    if (call === undefined) return this.#answer(id, [FORGOTTEN])
    const kept = this.#ports.bodies.get(resultOf(as))
    if (kept === null) return this.#answer(id, [{ kind: 'failed', code: 'store_failed', why: 'its committed result is no longer kept' }])
    const { parts, outcome } = JSON.parse(Buffer.from(kept).toString('utf8')) as { parts: StreamPart[]; outcome: Outcome }
    const last = lastOf(call, 'tool_calls', 'none', outcome)
    this.#answer(id, [this.#first(call), ...parts.map((part) => ({ kind: 'part', part }) as const), last])
  }

  #first(call: Call): CallUpdate {
    const program = must(this.#core.programs, call.program)
    return { kind: 'arrived', call: call.id, program: rawOf(program.id), identity: program.identity }
  }

  #completed(fact: Of<'call.completed'>): void {
    const outcome = this.#outcomes.get(fact.call)
    this.#outcomes.delete(fact.call)
    const last = lastOf(this.#core.calls.get(fact.call), fact.finish, fact.resume, outcome)
    // Only tool calls that wait for their results may be asked for again.
    if (fact.toolCalls.length === 0) this.#ports.bodies.drop(resultOf(fact.call))
    this.#streams.end(fact.call, last)
  }

  /** A call that never got as far as an engine was refused; one that did has failed. */
  #failed(id: CallId, code: string, why: string): void {
    this.#outcomes.delete(id)
    const ran = this.#core.calls.get(id)?.startedUs != null
    this.#streams.end(id, { kind: ran ? 'failed' : 'refused', code, why })
  }

  #answer(id: CallId, answer: Follower | readonly CallUpdate[]): void {
    this.#asking.get(id)?.answer(answer)
    this.#asking.delete(id)
  }
}

/** An act is done, unless one of its own facts says why not; to take back an engine that is not drained changes nothing. */
function refusalOf(act: Act, facts: readonly Logged[]): Refusal {
  if (act.kind === 'undrainEngine') return null
  for (const { fact } of facts) {
    if (fact.kind === 'program.refused') return { ok: false, code: fact.code, why: fact.why }
    if (fact.kind === 'result.ignored' && fact.input === act.kind) return { ok: false, code: 'invalid_request', why: fact.why }
  }
  return null
}

/** While what was decided waited for the disk, it ended and its program made room for another. */
const FORGOTTEN: CallUpdate = { kind: 'failed', code: 'program_ended', why: 'its program has ended and was forgotten' }

const lastOf = (call: Call | undefined, finish: Last['finish'], resume: Last['resume'], outcome: Outcome | undefined): Last => ({
  kind: 'done', finish, resume, promptTokens: outcome?.promptTokens ?? call?.promptTokens ?? 0,
  outputTokens: outcome?.outputTokens ?? call?.outputTokens ?? 0, cachedTokens: outcome?.cachedTokens ?? 0,
  queuedUs: call === undefined ? 0 : (call.startedUs ?? call.arrivedUs) - call.arrivedUs,
})

function deferred<T>(): { promise: Promise<T>; resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => undefined
  const promise = new Promise<T>((done) => { resolve = done })
  return { promise, resolve }
}
