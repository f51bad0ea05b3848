/** Owns what every agent is given, what it says as it goes, and what it leaves behind. Leaves running one to the agents. */
import type { Endpoint } from './chat-client.ts'
import type { Corpus } from './corpus.ts'
import type { Toolbox, ToolName } from './tools.ts'

export interface AgentWorld {
  readonly endpoint: Endpoint
  readonly model: string
  /** The model's tokens for one of the default's. */
  readonly tokenScale: number
  readonly toolbox: Toolbox
  readonly corpus: Corpus
  /** Milliseconds since the run began. */
  now(): number
  /** Where an agent is, as it goes. */
  notify(step: AgentStep): void
  readonly signal: AbortSignal
}

export interface AgentStep {
  readonly program: string
  readonly kind: 'asking' | 'tool' | 'done' | 'failed'
  /** The call it is at, from 0. */
  readonly call: number
  readonly calls: number
  readonly tool: ToolName | null
}

export interface CallRecord {
  readonly startMs: number
  readonly endMs: number
  readonly firstTokenMs: number | null
  readonly promptTokens: number
  readonly cachedTokens: number
  readonly outputTokens: number
  readonly finish: string | null
  readonly tool: ToolName | null
}

export interface ProgramRecord {
  readonly id: string
  readonly name: string
  readonly startMs: number
  readonly endMs: number
  readonly waitsMs: number
  readonly calls: readonly CallRecord[]
  /** Of everything the model wrote, so that two runs can be compared. */
  readonly digest: string
  readonly error: string | null
  /** What it reported of its graph; null where it is a chain of calls and reported nothing. */
  readonly graph: GraphRecord | null
}

interface GraphRecord {
  /** That it declared. */
  readonly joins: number
  readonly nodes: readonly NodeRecord[]
}

/** One call of the graph, with digests of what it was asked and what it wrote, so that two runs can be compared. */
export interface NodeRecord {
  readonly node: string
  readonly asked: string
  /** Null: a join cancelled it. */
  readonly wrote: string | null
}
