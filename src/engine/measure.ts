/** Owns the measuring of a call. Signatures first; the rest follows. */
import type { Sampling } from '../protocol/chat.ts'
import type { ToolParsing } from './output.ts'
import type { ChatTemplate } from './template.ts'
import type { Prepared, Tokenizer } from './token-record.ts'

export interface MeasureLimits {
  /** Most tokens a State can have: prompt and output. */
  readonly contextTokens: number
  /** Names the vocabulary (the model's digest will do): records of another are not continued. */
  readonly vocabulary: string
}

/** How a call is generated; a function of its body alone. */
export interface CallPlan {
  readonly sampling: Sampling
  readonly stops: readonly string[]
  /** Null: as many as the context has room for. */
  readonly maxTokens: number | null
  /** GBNF whose root is `root`, where a tool call is forced. */
  readonly grammar: string | null
  readonly toolParsing: ToolParsing
}

export interface Refusal {
  readonly ok: false
  readonly code: 'bad_body' | 'context_too_long' | 'template_failed' | 'unsupported_schema'
  readonly why: string
}

export type Measured =
  | {
    readonly ok: true
    readonly prepared: Prepared
    readonly promptTokens: number
    readonly matched: { readonly record: string; readonly tokens: number } | null
    readonly renderingWon: string | null
    readonly plan: CallPlan
  }
  | Refusal

/** `record` is what `encodeRecord` wrote; one that is damaged is passed over and named in `renderingWon`. */
export interface OfferedRecord { readonly call: string; readonly record: Uint8Array }

export function measure(
  _tokenizer: Tokenizer, _template: ChatTemplate, _body: string, _records: readonly OfferedRecord[], _limits: MeasureLimits,
): Measured {
  throw new Error('not built yet')
}

/** The plan alone, for a start whose prompt was measured before. */
export function planOf(_body: string): { readonly ok: true; readonly plan: CallPlan } | Refusal {
  throw new Error('not built yet')
}
