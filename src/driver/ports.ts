/**
 * Owns all that the driver needs of the world, on one page. Production, the simulator and the tests each bring their own.
 * What a call says (prompts, tokens, tool results) passes through here as opaque text or bytes and never enters the core.
 */
import type { BodyId, CallId, EngineId, MoveId, StateId, TenantId } from '../core/ids.ts'
import type { Input } from '../core/input.ts'
import type { Logged } from '../core/fact.ts'
import type { Snapshot } from '../core/snapshot.ts'
import type { Origin } from '../core/state.ts'
import type { Bytes, Granules, Tokens, Us } from '../core/units.ts'

export interface Clock {
  /** Monotonic, never back, also over a restart: not below what the log last said. */
  nowUs(): Us
  /** Wall time minus monotonic time. */
  wallOffsetUs(): Us
  /** Calls once, not before `atUs`; returns what cancels it. */
  at(atUs: Us, call: () => void): () => void
  /** Calls soon, after what is running now. */
  soon(call: () => void): void
}

export interface Ids {
  /** Unique, printable, at most 32 characters of [a-z0-9]. */
  fresh(): string
  /** 0 to 2^32 - 1. */
  seed(): number
}

/** Facts in order. One append is one record: it is kept whole or not at all. */
export interface FactLog {
  /** Flow facts may wait for the next group commit; `durable` is called once all before it is safe. */
  append(facts: readonly Logged[], barrier: boolean, durable: () => void): void
  /** What is kept after that fact, by default everything, oldest first. */
  read(afterSeq?: number): Iterable<Logged>
  /** Whole ones, newest first. A damaged one is told and left out. */
  snapshots(): Iterable<Snapshot>
  /** Time for one: it is made beside, from what is durable by now; no turn waits for it. Not while one is being made. */
  snapshot(): void
  /** The next fencing number, durable before it returns. */
  nextReign(): number
}

/** Working bodies: messages, token records and journals, by id, outside the log; encrypted at rest. */
export interface Bodies {
  put(id: BodyId, tenant: TenantId, bytes: Uint8Array): void
  get(id: BodyId): Uint8Array | null
  drop(id: BodyId): void
  /** At a start: what a crash kept from being dropped goes. */
  keepOnly(isNeeded: (id: BodyId) => boolean): void
}

/** The table of KV images on the host tier; the engine writes and reads the files themselves. */
export interface KvImages {
  /** Where the engine writes or reads it. */
  path(image: MoveId): string
  /** Recorded when a move to host is published. */
  keep(image: MoveId, bytes: Bytes, digest: string): void
  drop(image: MoveId): void
  /** At a start: names whose file is whole and has the digest recorded; every other file is removed. */
  verify(): Promise<readonly string[]>
}

// ---------------------------------------------------------------- engines

export interface MeasureRequest {
  readonly call: CallId
  readonly body: string
  /** Token records that the prompt may continue, best first. */
  readonly records: readonly { readonly call: CallId; readonly record: Uint8Array }[]
}

export type Measurement =
  | {
    readonly ok: true
    /** Tokens, origins and text as the engine wants them back at `start`; opaque here. */
    readonly prepared: Uint8Array
    readonly promptTokens: Tokens
    readonly matched: { readonly record: CallId; readonly tokens: Tokens } | null
    readonly renderingWon: string | null
  }
  | { readonly ok: false; readonly code: string; readonly why: string }

export interface StartCommand {
  readonly kind: 'start'
  readonly call: CallId
  readonly attempt: number
  /** What is said of it carries it back: an attempt that was paused goes on under its number, in another run. */
  readonly run: number
  readonly epoch: number
  readonly state: StateId
  /** Whose it is: what is known of another tenant's prompts changes nothing of this call, not even its time. */
  readonly tenant: TenantId
  readonly body: string
  readonly prepared: Uint8Array
  /** Committed tokens of the State below this call; what the call feeds comes after them. */
  readonly baseTokens: Tokens
  /** Tokens whose KV is on device now; the rest is fed (again). */
  readonly keepTokens: Tokens
  /** Fed before and evicted: feeding them again is charged as recomputed. */
  readonly recomputeTokens: Tokens
  readonly replay: 'exact' | 'plain'
  /** Output tokens already shown: fed, not sampled and not emitted again. */
  readonly forced: readonly number[]
  readonly seed: number
  readonly maxTokens: Tokens
  readonly rank: number
  readonly grantGranules: Granules
}

