/**
 * Owns the vocabulary of what was decided or learned: the durable log, the trace, the metrics source and the recovery
 * source in one. Facts are `noun.pastParticiple`. A fact carries everything `apply` needs, so replay runs no policy.
 *
 * A fact is never edited: a change of shape is a new version, and `upcast` lifts the old ones.
 */
import type { Way } from './kv/continuation.ts'
import type { Effect, EffectRemaining } from './effect.ts'
import type { DeclaredNode, Edge } from './graph/graph-state.ts'
import type { Candidate } from './policy/placement/placement.ts'
import type { Band } from './queue/bands.ts'
import type { BodyId, CallId, EngineId, InterruptId, MoveId, NodeId, ProgramId, SegmentId, SessionId, StateId, TenantId, ThreadId } from './ids.ts'
import type { AttemptParts, AttemptReport } from './input.ts'
import type { Capabilities, EngineSpeeds, FinishReason, Identity, Interrupt, Origin, Owner, Prices, StandingOrder, Tier } from './state.ts'
import type { Bytes, Granules, MicroCost, Tokens, Us } from './units.ts'

export const FACT_VERSION = 1

export type KvChoice = 'preserve' | 'offload' | 'discard'

/** One option of a residency decision, priced in one unit. */
export interface KvOption {
  readonly choice: KvChoice
  readonly cost: MicroCost
  /** Why it could not be chosen; null where it could. */
  readonly infeasible: string | null
}

