/**
 * Owns the messages between the control plane and an engine process, version 2. Framed by `frame.ts`; binary parts
 * follow the JSON in the order of `bin`. Every command carries the reign and a lower one than the engine has seen is
 * refused (invariant 15). Data from the other side is checked before use.
 */
export const ENGINE_PROTOCOL = 2
/** Exit code of an engine that cannot serve what it was told to, and could not if it were started again. */
export const EXIT_REFUSED = 78
/** After an image's path: what an engine has written of it so far. One that is killed leaves it. */
export const PARTIAL_SUFFIX = '.partial'

export interface WireReport {
  readonly usefulResidentUs: number
  readonly usefulWorkUs: number
  readonly recomputedResidentUs: number
  readonly recomputedWorkUs: number
  /** Fed after `baseTokens`, by origin. */
  readonly tailPrefilled: number
  readonly tailDecoded: number
  readonly outputTokens: number
  readonly recomputedTokens: number
  /** Rows that went through the model, and tokens copied from another lane in their place; in this run. */
  readonly computedTokens: number
  readonly reusedTokens: number
}

export interface WireSpan { readonly id: string; readonly tokens: number; readonly origin: 'prefilled' | 'decoded' }

export interface WireIdentity { readonly tenant: string; readonly state: string; readonly owner: string; readonly epoch: number; readonly reign: number }

export type EngineRequest =
  | { readonly kind: 'hello'; readonly protocol: number; readonly reign: number; readonly leaseMs: number }
  | { readonly kind: 'ping'; readonly reign: number }
  /** bin: one record for each of `records`. */
  | { readonly kind: 'measure'; readonly reign: number; readonly call: string; readonly body: string; readonly records: readonly string[] }
  /** bin: [prepared]. */
  | { readonly kind: 'start'; readonly reign: number; readonly call: string; readonly attempt: number; readonly epoch: number; readonly state: string; readonly tenant: string; readonly body: string; readonly baseTokens: number; readonly keepTokens: number; readonly recomputeTokens: number; readonly replay: 'exact' | 'plain'; readonly forced: readonly number[]; readonly seed: number; readonly maxTokens: number; readonly rank: number; readonly grantGranules: number }
  | { readonly kind: 'order'; readonly reign: number; readonly orders: readonly { readonly call: string; readonly rank: number; readonly grantGranules: number; readonly asVictim: 'pause' | 'offload' | 'discard' }[] }
  | { readonly kind: 'pause' | 'cancel'; readonly reign: number; readonly call: string; readonly attempt: number }
  | { readonly kind: 'offload'; readonly reign: number; readonly move: string; readonly state: string; readonly path: string; readonly spans: readonly WireSpan[]; readonly identity: WireIdentity }
  | { readonly kind: 'onboard'; readonly reign: number; readonly move: string; readonly state: string; readonly path: string; readonly digest: string; readonly identity: WireIdentity }
  | { readonly kind: 'discard'; readonly reign: number; readonly state: string }
  | { readonly kind: 'stop'; readonly reign: number }

/**
 * A piece of an image, in order, between machines that share no files; bin: [bytes]. To the engine before the `onboard`
 * that it is for, from it before the `moved` of an `offload`. There the paths in commands mean nothing.
 */
export interface WireImagePiece { readonly kind: 'imagePiece'; readonly move: string; readonly offset: number }
/** To the engine: no more of it comes, and no onboard; what came of it may go. */
export interface WireImageDropped { readonly kind: 'imageDropped'; readonly move: string }
/** Bytes of one piece at most. */
export const IMAGE_PIECE_BYTES = 1024 * 1024
/** An id of a move that may name a file. */
export const MOVE_NAME = /^[A-Za-z0-9_-]{1,64}$/

export interface WireSpeeds {
  readonly prefillNsPerToken: number
  readonly decodeBaseNs: number
  readonly decodeRowNs: number
  readonly copyOutNsPerToken: number
  readonly copyInNsPerToken: number
}

/** What the engine found out about itself and its model. */
export interface WireEngine {
  readonly library: string
  /** What computes beside the CPU; null: nothing. */
  readonly gpu: string | null
  /** Why the library's build is not the one that was asked for; null where it is. */
  readonly fallback: string | null
  readonly cpuKernel: string
  readonly modelDigest: string
  readonly lanes: number
  readonly laneTokens: number
  readonly kvBytesPerToken: number
  readonly contextTokens: number
  readonly imageKey: string
  /** What the model's family lets be done with a State. */
  readonly can: { readonly trim: boolean; readonly copy: boolean; readonly image: boolean }
  readonly exact: { readonly answer: 'yes' | 'no' | 'unknown'; readonly because: string }
  readonly speeds: WireSpeeds
}

