/**
 * Inputs of every kind that make little sense, for a core in any state: ids that are unknown, of others, or right; numbers
 * that are no amounts; reports of attempts that are over. A plan is plain data, so that a failure shrinks and can be read.
 */
import fc from 'fast-check'
import type { CallId, EngineId, MoveId, StateId, TenantId } from '../../src/core/ids.ts'
import type { Claims, FromAttempt, Held, Input, NodeReport } from '../../src/core/input.ts'
import { rawOf } from '../../src/core/ids.ts'
import type { Capabilities, CoreState, EngineSpeeds } from '../../src/core/state.ts'
import { BARE, BLOCKS, LANES, SPEEDS } from './world.ts'

export interface Plan {
  readonly kind: Input['kind']
  readonly picks: readonly number[]
  /** Put in the place of one number, where set. */
  readonly bad: { readonly at: number; readonly value: number } | null
  readonly repeats: number
  /** Of the clock, before the input. */
  readonly aheadUs: number
}

const NONSENSE = ['', '/', 't/', '__proto__', 'constructor', 'c1/../c2', 'close:', '\u0000', 'x'.repeat(300), 'e0', 'c1', 't/p0']
const NO_AMOUNTS = [NaN, -1, 1.5, Infinity, -Infinity, 2 ** 53, 2 ** 41, Number.MIN_SAFE_INTEGER, -0.5, 2 ** 39]

/** What a plan chooses from: right most of the time, since only who is believed can do harm. */
class Hand {
  readonly core: CoreState
  readonly #plan: Plan
  #picks = 0
  #numbers = 0

  constructor(core: CoreState, plan: Plan) {
    this.core = core
    this.#plan = plan
  }

