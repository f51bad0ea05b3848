/**
 * Owns what the driver offers to the doors before it (HTTP, tests, examples): submit a call and follow it, act on a
 * program, read. Reads are of live state and may be ahead of the disk by one turn; nothing returned may be changed.
 */
import type { CallId, TenantId } from '../core/ids.ts'
import type { EffectRemaining } from '../core/effect.ts'
import type { Claims, ReportGraph } from '../core/input.ts'
import type { Logged } from '../core/fact.ts'
import type { CoreState, FinishReason, Identity } from '../core/state.ts'
import type { Tokens, Us } from '../core/units.ts'
import type { EngineCondition, StreamPart } from './ports.ts'

export interface Submission {
  readonly tenant: TenantId
  readonly claims: Claims
  readonly model: string
  /** JSON of the validated call; opaque here. */
  readonly body: string
  /** Hex digest of credential and request body. */
  readonly digest: string
  readonly promptTokensEstimate: Tokens
  readonly maxTokens: Tokens
  /** 0 to 2^32 - 1, as the client asked; null: drawn by the driver. */
  readonly seed: number | null
  /** Null: the configuration's default. */
  readonly exactResume: boolean | null
  readonly priorityClass: string
  readonly deadlineUs: Us | null
}

export type CallUpdate =
  /** Comes first, once durable; `program` as the client knows it. */
  | { readonly kind: 'arrived'; readonly call: CallId; readonly program: string; readonly identity: Identity }
  | { readonly kind: 'part'; readonly part: StreamPart }
  /** Last: durable before it is shown. `queuedUs`: from its arrival to its first start. */
  | { readonly kind: 'done'; readonly finish: FinishReason; readonly promptTokens: Tokens; readonly outputTokens: Tokens; readonly cachedTokens: Tokens; readonly resume: 'none' | 'exact' | 'recomputed'; readonly queuedUs: Us }
  /** Last: nothing was run. `code` is a key of the protocol's table of errors. */
  | { readonly kind: 'refused'; readonly code: string; readonly why: string }
  /** Last: it began and cannot go on (cancelled, attempts used up, engine gone for good). */
  | { readonly kind: 'failed'; readonly code: string; readonly why: string }

export interface CallHandle {
  readonly updates: AsyncIterable<CallUpdate>
  /** The client is gone; frees place, sequence and cells. Harmless after the end. */
  hangUp(): void
}

export type ProgramReply =
  | { readonly ok: true; readonly program: string }
  | { readonly ok: false; readonly code: string; readonly why: string }

export type EngineReply = { readonly ok: true } | Extract<ProgramReply, { ok: false }>

export type GraphReport = Pick<ReportGraph, 'epoch' | 'parent' | 'forks' | 'nodes' | 'outcomes'>

/** `draining`: no call is placed there; `drained`: nothing is left there either. */
export interface EngineStanding {
  readonly id: string
  readonly stage: EngineCondition['stage'] | 'draining' | 'drained'
  readonly why: EngineCondition['why']
  readonly running: number
  /** Suspended on its device. */
  readonly idle: number
}

export interface Gateway {
  submit(submission: Submission): CallHandle
  declare(program: { readonly tenant: TenantId; readonly program: string | null; readonly session: string | null; readonly agent: string; readonly priorityClass: string; readonly deadlineUs: Us | null; readonly parent: string | null; readonly steps: number | null }): Promise<ProgramReply>
  finish(tenant: TenantId, program: string): Promise<ProgramReply>
  cancel(tenant: TenantId, program: string): Promise<ProgramReply>
  /** Taken whole, or refused by name and nothing changed. */
  report(tenant: TenantId, program: string, report: GraphReport): Promise<ProgramReply>
  cancelThread(tenant: TenantId, program: string, thread: string): Promise<ProgramReply>
  /** `call`: its id, or the name of its node. */
  cancelCall(tenant: TenantId, program: string, call: string): Promise<ProgramReply>
  /** A tool did what it does to the world; said again it changes nothing. */
  commitEffect(tenant: TenantId, program: string, toolCall: string, record: string | null): Promise<ProgramReply>
  /** What the tools of a program, or of one thread of it, did to the world or may have done; none where it is not known. */
  effectsRemaining(tenant: TenantId, program: string, thread: string | null): readonly EffectRemaining[]
  /** Live state, to read. */
  readonly core: Readonly<CoreState>
  /** Facts about one program (its own, its calls', interrupts' and States'), oldest first, newest at most `max`. */
  facts(tenant: TenantId, program: string, max: number): readonly Logged[]
  /** Called with every fact once it may be shown: metrics, events. Returns what ends it. */
  watch(watcher: (logged: Logged) => void): () => void
  /** Every engine of the configuration, whether it has ever joined or not. */
  engines(): readonly EngineStanding[]
  /** Refused where there is no such engine, or it has never joined. What runs there may end within the time. */
  drain(engine: string, withinUs: Us): Promise<EngineReply>
  /** Refused likewise; done where it is not drained. */
  undrain(engine: string): Promise<EngineReply>
  nowUs(): Us
}
