/**
 * Owns the validated chat call: one shape, whatever endpoint it came by. The server makes it, the driver carries it as
 * JSON text, an engine reads it. Every field that would change the result is here; what is not here was refused by name.
 */
export interface ChatCall {
  readonly model: string
  readonly messages: readonly ChatMessage[]
  readonly tools: readonly ToolDefinition[]
  readonly toolChoice: 'none' | 'auto' | 'required' | { readonly name: string }
  readonly sampling: Sampling
  readonly stop: readonly string[]
  readonly maxTokens: number | null
  /** What its text must be; absent: anything. */
  readonly format?: AnswerFormat
  /** Absent: nothing but `sampling` decides. */
  readonly tokenRules?: TokenRules
  /** How many of the likeliest tokens are told beside each one; absent: not even its own likelihood. */
  readonly topLogprobs?: number
  /** Which choice of its request it is; absent: the first, 0. Another one's randomness is another. */
  readonly choice?: number
}

/** What else decides which token comes next, and where the answer ends. */
export interface TokenRules {
  /** Taken once from the logit of each token that was put out. 0: off. */
  readonly presencePenalty: number
  /** Taken as often as a token was put out. 0: off. */
  readonly frequencyPenalty: number
  /** Divides what is above 0 and multiplies what is below, for each token of prompt and output. 1: off. */
  readonly repetitionPenalty: number
  /** Added to the logit of a token. */
  readonly bias: readonly (readonly [token: number, by: number])[]
  /** Before so many tokens are out, no token ends the answer. */
  readonly minTokens: number
  /** The model's own end never comes. */
  readonly ignoreEos: boolean
  /** Each ends the answer, as the model's own end does. */
  readonly stopTokens: readonly number[]
}

/** `schema` is JSON Schema; `gbnf` has a rule `root`. */
export type AnswerFormat =
  | { readonly kind: 'json' }
  | { readonly kind: 'schema'; readonly schema: Readonly<Record<string, unknown>> }
  | { readonly kind: 'grammar'; readonly gbnf: string }

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  /** Absent content and "" are the same. */
  readonly content: string
  /** On an assistant message: what it thought before it answered. Absent: none, or none that is known. */
  readonly reasoning?: string
  readonly toolCalls: readonly ChatToolCall[]
  /** On a tool message: the call whose result it is. */
  readonly toolCallId: string | null
}

export interface ChatToolCall {
  readonly id: string
  readonly name: string
  /** JSON text, as the model wrote it. */
  readonly arguments: string
}

export interface ToolDefinition {
  readonly name: string
  readonly description: string
  /** JSON Schema of the arguments, an object. */
  readonly parameters: Readonly<Record<string, unknown>>
}

export interface Sampling {
  /** 0: greedy. */
  readonly temperature: number
  /** 1: off. */
  readonly topP: number
  /** 0: off. */
  readonly topK: number
  /** 0: off. */
  readonly minP: number
}

/**
 * The id of a call's n-th tool call. Derived, so that every attempt and every replay gives the same one, and short and
 * plain enough for every client.
 */
export const toolCallIdOf = (call: string, index: number): string => `call_${call}_${index}`