  pick(): number {
    this.#picks += 1
    return (this.#plan.picks[this.#picks % this.#plan.picks.length] ?? 0) + this.#picks
  }

  of<T>(values: readonly T[]): T {
    return values[this.pick() % values.length] as T
  }

  maybe<T>(value: T): T | null {
    return this.pick() % 3 === 0 ? null : value
  }

  id<Id extends string>(known: Iterable<Id>): Id {
    const right = [...known]
    return (right.length === 0 || this.pick() % 6 === 0 ? this.of(NONSENSE) : this.of(right)) as Id
  }

  /** `right` is what the one who should speak would say. */
  amount(right: number = this.pick() % 200): number {
    this.#numbers += 1
    if (this.#plan.bad?.at === this.#numbers) return this.#plan.bad.value
    return this.pick() % 8 === 0 ? this.pick() % 300 : right
  }

  get tenant(): TenantId { return this.id(['t', 't', 't', 'u'] as TenantId[]) }
  get call(): CallId { return this.id(this.core.calls.keys()) }
  get engine(): EngineId { return this.id(this.core.engines.keys()) }
  get node(): string { return this.of(['n1', 'n2', 'n3', 'n4', 'n5', 'n6', ...this.core.calls.keys(), ...NONSENSE.slice(0, 3)]) }
  get thread(): string { return this.of(['main', 'one', 'f1', 'f2', ...NONSENSE]) }
  get program(): string { return this.id([...this.core.programs.keys()].map(rawOf)) }

  from(): FromAttempt {
    const running = [...this.core.calls.values()].filter(({ stage }) => stage.kind === 'running' || stage.kind === 'pausing')
    const call = running.length === 0 || this.pick() % 4 === 0 ? this.core.calls.get(this.call) : this.of(running)
    const engine = call?.stage.kind === 'running' || call?.stage.kind === 'pausing' ? call.stage.engine : this.engine
    return {
      call: call?.id ?? this.call, engine: this.pick() % 8 === 0 ? this.engine : engine, reign: this.amount(this.core.reign),
      attempt: this.amount(call?.attempt ?? 1), run: this.amount(call?.preemptions ?? 0), epoch: this.amount(call?.epoch ?? 1),
    }
  }

  mover(): { engine: EngineId; reign: number; move: MoveId } {
    const move = this.core.moves.get(this.id(this.core.moves.keys()))
    return { move: move?.id ?? this.id<MoveId>([]), engine: move?.engine ?? this.engine, reign: this.amount(this.core.reign) }
  }

  report() {
    const service = () => ({ residentUs: this.amount(), workUs: this.amount() })
    return {
      service: { useful: service(), retried: service(), recomputed: service() }, tailPrefilled: this.amount(),
      tailDecoded: this.amount(), outputTokens: this.amount(), recomputedTokens: this.amount(),
    }
  }

  speeds(): EngineSpeeds {
    return { ...SPEEDS, prefillNsPerToken: this.amount(), decodeRowNs: this.amount(), copyInNsPerToken: this.amount() }
  }

  capabilities(): Capabilities {
    const memory = { cells: this.amount(4_096), granule: this.amount(this.of([16, 1_024, 0])), sequences: this.amount(4) }
    return { ...this.of([LANES, BLOCKS, BARE, { ...LANES, inventory: true }, { ...BLOCKS, inventory: true }, { ...LANES, models: [] }, { ...LANES, memory }]), runningMax: this.amount(4), contextTokens: this.amount(1_024) }
  }

  toolCalls(): { id: string; name: string }[] {
    return this.pick() % 2 === 0 ? [] : [{ id: this.toolCall(), name: this.of(NONSENSE) }, { id: `call_${this.pick()}`, name: 'search' }]
  }

  toolCall(): string {
    return this.id([...this.core.toolCalls.keys()].map((key) => key.slice(key.indexOf('/') + 1)))
  }

  nodes(): NodeReport[] {
    return Array.from({ length: this.pick() % 4 }, () => {
      const kind = this.of(['LLM', 'TOOL', 'CODE', 'JOIN', 'JOIN'] as const)
      const need = this.of([{ kind: 'all' }, { kind: 'any' }, { kind: 'partial', atLeast: this.amount(1 + this.pick() % 3) }] as const)
      return {
        node: this.node, kind, thread: this.maybe(this.thread), serviceUs: this.maybe(this.amount()),
        parents: Array.from({ length: this.pick() % 3 }, () => ({ node: this.node, edge: 'data' as const })),
        join: (kind === 'JOIN') === (this.pick() % 6 > 0) ? { need, siblings: this.of(['cancel', 'continue'] as const) } : null,
      }
    })
  }

  /** What an engine might hold: often just what was committed. */
  held(): Held {
    const state = this.core.states.get(this.id<StateId>([...this.core.states.keys()]))
    const segment = this.core.segments.get(state?.spans.at(-1)?.segment as never)
    const tokens = state?.spans.reduce((sum, span) => sum + span.tokens, 0) ?? 0
    return { state: state?.id ?? this.id<StateId>([]), epoch: this.amount(1), tokens: this.amount(tokens), digest: segment?.digest ?? this.of(NONSENSE) }
  }

  claims(): Claims {
    return {
      identity: { source: this.of(['explicit', 'native', 'inferred', 'anonymous']), confidence: this.amount(100) },
      program: this.maybe(this.program), thread: this.maybe(this.of(['main', 'one', ...NONSENSE])), parent: this.maybe(this.program),
      node: this.maybe(this.node), parents: this.pick() % 3 === 0 ? [this.node] : [],
      session: this.maybe(this.of(['s0', 's1', ...NONSENSE])), epoch: this.maybe(this.amount(1)), final: this.pick() % 5 === 0,
      toolResults: this.pick() % 2 === 0 ? [] : [this.toolCall()], kind: this.of(NONSENSE),
      ...(this.pick() % 8 === 0 ? { beside: this.call } : {}),
    }
  }
}

const MAKERS: { readonly [Kind in Input['kind']]: (hand: Hand) => Extract<Input, { kind: Kind }> } = {
  submit: (hand) => ({
    kind: 'submit', tenant: hand.tenant, call: hand.pick() % 4 === 0 ? hand.call : `w${hand.core.seq}-${hand.pick()}` as CallId, body: hand.of(NONSENSE) as never,
    freshProgram: `w${hand.core.seq}`, claims: hand.claims(), model: hand.of(['m', 'm', 'm', 'gpt-9']), digest: hand.of(['d1', 'd2', `w${hand.core.seq}`]),
    seed: hand.amount(), promptTokensEstimate: hand.amount(), maxTokens: hand.amount(), exactResume: hand.maybe(true),
    priorityClass: hand.of(['default', 'interactive', ...NONSENSE]), deadlineUs: hand.maybe(hand.amount()),
  }),
  measured: (hand) => ({
    kind: 'measured', call: hand.call, promptTokens: hand.amount(), matched: hand.maybe({ record: hand.call, tokens: hand.amount() }), renderingWon: null,
  }),
  measureFailed: (hand) => ({ kind: 'measureFailed', call: hand.call, code: hand.of(NONSENSE), why: '' }),
  declareProgram: (hand) => ({
    kind: 'declareProgram', tenant: hand.tenant, program: hand.program, session: hand.maybe(hand.of(NONSENSE)), agent: '',
    priorityClass: hand.of(['default', ...NONSENSE]), deadlineUs: hand.maybe(hand.amount()), parent: hand.maybe(hand.program), steps: hand.maybe(hand.amount()),
  }),
  finishProgram: (hand) => ({ kind: 'finishProgram', tenant: hand.tenant, program: hand.program }),
  cancelProgram: (hand) => ({ kind: 'cancelProgram', tenant: hand.tenant, program: hand.program }),
  cancelThread: (hand) => ({ kind: 'cancelThread', tenant: hand.tenant, program: hand.program, thread: hand.thread }),
  cancelCall: (hand) => ({ kind: 'cancelCall', tenant: hand.tenant, program: hand.program, call: hand.node }),
  reportGraph: (hand) => ({
    kind: 'reportGraph', tenant: hand.tenant, program: hand.program, epoch: hand.maybe(hand.amount(1)), parent: hand.pick() % 4 === 0 ? hand.program : null,
    forks: hand.pick() % 2 === 0 ? [] : [{ thread: hand.thread, from: hand.thread }], nodes: hand.nodes(),
    outcomes: hand.pick() % 2 === 0 ? [] : [{ node: hand.node, outcome: hand.of(['completed', 'completed', 'failed', 'cancelled']), why: '' }],
  }),
  commitEffect: (hand) => ({ kind: 'commitEffect', tenant: hand.tenant, program: hand.program, toolCall: hand.toolCall(), record: hand.maybe(hand.of(NONSENSE)) }),
  hangUp: (hand) => ({ kind: 'hangUp', call: hand.call }),
  progress: (hand) => {
    const { engine, reign, ...from } = hand.from()
    return { kind: 'progress', engine, reign, speeds: hand.maybe(hand.speeds()), calls: [{ ...from, report: hand.report() }] }
  },
  paused: (hand) => ({ kind: 'paused', ...hand.from(), report: hand.report() }),
  finished: (hand) => ({
    kind: 'finished', ...hand.from(), finish: hand.of(['stop', 'length', 'tool_calls']), report: hand.report(),
    parts: { waitUs: hand.amount(), recomputeUs: 0, prefillUs: 0, decodeUs: 0 },
    spans: [{ tokens: hand.amount(), origin: 'prefilled' as const, digest: '' }, { tokens: hand.amount(), origin: 'decoded' as const, digest: '' }].slice(hand.pick() % 3),
    toolCalls: hand.toolCalls(), toolEffect: hand.of(['read', 'idempotent', 'irreversible']), resume: 'none',
  }),
  attemptFailed: (hand) => ({ kind: 'attemptFailed', ...hand.from(), why: '', retryable: hand.pick() % 3 !== 0 }),
  moveDone: (hand) => ({ kind: 'moveDone', ...hand.mover(), bytes: hand.amount(), digest: '', copyUs: hand.amount() }),
  moveFailed: (hand) => ({ kind: 'moveFailed', ...hand.mover(), why: '', sourceLost: hand.pick() % 2 === 0 }),
  engineJoined: (hand) => ({
    kind: 'engineJoined', engine: hand.id([...hand.core.engines.keys(), 'e7' as EngineId]), reign: hand.amount(hand.core.reign),
    capabilities: hand.capabilities(), speeds: hand.speeds(), ...(hand.pick() % 2 === 0 ? {} : { inventory: [hand.held(), hand.held()] }),
  }),
  engineLost: (hand) => ({ kind: 'engineLost', engine: hand.engine, reign: hand.amount(hand.core.reign), why: '' }),
  drainEngine: (hand) => ({ kind: 'drainEngine', engine: hand.engine, withinUs: hand.amount() }),
  undrainEngine: (hand) => ({ kind: 'undrainEngine', engine: hand.engine }),
  due: (hand) => ({ kind: 'due', timer: hand.id([...hand.core.timers.keys(), 'close:t/p0', 'expire:', 'retire:c1-s', 'detached:c1', ':']) }),
  restart: (hand) => ({ kind: 'restart', reign: hand.amount(hand.core.reign + (hand.pick() % 3)), wallOffsetUs: hand.amount(), images: [...hand.core.moves.keys(), hand.of(NONSENSE)] }),
}

export const KINDS = Object.keys(MAKERS) as readonly Input['kind'][]

export const make = (core: CoreState, plan: Plan): Input => MAKERS[plan.kind](new Hand(core, plan))

export const plans = (kinds: readonly Input['kind'][] = KINDS): fc.Arbitrary<Plan> => fc.record({
  kind: fc.constantFrom(...kinds),
  picks: fc.array(fc.nat(5_000), { minLength: 3, maxLength: 12 }),
  bad: fc.option(fc.record({ at: fc.integer({ min: 1, max: 12 }), value: fc.constantFrom(...NO_AMOUNTS) }), { freq: 2 }),
  repeats: fc.nat(2),
  aheadUs: fc.oneof(fc.constant(0), fc.integer({ min: -5_000_000, max: 5_000_000 })),
})