/** Spans of a State in order, as its image keeps them: one chunk a span. */
export interface ImageSpan { readonly id: string; readonly tokens: Tokens; readonly origin: Origin }

export type EngineCommand =
  | StartCommand
  | { readonly kind: 'order'; readonly orders: readonly { readonly call: CallId; readonly rank: number; readonly grantGranules: Granules; readonly asVictim: 'pause' | 'offload' | 'discard' }[] }
  /** Stop between two tokens and keep the State on device: answered by `paused`, or by `finished` if that came first. */
  | { readonly kind: 'pause'; readonly call: CallId; readonly attempt: number }
  /** Stop and cut what the attempt fed (back to `baseTokens`); not answered. */
  | { readonly kind: 'cancel'; readonly call: CallId; readonly attempt: number }
  /** Copy and verify; the device copy stays until `discard`. Answered by `moveDone` or `moveFailed`. */
  | { readonly kind: 'offload'; readonly move: MoveId; readonly state: StateId; readonly path: string; readonly spans: readonly ImageSpan[]; readonly identity: ImageIdentity }
  | { readonly kind: 'onboard'; readonly move: MoveId; readonly state: StateId; readonly path: string; readonly digest: string; readonly identity: ImageIdentity }
  /** Free the device copy; not answered, done before any later command. */
  | { readonly kind: 'discard'; readonly state: StateId }

/** Who an image belongs to; checked against what the reader expects. */
export interface ImageIdentity {
  readonly tenant: TenantId
  readonly state: StateId
  readonly owner: string
  readonly epoch: number
  readonly reign: number
}

/** What is shown to a client, in order. */
/** A token, and how likely it was: a natural logarithm. */
interface TokenChance { readonly bytes: readonly number[]; readonly logprob: number }
/** `top`: the likeliest tokens in its place, best first. */
export interface TokenLogprob extends TokenChance { readonly top: readonly TokenChance[] }

export type StreamPart =
  /** `logprobs`: of tokens put out since the part before, where the call asks for them. */
  | { readonly kind: 'text'; readonly text: string; readonly logprobs?: readonly TokenLogprob[] }
  /** What the model thinks before it answers. */
  | { readonly kind: 'reasoning'; readonly text: string }
  /** `name` comes once, with the first piece of a tool call. */
  | { readonly kind: 'toolCall'; readonly index: number; readonly name: string | null; readonly arguments: string }

/** Output tokens and what they show; one message, so that journal and stream never disagree. */
export interface StreamChunk {
  readonly call: CallId
  readonly attempt: number
  /** Index of the first token among the call's output tokens. */
  readonly index: number
  readonly tokens: readonly number[]
  readonly parts: readonly StreamPart[]
}

/** What a finished call leaves to its thread besides facts. */
export interface Outcome {
  /** Token record for the next call of the thread; null where the engine has none. */
  readonly record: Uint8Array | null
  readonly promptTokens: Tokens
  readonly outputTokens: Tokens
  readonly cachedTokens: Tokens
}

export interface EngineSink {
  input(input: Input): void
  chunk(chunk: StreamChunk): void
  /** Comes just before the `finished` input of the same attempt. */
  outcome(call: CallId, attempt: number, outcome: Outcome): void
}

/** How an engine is, as its adapter sees it. `refused`: it cannot serve as it is configured, and is not tried again. */
export interface EngineCondition {
  readonly stage: 'starting' | 'joined' | 'lost' | 'crash-loop' | 'refused'
  /** What went wrong, and what comes next; of a joined one, what is not as configured. Null where there is nothing to say. */
  readonly why: string | null
}

/** One engine. Its adapter turns every fault of the world into an input; nothing here throws for it. */
export interface EnginePort {
  readonly id: EngineId
  /** Left out: no more is known than whether it joined. */
  readonly condition?: EngineCondition
  /** Joins under this reign; the sink gets `engineJoined`, or `engineLost` with the reason. */
  open(reign: number, sink: EngineSink): void
  measure(request: MeasureRequest): Promise<Measurement>
  perform(command: EngineCommand): void
  /** Lets go of the engine; resolves when it is gone. */
  close(): Promise<void>
}

export interface Ports {
  readonly clock: Clock
  readonly ids: Ids
  readonly log: FactLog
  readonly bodies: Bodies
  readonly images: KvImages
  readonly engines: readonly EnginePort[]
}