export type Fact =
  // reign, programs
  | { kind: 'reign.begun'; reign: number; wallOffsetUs: Us }
  | { kind: 'shares.priced'; prices: Prices }
  | { kind: 'tenant.weighed'; tenant: TenantId; weight: number }
  | { kind: 'program.started'; program: ProgramId; tenant: TenantId; session: SessionId | null; declared: boolean; agent: string; identity: Identity; priorityClass: string; deadlineUs: Us | null; parent: ProgramId | null; steps: number | null }
  | { kind: 'program.predicted'; program: ProgramId; lowUs: Us; highUs: Us }
  | { kind: 'program.reopened'; program: ProgramId }
  // null: as it was
  | { kind: 'program.linked'; program: ProgramId; session: SessionId | null; parent: ProgramId | null }
  | { kind: 'program.completed'; program: ProgramId; provisional: boolean }
  | { kind: 'program.closed'; program: ProgramId }
  | { kind: 'program.cancelled'; program: ProgramId; epoch: number; effectsRemaining: readonly EffectRemaining[] }
  | { kind: 'program.failed'; program: ProgramId; why: string }
  | { kind: 'program.forgotten'; program: ProgramId; calls: readonly CallId[] }
  | { kind: 'program.refused'; tenant: TenantId; program: string; code: string; why: string }
  // declared graphs
  // of a report, or brought along by a call
  | { kind: 'graph.reported'; program: ProgramId; by: CallId | null; nodes: readonly DeclaredNode[]; grown: readonly { node: NodeId; parents: readonly Edge[] }[] }
  | { kind: 'node.committed'; program: ProgramId; node: NodeId }
  | { kind: 'node.failed'; program: ProgramId; node: NodeId; why: string }
  | { kind: 'node.cancelled'; program: ProgramId; node: NodeId; why: string }
  | { kind: 'thread.forked'; program: ProgramId; thread: ThreadId; from: ThreadId; state: StateId | null; tokens: Tokens }
  | { kind: 'thread.joined'; program: ProgramId; node: NodeId; committed: readonly NodeId[] }
  | { kind: 'thread.cancelled'; program: ProgramId; thread: ThreadId; why: string; effectsRemaining: readonly EffectRemaining[] }
  // calls
  | { kind: 'call.arrived'; call: CallId; program: ProgramId; thread: ThreadId; model: string; epoch: number; band: Band; payer: TenantId; identity: Identity; digest: string; body: BodyId; seed: number; maxTokens: Tokens; exactResume: boolean; promptTokens: Tokens; parents: readonly CallId[]; node: NodeId | null; answers: InterruptId | null; final: boolean; toolResults: readonly string[] }
  | { kind: 'call.attached'; call: CallId; as: CallId }
  | { kind: 'call.replayed'; call: CallId; as: CallId }
  | { kind: 'call.refused'; call: CallId; code: string; why: string }
  | { kind: 'call.measured'; call: CallId; promptTokens: Tokens; reusable: { state: StateId; tokens: Tokens } | null; renderingWon: string | null }
  | { kind: 'call.ready'; call: CallId; level: number; tie: number }
  | { kind: 'call.placed'; call: CallId; engine: EngineId; way: Way; candidates: readonly Candidate[] }
  | { kind: 'call.scheduled'; call: CallId; attempt: number; engine: EngineId; state: StateId; baseTokens: Tokens; keepTokens: Tokens; granules: Granules; recomputeTokens: Tokens; forcedTokens: Tokens; replay: 'exact' | 'plain'; rank: number; expectedWorkUs: Us }
  | { kind: 'call.progressed'; call: CallId; attempt: number; report: AttemptReport }
  | { kind: 'grant.withheld'; call: CallId; engine: EngineId; granules: Granules }
  | { kind: 'call.granted'; call: CallId; granules: Granules }
  | { kind: 'call.demoted'; call: CallId; level: number; tie: number }
  | { kind: 'call.promoted'; call: CallId; level: number; tie: number; waitedUs: Us; servedUs: Us }
  | { kind: 'call.aged'; call: CallId; passed: boolean; level: number; tie: number; waitedUs: Us }
  | { kind: 'call.reserved'; call: CallId; engine: EngineId; granules: Granules; waitedUs: Us }
  | { kind: 'boost.given'; call: CallId; level: number; tie: number; slackUs: Us }
  | { kind: 'boost.withheld'; call: CallId; why: string }
  // null: its engine is drained
  | { kind: 'call.preempted'; call: CallId; engine: EngineId; by: CallId | null; gainUs: Us; restsUntilUs: Us; why: string }
  | { kind: 'call.paused'; call: CallId; report: AttemptReport }
  | { kind: 'call.retried'; call: CallId; attempt: number; why: string }
  | { kind: 'call.detached'; call: CallId }
  | { kind: 'call.completed'; call: CallId; attempt: number; finish: FinishReason; report: AttemptReport; parts: AttemptParts; spans: readonly { segment: SegmentId; tokens: Tokens; origin: Origin; digest: string }[]; toolCalls: readonly { id: string; name: string }[]; resume: 'none' | 'exact' | 'recomputed'; supersedes: CallId | null }
  | { kind: 'call.cancelled'; call: CallId; why: string }
  | { kind: 'call.failed'; call: CallId; code: string; why: string }
  // interrupts
  | { kind: 'interrupt.started'; interrupt: InterruptId; call: CallId; thread: ThreadId; program: ProgramId; epoch: number; of: Interrupt['kind']; toolClass: string; toolCallIds: readonly string[]; effect: Effect; effectKey: string }
  | { kind: 'interrupt.predicted'; interrupt: InterruptId; lowUs: Us; highUs: Us }
  | { kind: 'interrupt.completed'; interrupt: InterruptId; by: CallId; waitUs: Us }
  | { kind: 'interrupt.expired'; interrupt: InterruptId }
  | { kind: 'interrupt.cancelled'; interrupt: InterruptId; program: ProgramId; effect: Effect; effectKey: string; toolCallIds: readonly string[] }
  // null: its results came back, and its runtime said nothing of it
  | { kind: 'effect.committed'; program: ProgramId; interrupt: InterruptId; effectKey: string; toolCall: string; record: string | null }
  // KV; `dropImage` names an image file that nobody refers to any more
  | { kind: 'kv.decided'; state: StateId; interrupt: InterruptId | null; choice: KvChoice; options: readonly KvOption[]; expectedWaitUs: Us; reconsiderAtUs: Us | null; because: string; performed: boolean }
  | { kind: 'kv.preserved'; state: StateId; engine: EngineId }
  | { kind: 'kv.offload.begun'; move: MoveId; state: StateId; engine: EngineId; tokens: Tokens; reservedBytes: Bytes }
  | { kind: 'kv.onboard.begun'; move: MoveId; state: StateId; engine: EngineId; tokens: Tokens; reservedGranules: Granules; forCall: CallId | null; expectedWorkUs: Us }
  | { kind: 'kv.moved'; move: MoveId; state: StateId; engine: EngineId; to: Tier; bytes: Bytes; digest: string; copyUs: Us; dropImage: MoveId | null }
  | { kind: 'kv.move.failed'; move: MoveId; state: StateId; engine: EngineId; to: Tier; why: string; sourceLost: boolean; dropImage: MoveId | null }
  | { kind: 'kv.offloaded'; state: StateId; bytes: Bytes }
  | { kind: 'kv.resume.ready'; state: StateId; call: CallId; engine: EngineId }
  | { kind: 'kv.discarded'; state: StateId; tier: Tier; tokens: Tokens; why: string; engine: EngineId | null; dropImage: MoveId | null }
  | { kind: 'kv.settled'; state: StateId; owner: Owner }
  | { kind: 'kv.found'; state: StateId; engine: EngineId; tokens: Tokens; granules: Granules }
  | { kind: 'kv.unclaimed'; engine: EngineId; states: readonly { state: StateId; why: string }[] }
  | { kind: 'kv.adopted'; state: StateId; thread: ThreadId; session: SessionId }
  | { kind: 'kv.forgotten'; state: StateId; record: CallId | null }
  // engines
  | { kind: 'engine.joined'; engine: EngineId; capabilities: Capabilities; speeds: EngineSpeeds }
  | { kind: 'engine.progress'; engine: EngineId; speeds: EngineSpeeds }
  | { kind: 'engine.ordered'; engine: EngineId; orders: readonly StandingOrder[] }
  | { kind: 'engine.lost'; engine: EngineId; why: string }
  | { kind: 'engine.drain.begun'; engine: EngineId }
  | { kind: 'engine.drain.ended'; engine: EngineId }
  // time, and what changed nothing
  | { kind: 'timer.set'; timer: string; atUs: Us }
  | { kind: 'timer.cleared'; timer: string }
  | { kind: 'result.ignored'; input: string; subject: string; why: string }

/** A fact as it stands in the log. */
export interface Logged {
  readonly seq: number
  readonly atUs: Us
  readonly version: number
  readonly fact: Fact
}

/**
 * Barrier facts are durable before they are performed or shown; flow facts may be performed first and ride the next
 * group commit: losing one equals losing an attempt.
 */
const FLOW: ReadonlySet<Fact['kind']> = new Set([
  'program.predicted', 'interrupt.predicted', 'call.measured', 'call.ready', 'call.placed', 'call.scheduled', 'call.progressed', 'call.granted', 'grant.withheld', 'call.demoted', 'call.promoted', 'call.aged', 'call.reserved', 'boost.given', 'boost.withheld', 'call.preempted',
  'call.paused', 'kv.decided', 'kv.preserved', 'kv.offload.begun', 'kv.onboard.begun', 'kv.resume.ready', 'engine.progress',
  'engine.ordered', 'timer.set', 'timer.cleared', 'result.ignored', 'kv.unclaimed',
] satisfies Fact['kind'][])

export const isBarrier = (fact: Fact): boolean => !FLOW.has(fact.kind)
