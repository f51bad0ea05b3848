/**
 * Owns the shape of everything the core knows. Plain data only (Map, Set, array, literal, integer): no class, function,
 * Date or promise; `asleep/asleep.ts` keeps programs of which nothing is asked as text. `apply.ts` is the only writer.
 *
 * Terminology
 *   Tenant     who is billed and limited; comes from the credential
 *   Session    what a harness calls a conversation; holds affinity and reusable prefixes, not service
 *   Program    everything done for one user goal
 *   Thread     a chain of calls inside a program that runs one after another
 *   Call       one logical model invocation; exactly one effective commit
 *   Attempt    one try at a call
 *   Epoch      a program's generation number; a result of an older one changes nothing
 *   Interrupt  the wait between a call that ended in tool calls and the call that continues it
 *   Engine     something that runs calls and owns device KV; obeys a reign
 *   Segment    the KV of an immutable span of tokens and their origins
 *   State      what a thread needs to continue: spans of Segments, a private tail, a continuation
 *   Replica    where bytes of a State are, and up to which token
 *   Owner      who may continue a State
 *   Granule    the unit in which device memory is given out
 *   Service    model execution received, in two counters
 */
import type {
  CallId, EngineId, InterruptId, MoveId, NodeId, ProgramId, SegmentId, SessionId, StateId, TenantId, ThreadId,
} from './ids.ts'
import type { Turns } from './queue/turn-state.ts'
import type { Bytes, Cells, Granules, Tokens, Us } from './units.ts'
import type { Band, BandWeights, ReadyQueue } from './queue/bands.ts'
import type { CoreConfig } from './config.ts'
import type { Effect } from './effect.ts'
import type { Graph } from './graph/graph-state.ts'
import type { CallStanding, LearnedOfAll, LearnedOfTenant, Standing } from './learned.ts'
import type { Interval } from './predict/trust.ts'

export interface CoreState {
  /** Frozen; decides, but is never read by `apply`, so a changed configuration cannot change history. */
  readonly config: CoreConfig
  /** Facts applied so far; also the unique end of every order. */
  seq: number
  /** Fencing number of this control plane; every command to an engine carries it (invariant 15). */
  reign: number
  /** Monotonic time of the last fact. */
  nowUs: Us
  /** Wall time minus monotonic time, as last recorded. */
  wallOffsetUs: Us
  readonly tenants: Map<TenantId, Tenant>
  readonly sessions: Map<SessionId, Session>
  readonly programs: Map<ProgramId, Program>
  readonly threads: Map<ThreadId, Thread>
  /** Of programs whose runtime reports one. */
  readonly graphs: Map<ProgramId, Graph>
  readonly calls: Map<CallId, Call>
  readonly interrupts: Map<InterruptId, Interrupt>
  readonly states: Map<StateId, State>
  readonly segments: Map<SegmentId, Segment>
  /** Token records that several States continue, after a fork: how many beyond the first. */
  readonly sharedRecords: Map<CallId, number>
  readonly moves: Map<MoveId, Move>
  readonly engines: Map<EngineId, Engine>
  readonly host: HostTier
  /** Ready calls of each model, and who has had how much of it. */
  readonly queues: Map<string, ReadyQueue>
  /** What shares are charged by, as last set. */
  prices: Prices
  /** Programs that are over and whose names are still kept, the longest over first. */
  readonly over: Set<ProgramId>
  /** Calls whose client is gone and may come back, the longest gone first. */
  readonly detached: Set<CallId>
  /** Programs that have ended and may be reopened, the longest ended first. */
  readonly provisional: Set<ProgramId>
  /** States whose continuation is on host, the longest there first. */
  readonly hosted: Set<StateId>
  /** What bends the order. */
  readonly turns: Turns
  /** Calls neither committed nor ended. */
  openCalls: number
  /** How a retry is known: the last calls of digests of that number. */
  readonly digests: Map<number, CallId | readonly CallId[]>
  /** Timers set and not yet due, by name. */
  readonly timers: Map<string, Us>
  readonly learned: LearnedOfAll
  /** Tool call ids we emitted and nobody answered, or who answered them; keyed `tenant/toolCallId`. */
  readonly toolCalls: Map<string, ToolCallLink>
}