/** A token, and how likely it was: a natural logarithm. */
interface WireChance { readonly bytes: readonly number[]; readonly logprob: number }
/** `top`: the likeliest tokens in its place, best first. */
export interface WireLogprob extends WireChance { readonly top: readonly WireChance[] }

/** What an engine says of a model before it serves it. */
export interface WireDescription {
  readonly library: string
  readonly gpu: WireEngine['gpu']
  readonly fallback: WireEngine['fallback']
  readonly cpuKernel: string
  readonly architecture: string
  /** How a State is kept: attention over all of it, over a window, as one state that changes, or some layers so. */
  readonly memory: 'attention' | 'window' | 'recurrent' | 'hybrid'
  readonly layers: number
  readonly vocabulary: number
  readonly trainedContext: number
  readonly weightsBytes: number
  readonly kvBytesPerToken: number
  /** Of a State, whatever its length. */
  readonly stateBytes: number
  readonly can: WireEngine['can']
  /** `chatml`: the file has none. */
  readonly template: 'model' | 'chatml'
  /** How the model calls tools: in its template's own form, in one its template names, or in ours. */
  readonly tools: { readonly kind: 'native' | 'written' | 'plain'; readonly format: string }
  readonly reasoning: { readonly open: string; readonly close: string } | null
  /** Scripts whose text the tokenizer does not give back. */
  readonly loses: readonly string[]
  /** Measured with a few short batches. */
  readonly speeds: WireSpeeds
}

/** What an engine says of settings: whether it is exact with them, and how fast, at lengths of some hundreds of tokens. */
export interface WireWeight {
  readonly exact: WireEngine['exact']
  readonly prefillTokensPerS: number
  /** Of all lanes that decode together. */
  readonly decodeTokensPerS: number
}

export type WirePart =
  /** `logprobs`: of tokens put out since the part before, where the call asks for them. */
  | { readonly kind: 'text'; readonly text: string; readonly logprobs?: readonly WireLogprob[] }
  /** What the model thinks before it answers. */
  | { readonly kind: 'reasoning'; readonly text: string }
  | { readonly kind: 'toolCall'; readonly index: number; readonly name: string | null; readonly arguments: string }

export type EngineEvent =
  /** Answers a ping. `batchMs`: how long the batch under way has taken; 0 where none is. `memoryBytes`: resident, what is mapped of the model's file included. */
  | { readonly kind: 'alive'; readonly batchMs: number; readonly memoryBytes: number }
  | { readonly kind: 'welcome'; readonly protocol: number; readonly engine: WireEngine }
  /** The probe has answered, or speeds were measured anew. */
  | { readonly kind: 'engine'; readonly engine: WireEngine }
  /** bin: [prepared]. */
  | { readonly kind: 'measured'; readonly call: string; readonly promptTokens: number; readonly matched: { readonly record: string; readonly tokens: number } | null; readonly renderingWon: string | null }
  | { readonly kind: 'unmeasurable'; readonly call: string; readonly code: string; readonly why: string }
  | { readonly kind: 'tokens'; readonly call: string; readonly attempt: number; readonly index: number; readonly tokens: readonly number[]; readonly parts: readonly WirePart[] }
  | { readonly kind: 'progress'; readonly speeds: WireSpeeds | null; readonly calls: readonly { readonly call: string; readonly attempt: number; readonly epoch: number; readonly report: WireReport }[] }
  | { readonly kind: 'paused'; readonly call: string; readonly attempt: number; readonly epoch: number; readonly report: WireReport }
  /** bin: [record]. */
  | { readonly kind: 'finished'; readonly call: string; readonly attempt: number; readonly epoch: number; readonly finish: 'stop' | 'length' | 'tool_calls'; readonly report: WireReport; readonly parts: { readonly waitUs: number; readonly recomputeUs: number; readonly prefillUs: number; readonly decodeUs: number }; readonly spans: readonly { readonly tokens: number; readonly origin: 'prefilled' | 'decoded'; readonly digest: string }[]; readonly toolCalls: readonly { readonly name: string }[]; readonly resume: 'none' | 'exact' | 'recomputed'; readonly promptTokens: number; readonly outputTokens: number; readonly cachedTokens: number }
  | { readonly kind: 'failed'; readonly call: string; readonly attempt: number; readonly epoch: number; readonly why: string; readonly retryable: boolean }
  | { readonly kind: 'moved'; readonly move: string; readonly bytes: number; readonly digest: string; readonly copyUs: number }
  | { readonly kind: 'moveFailed'; readonly move: string; readonly why: string; readonly sourceLost: boolean }
  | { readonly kind: 'refused'; readonly what: string; readonly why: string }
