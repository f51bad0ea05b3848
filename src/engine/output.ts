/** Owns what of an output is shown. Signatures first; the rest follows. */
import type { WirePart } from '../protocol/engine.ts'
import type { CommittedMessage, KeptOutput, Tokenizer } from './token-record.ts'

/** `whole`: a call is shown when it is complete; `streamed`: as it comes, because a grammar holds it. */
export type ToolParsing = 'off' | 'whole' | 'streamed'

export interface OutputOptions {
  readonly tokenizer: Tokenizer
  readonly stops: readonly string[]
  readonly toolParsing: ToolParsing
}

export interface OutputEnd extends KeptOutput {
  readonly parts: readonly WirePart[]
  readonly finish: 'stop' | 'length' | 'tool_calls'
  readonly toolCalls: CommittedMessage['toolCalls']
}

export class OutputPipeline {
  constructor(_options: OutputOptions) {}

  /** `stopped`: the token ends generation or completed a stop string; push no more, call `end('stop')`. */
  push(_token: number): { readonly parts: readonly WirePart[]; readonly stopped: boolean } {
    throw new Error('not built yet')
  }

  /** What was held back, and what is kept. `stop`: ended by itself; `length`: cut. Call it once. */
  end(_finish: 'stop' | 'length'): OutputEnd {
    throw new Error('not built yet')
  }
}