// ---------------------------------------------------------------- identity

export interface Tenant {
  readonly id: TenantId
  /** Its share beside the other tenants of a band. */
  weight: number
  service: Ledger
  /** Programs of it that are not over, and calls of it neither committed nor ended. */
  livePrograms: number
  openCalls: number
  readonly learned: LearnedOfTenant
}

/** What `apply` needs to charge; set by a fact, since it never reads the configuration. */
export interface Prices {
  readonly bands: BandWeights
  /** All of an engine's device memory for a second, in millionths of an engine-second. */
  readonly deviceSecondMicro: number
  /** A mebibyte on host for a second, in millionths of an engine-second. */
  readonly hostMebibyteSecondMicro: number
}

export interface Session {
  readonly id: SessionId
  readonly tenant: TenantId
  /** The newest program of it. */
  program: ProgramId | null
  /** Reusable prefixes left by ended programs, oldest first. */
  states: StateId[]
}

export type IdentitySource = 'explicit' | 'native' | 'derived' | 'inferred' | 'anonymous'

export interface Identity {
  readonly source: IdentitySource
  /** 0 to 100. */
  readonly confidence: number
}

/** `ended` is provisional for an undeclared program: a continuing call reopens it until it is closed. */
type ProgramStage =
  | { readonly kind: 'open' }
  /** `servedUs`, `callsDone`: what its end was learned with, for what its sub-agents still do is added to it. */
  | { readonly kind: 'ended'; readonly atUs: Us; readonly provisional: boolean; readonly servedUs: Us; readonly callsDone: number }
  | { readonly kind: 'cancelled'; readonly atUs: Us }
  | { readonly kind: 'failed'; readonly atUs: Us; readonly why: string }

export interface Program {
  readonly id: ProgramId
  readonly tenant: TenantId
  readonly session: SessionId | null
  readonly declared: boolean
  /** What sort of agent it is; what is learned, is learned by kind. */
  readonly kind: string
  /** Order of arrival among programs; unique. */
  readonly seq: number
  readonly arrivedUs: Us
  /** Of its last call's arrival or end. */
  lastUs: Us
  readonly identity: Identity
  readonly priorityClass: string
  readonly deadlineUs: Us | null
  /** The program whose sub-agent it is; fairness folds to the top of the chain (`rootOf`). */
  parent: ProgramId | null
  /** Programs in memory that name it as their parent, the longest so first; it is not forgotten before them. */
  children: readonly ProgramId[]
  /** How many calls it will make, says its runtime; null where it does not. */
  readonly steps: number | null
  /** Results carrying an older one change nothing (invariant 3). */
  epoch: number
  stage: ProgramStage
  threads: readonly ThreadId[]
  calls: readonly CallId[]
  /** How many of them are neither committed nor ended. */
  openCalls: number
  /** Never decreases (invariant 12). */
  ledger: Ledger
  readonly standing: Standing
  /** A call that its runtime said is the last has committed: it ends once nothing of it is open. */
  final: boolean
  /** The service that was expected of it in all when it started; null: nothing was. */
  expected: Interval | null
}

export interface Thread {
  readonly id: ThreadId
  readonly program: ProgramId
  readonly forkedFrom: ThreadId | null
  /** No call of it runs any more, and no new one may come. */
  cancelled: boolean
  /** The call under way, if any: the chain runs one after another. */
  active: CallId | null
  /** Calls of this thread that wait for the active one, oldest first. */
  waiting: readonly CallId[]
  /** The last committed call. */
  last: CallId | null
  interrupt: InterruptId | null
  state: StateId | null
}

// ---------------------------------------------------------------- service

