/**
 * Owns the vocabulary of what may come in. Inputs are verbs. Ids, seeds and wall time that we choose come with them from
 * the driver's ports; what a client or an engine says is a claim, checked by `step`, never asserted.
 */
import type { JoinRule, NodeKind } from './graph/graph-state.ts'
import type { BodyId, CallId, EngineId, MoveId, StateId, TenantId } from './ids.ts'
import type { Effect } from './effect.ts'
import type { Capabilities, EngineSpeeds, FinishReason, Identity, Ledger, Origin } from './state.ts'
import type { Bytes, Tokens, Us } from './units.ts'

export type Input =
  | Submit
  | Measured
  | MeasureFailed
  | DeclareProgram
  | FinishProgram
  | CancelProgram
  | CancelThread
  | CancelCall
  | ReportGraph
  | CommitEffect
  | HangUp
  | Progress
  | Paused
  | Finished
  | AttemptFailed
  | MoveDone
  | MoveFailed
  | EngineJoined
  | EngineLost
  | DrainEngine
  | UndrainEngine
  | Due
  | Restart

/** Who a request says it belongs to; raw ids as the client wrote them. */
export interface Claims {
  readonly identity: Identity
  readonly program: string | null
  readonly thread: string | null
  readonly session: string | null
  /** The program whose sub-agent this one is; of a call that names no program, the session whose newest program it is. */
  readonly parent: string | null
  /** The node of its program's graph that this call is, and the nodes or calls that it waits for. */
  readonly node: string | null
  readonly parents: readonly string[]
  readonly epoch: number | null
  /** The last call of its program, says the runtime. */
  readonly final: boolean
  /** Tool call ids whose results this request brings after the last assistant message. */
  readonly toolResults: readonly string[]
  readonly kind: string
  /** The first choice of the request that this call is another choice of: it continues what that one continues. */
  readonly beside?: CallId
}

/** A call arrives. Answered by `call.arrived`, `call.attached` (a retry of an open call), `call.replayed` or `call.refused`. */
export interface Submit {
  readonly kind: 'submit'
  readonly tenant: TenantId
  readonly call: CallId
  readonly body: BodyId
  /** Raw id for a program that has none. */
  readonly freshProgram: string
  readonly claims: Claims
  readonly model: string
  readonly digest: string
  readonly seed: number
  readonly promptTokensEstimate: Tokens
  readonly maxTokens: Tokens
  readonly exactResume: boolean | null
  readonly priorityClass: string
  readonly deadlineUs: Us | null
}

/** The engine's tokenizer has sized a call. `matched`: the State whose record the prompt continues, and how far. */
export interface Measured {
  readonly kind: 'measured'
  readonly call: CallId
  readonly promptTokens: Tokens
  readonly matched: { readonly record: CallId; readonly tokens: Tokens } | null
  /** Why the echo was not taken as committed tokens, where it was not. */
  readonly renderingWon: string | null
}

export interface MeasureFailed { readonly kind: 'measureFailed'; readonly call: CallId; readonly code: string; readonly why: string }

export interface DeclareProgram {
  readonly kind: 'declareProgram'
  readonly tenant: TenantId
  readonly program: string
  readonly session: string | null
  readonly agent: string
  readonly priorityClass: string
  readonly deadlineUs: Us | null
  /** The program whose sub-agent it is. */
  readonly parent: string | null
  /** How many calls it will make, where that is known. */
  readonly steps: number | null
}
export interface FinishProgram { readonly kind: 'finishProgram'; readonly tenant: TenantId; readonly program: string }
export interface CancelProgram { readonly kind: 'cancelProgram'; readonly tenant: TenantId; readonly program: string }

export interface CancelThread { readonly kind: 'cancelThread'; readonly tenant: TenantId; readonly program: string; readonly thread: string }
/** `call`: its id, or the name of its node; a node whose call has not come yet is cancelled all the same. */
export interface CancelCall { readonly kind: 'cancelCall'; readonly tenant: TenantId; readonly program: string; readonly call: string }

/** A new thread that continues what another has committed. */
export interface ForkReport { readonly thread: string; readonly from: string }

export interface NodeReport {
  readonly node: string
  readonly kind: NodeKind
  /** Where it runs, or will; null: not known. */
  readonly thread: string | null
  /** Nodes, or calls by their id. Of a join that is open more may be told later. */
  readonly parents: readonly { readonly node: string; readonly edge: 'data' | 'control' }[]
  /** For a JOIN, and for nothing else. */
  readonly join: JoinRule | null
  readonly serviceUs: Us | null
}

/** How a node ended that does not run here; an LLM node is completed by its call, a join by its rule. */
export interface OutcomeReport { readonly node: string; readonly outcome: 'completed' | 'failed' | 'cancelled'; readonly why: string }