/** Service in two integers (DESIGN 5). */
export interface Service {
  /** Wall time of the iterations a call was in: what PLAS and ATLAS read. */
  residentUs: Us
  /** The iterations' time divided over their members: sums to the engine's busy time. */
  workUs: Us
}

/** Orders read useful + retried; recomputing what we evicted is the engine's overhead and ages nobody. */
export interface Ledger {
  useful: Service
  retried: Service
  recomputed: Service
}

// ---------------------------------------------------------------- calls

export type FinishReason = 'stop' | 'length' | 'tool_calls'

export type CallStage =
  /** Its place in line is fixed, its size an estimate. */
  | { readonly kind: 'arrived' }
  /** Sized by the engine's tokenizer; waits for its parents. */
  | { readonly kind: 'measured' }
  /** In the queue. */
  | { readonly kind: 'ready'; readonly sinceUs: Us }
  /** Its memory on `engine` is reserved and its State is being brought there. */
  | { readonly kind: 'resuming'; readonly engine: EngineId; readonly move: MoveId; readonly sinceUs: Us }
  | { readonly kind: 'running'; readonly engine: EngineId; readonly sinceUs: Us }
  /** Told to pause; still holds its place on the engine. */
  | { readonly kind: 'pausing'; readonly engine: EngineId; readonly sinceUs: Us }
  /** Its client is gone and nothing was committed; a retry brings it back. */
  | { readonly kind: 'detached'; readonly sinceUs: Us }
  | { readonly kind: 'committed'; readonly atUs: Us; readonly finish: FinishReason }
  | { readonly kind: 'cancelled'; readonly atUs: Us }
  | { readonly kind: 'failed'; readonly atUs: Us; readonly why: string }

export interface Call {
  readonly id: CallId
  readonly program: ProgramId
  readonly thread: ThreadId
  readonly model: string
  readonly epoch: number
  /** Order of arrival among calls; unique. */
  readonly seq: number
  readonly arrivedUs: Us
  /** The class band it waits in. */
  readonly band: Band
  /** The tenant whose share it waits in and is charged to; in `observe` one for all, since an engine knows no tenants. */
  readonly payer: TenantId
  /** Digest of credential and body: the same while unanswered is a retry. */
  readonly digest: string
  /** Drawn once, kept by every attempt. */
  readonly seed: number
  readonly maxTokens: Tokens
  readonly exactResume: boolean
  /** Calls before it in its thread. */
  readonly parents: readonly CallId[]
  /** What it is in its program's declared graph, where it is part of one. */
  node: NodeId | null
  /** The interrupt that this call's tool results end. */
  readonly answers: InterruptId | null
  attempt: number
  stage: CallStage
  /** Estimated until measured, then the engine's count. */
  promptTokens: Tokens
  measured: boolean
  /** Leading tokens that the prompt has in common with the committed tokens of the thread's State, or of an adopted one. */
  reusable: { readonly state: StateId; readonly tokens: Tokens } | null
  /** Tokens generated and journalled so far, over all attempts of this call. */
  outputTokens: Tokens
  /** Of the attempt under way: tokens it must feed again before it comes to anything new. */
  recomputeDue: Tokens
  /** Of these, how many it has fed by now. */
  recomputeDone: Tokens
  /** Tokens fed again in this call because we had evicted them. */
  recomputedTokens: Tokens
  /** Work its shares were charged for ahead and that is not done yet. */
  prepaidUs: Us
  /** This attempt's service as last reported; folded into the ledgers as it grows. */
  attemptService: Ledger
  ledger: Ledger
  /** When it first was told to run; null before. */
  startedUs: Us | null
  /** Times it was paused; with the attempt, the number of the run that engines answer for. */
  preemptions: number
  /** Its place among ready calls, by the order policy: level, then tie, then `seq`. Smaller is better. */
  level: number
  tie: number
  standing: CallStanding
  /** The runtime says it is the last of its program. */
  readonly final: boolean
  /** Tool calls that its output shows, whole or cut by its token limit. */
  toolCallIds: readonly string[]
}

type ToolCallLink = { readonly call: CallId; readonly answeredBy: CallId | null }

// ---------------------------------------------------------------- interrupts

export interface Interrupt {
  readonly id: InterruptId
  readonly call: CallId
  readonly thread: ThreadId
  readonly program: ProgramId
  readonly epoch: number
  readonly kind: 'TOOL' | 'CODE' | 'HUMAN'
  /** The class whose waits it is learned with: the tools' names, sorted and joined. */
  readonly toolClass: string
  readonly toolCallIds: readonly string[]
  readonly effect: Effect
  /** The same for every retry of its call: what an outside system tells a repetition by. */
  readonly effectKey: string
  /** Tool calls known to be done, oldest first, with what their runtime keeps about them. */
  readonly commits: { readonly toolCall: string; readonly record: string | null; readonly atUs: Us }[]
  readonly startedUs: Us
  /** How long it was expected to last when it started; null: nothing was. */
  expected: Interval | null
  stage:
    | { readonly kind: 'waiting' }
    | { readonly kind: 'completed'; readonly atUs: Us; readonly by: CallId }
    | { readonly kind: 'expired'; readonly atUs: Us }
    | { readonly kind: 'cancelled'; readonly atUs: Us }
}

// ---------------------------------------------------------------- KV

/** How a token was fed: given (in a run of two or more) or generated (alone). E1: a State depends on nothing else. */
export type Origin = 'prefilled' | 'decoded'

interface Segment {
  readonly id: SegmentId
  readonly tenant: TenantId
  readonly origin: Origin
  readonly tokens: Tokens
  /** Chained over all tokens and origins up to this Segment's end. */
  readonly digest: string
  refs: number
}

export type Owner =
  /** Private to a program: a suspended or active State. */
  | { readonly kind: 'thread'; readonly thread: ThreadId }
  /** A reusable prefix of (tenant, session). */
  | { readonly kind: 'session'; readonly session: SessionId }
  /** Nobody: freed as soon as transfers in flight are quiet. */
  | { readonly kind: 'nobody' }

export type Tier = 'device' | 'host'

/** Where the continuation is. */
type Residence =
  | { readonly kind: 'active'; readonly engine: EngineId; readonly call: CallId }
  | { readonly kind: 'suspended'; readonly tier: Tier }
  | { readonly kind: 'moving'; readonly move: MoveId }
  /** Tokens only: the next call recomputes. */
  | { readonly kind: 'gone' }

export interface DeviceReplica {
  readonly engine: EngineId
  /** Since when it holds so many granules: what its shares are charged from. */
  readonly sinceUs: Us
  readonly tokens: Tokens
  readonly granules: Granules
}

export interface HostReplica {
  readonly sinceUs: Us
  /** The move that wrote the image; its name. */
  readonly image: MoveId
  readonly tokens: Tokens
  readonly bytes: Bytes
  /** Of the whole image; checked before anyone reads a byte of it. */
  readonly digest: string
  /** Only an engine with this key can read it. */
  readonly imageKey: string
}

export interface State {
  readonly id: StateId
  readonly tenant: TenantId
  readonly model: string
  owner: Owner
  residence: Residence
  /** Immutable spans, in order; the last may be cut (`tokens` below its Segment's own). */
  spans: { readonly segment: SegmentId; readonly origin: Origin; readonly tokens: Tokens }[]
  /** Fed since the last span and not yet a Segment: the call under way. */
  tail: { prefilled: Tokens; decoded: Tokens }
  device: DeviceReplica | null
  host: HostReplica | null
  /** The committed call whose token record continues it; null before the first commit. */
  record: CallId | null
  lastUsedUs: Us
  /** When it became idle; what a wait is measured from. */
  idleSinceUs: Us
  /** The call that fed it again otherwise than it was committed: no other may go on from that. Absent: it is as committed. */
  plainFor?: CallId
}