/** What a runtime tells of its program's graph: taken whole, or refused by name (`program.refused`) and nothing changed. */
export interface ReportGraph {
  readonly kind: 'reportGraph'
  readonly tenant: TenantId
  readonly program: string
  readonly epoch: number | null
  /** The program whose sub-agent it is, learnt late. */
  readonly parent: string | null
  readonly forks: readonly ForkReport[]
  readonly nodes: readonly NodeReport[]
  readonly outcomes: readonly OutcomeReport[]
}

/** A tool did what it does to the world; `record`: what its runtime keeps about it, such as the number of a payment. */
export interface CommitEffect {
  readonly kind: 'commitEffect'
  readonly tenant: TenantId
  readonly program: string
  readonly toolCall: string
  readonly record: string | null
}

/** The client of a call is gone: its place, sequence and cells are freed. */
export interface HangUp { readonly kind: 'hangUp'; readonly call: CallId }

/** The operator wants the engine empty: what runs there has so long. */
export interface DrainEngine { readonly kind: 'drainEngine'; readonly engine: EngineId; readonly withinUs: Us }
export interface UndrainEngine { readonly kind: 'undrainEngine'; readonly engine: EngineId }

/** Who speaks, and from which life; anything older is ignored with a reason. */
interface FromEngine {
  readonly engine: EngineId
  readonly reign: number
}
export interface FromAttempt extends FromEngine {
  readonly call: CallId
  readonly attempt: number
  /** Which run of the attempt: how often its call had been paused before it began. */
  readonly run: number
  readonly epoch: number
}

/** Counters are totals of the attempt, so that a lost or doubled report is harmless. */
export interface AttemptReport {
  readonly service: Ledger
  /** Fed into the State in all, by origin; what follows the State's last span. */
  readonly tailPrefilled: Tokens
  readonly tailDecoded: Tokens
  readonly outputTokens: Tokens
  readonly recomputedTokens: Tokens
}

export interface Progress extends FromEngine {
  readonly kind: 'progress'
  readonly speeds: EngineSpeeds | null
  readonly calls: readonly {
    readonly call: CallId; readonly attempt: number; readonly run: number; readonly epoch: number; readonly report: AttemptReport
  }[]
}

/** The engine stopped a call between tokens, as told; its State stays on device, suspended. */
export interface Paused extends FromAttempt { readonly kind: 'paused'; readonly report: AttemptReport }

/** Lengths of an attempt's parts in the engine; they add up to its time there. */
export interface AttemptParts {
  readonly waitUs: Us
  readonly recomputeUs: Us
  readonly prefillUs: Us
  readonly decodeUs: Us
}

export interface Finished extends FromAttempt {
  readonly kind: 'finished'
  readonly finish: FinishReason
  readonly report: AttemptReport
  readonly parts: AttemptParts
  /** What follows the `baseTokens` the call was started with, in order, as it stays in the State. */
  readonly spans: readonly { readonly tokens: Tokens; readonly origin: Origin; readonly digest: string }[]
  /** Set where finish is `tool_calls`. */
  readonly toolCalls: readonly { readonly id: string; readonly name: string }[]
  readonly toolEffect: Effect
  readonly resume: 'none' | 'exact' | 'recomputed'
}

export interface AttemptFailed extends FromAttempt {
  readonly kind: 'attemptFailed'
  readonly why: string
  readonly retryable: boolean
}

/** A copy is done and its digest verified; nothing was published yet. */
export interface MoveDone extends FromEngine {
  readonly kind: 'moveDone'
  readonly move: MoveId
  readonly bytes: Bytes
  readonly digest: string
  readonly copyUs: Us
}
export interface MoveFailed extends FromEngine {
  readonly kind: 'moveFailed'
  readonly move: MoveId
  readonly why: string
  /** The source image itself is bad: it must never be tried again. */
  readonly sourceLost: boolean
}

/** A State that an engine which was cut off still holds, idle. */
export interface Held {
  readonly state: StateId
  /** Of the call that left it. */
  readonly epoch: number
  /** Tokens fed. */
  readonly tokens: Tokens
  /** Chained over all tokens and origins up to there, as in the spans that were told. */
  readonly digest: string
}

export interface EngineJoined {
  readonly kind: 'engineJoined'
  readonly engine: EngineId
  readonly reign: number
  readonly capabilities: Capabilities
  readonly speeds: EngineSpeeds
  /** What its device still holds of an earlier time; absent: nothing. */
  readonly inventory?: readonly Held[]
}
export interface EngineLost { readonly kind: 'engineLost'; readonly engine: EngineId; readonly reign: number; readonly why: string }

/** A timer set by the core came due. */
export interface Due { readonly kind: 'due'; readonly timer: string }

/** The control plane starts: a higher reign, and which host images verified. */
export interface Restart {
  readonly kind: 'restart'
  readonly reign: number
  readonly wallOffsetUs: Us
  readonly images: readonly string[]
}