/** A two-phase move: target reserved, owner keeps; then `kv.moved`, or `kv.move.failed` and the reservation is dropped. */
export interface Move {
  readonly id: MoveId
  readonly state: StateId
  readonly engine: EngineId
  readonly from: Tier
  readonly to: Tier
  readonly tokens: Tokens
  /** Reserved in the target: granules on device, bytes on host. */
  readonly reservedGranules: Granules
  readonly reservedBytes: Bytes
  readonly begunUs: Us
  /** The call that waits for it, if one does. */
  readonly forCall: CallId | null
}

interface HostTier {
  readonly totalBytes: Bytes
  ownedBytes: Bytes
  reservedBytes: Bytes
}

// ---------------------------------------------------------------- engines

export interface EngineMemory {
  readonly cells: Cells
  /** Cells in a granule. */
  readonly granule: Cells
  /** Sequences it can hold: a ledger beside the cells. */
  readonly sequences: number
}

/** What an engine says it can do; the core uses nothing undeclared. */
export interface Capabilities {
  readonly models: readonly string[]
  /** Largest State it can run. */
  readonly contextTokens: Tokens
  /** Calls it runs at once. */
  readonly runningMax: number
  readonly tokenise: boolean
  readonly rank: boolean
  readonly preempt: boolean
  readonly cancel: boolean
  /** Null where the engine keeps its own counsel about memory; then nothing of KV below is asked of it. */
  readonly memory: EngineMemory | null
  readonly kvBytesPerToken: Bytes
  /** Segments of one prefix are stored once on device. */
  readonly sharesBytes: boolean
  readonly copy: boolean
  readonly trim: boolean
  readonly offload: boolean
  readonly onboard: boolean
  readonly discard: boolean
  readonly exact: { readonly answer: 'yes' | 'no' | 'unknown'; readonly because: string }
  readonly replayByOrigin: boolean
  /** Engines with equal keys can read each other's images; null: none. */
  readonly imageKey: string | null
  readonly progress: boolean
  readonly inventory: boolean
}

/** Measured speeds; integers, nanoseconds for what is per token. */
export interface EngineSpeeds {
  readonly prefillNsPerToken: number
  /** A decode iteration costs `decodeBaseNs + decodeRowNs * rows`. */
  readonly decodeBaseNs: number
  readonly decodeRowNs: number
  readonly copyOutNsPerToken: number
  readonly copyInNsPerToken: number
}

export interface Engine {
  readonly id: EngineId
  stage: 'joined' | 'lost'
  /** No call is placed there, until an operator ends it; absent: it is not so. */
  draining?: true
  capabilities: Capabilities
  speeds: EngineSpeeds
  /** Device memory in granules: free + owned + reserved = total (invariant 11). */
  ownedGranules: Granules
  reservedGranules: Granules
  /** States with a device replica here, or one on its way in. */
  sequencesUsed: number
  readonly running: Set<CallId>
  /** Of these, the ones told to pause. */
  readonly pausing: Set<CallId>
  /** Of those that run, the ones whose next grant was withheld. */
  readonly cramped: Set<CallId>
  /** Suspended States on its device, the longest idle first. */
  readonly idle: Set<StateId>
  /** Moves from or to its device. */
  readonly moves: Set<MoveId>
  /** How many of these bring in the State of a call. */
  resuming: number
  /** How long calls stay on it, a moving mean over about eight; 0 before any left. */
  stayUs: Us
  /** Standing orders as last issued, so that only a change is told. */
  orders: readonly StandingOrder[]
}

/** What an engine may do without asking. */
export interface StandingOrder {
  readonly call: CallId
  /** Smaller is better; unique on the engine. */
  readonly rank: number
  /** Memory the call may use. */
  readonly grantGranules: Granules
  readonly asVictim: 'pause' | 'offload' | 'discard'
}

const emptyService = (): Service => ({ residentUs: 0, workUs: 0 })
/** Of a program that begins; a cancel raises it. */
export const EPOCH_FIRST = 1

export const emptyLedger = (): Ledger => ({ useful: emptyService(), retried: emptyService(), recomputed: emptyService() })
