/**
 * Owns what of an output is shown and what is kept: tokens in, parts of a message out. In order: bytes become
 * characters, characters are searched for stop strings, reasoning is told from the rest, and that is searched for tool
 * calls.
 *
 * O1 a pure function of the tokens pushed: replaying those already shown, in silence, leaves it where it was (E2).
 * O2 shown text never has part of a character, nor text that may yet be a stop string or a tool call.
 * O3 what is kept ends before the token that ends generation and before a stop string; a token that the stop string
 *    cuts is dropped, and what it spelled before the cut stays in the text, to be tokenised again as given.
 *
 * A control token shows nothing and is kept all the same: the model saw it. Where a vocabulary has the tags of tool
 * calls or of reasoning as control tokens, those are read as their text.
 */
import assert from 'node:assert/strict'
import type { ToolDefinition } from '../protocol/chat.ts'
import type { WirePart } from '../protocol/engine.ts'
import { readerOf } from './channels.ts'
import type { ReasoningReader } from './channels.ts'
import type { ReasoningTags, Told } from './reasoning.ts'
import { StopSearch } from './stop.ts'
import { hermes } from './tool-format/hermes.ts'
import type { ToolFormat } from './tool-format/format.ts'
import type { CommittedMessage, KeptOutput, Tokenizer } from './token-record.ts'
import { ToolCallParser } from './tools.ts'
import { Utf8Decoder } from './utf8.ts'

export interface OutputOptions {
  readonly tokenizer: Tokenizer
  readonly stops: readonly string[]
  /** Tool calls are searched for. */
  readonly callsTools: boolean
  /** Tokens that end the output; absent: the model's own. */
  readonly isEnd?: (token: number) => boolean
  readonly toolFormat?: ToolFormat
  /** What was offered. */
  readonly tools?: readonly ToolDefinition[]
  /** Null: the model has none, or may not reason here. `opened`: the prompt ends in the middle of it. */
  readonly reasoning?: { readonly tags: ReasoningTags; readonly opened: boolean } | null
}

export interface OutputEnd extends KeptOutput {
  readonly parts: readonly WirePart[]
  readonly finish: 'stop' | 'length' | 'tool_calls'
  readonly toolCalls: CommittedMessage['toolCalls']
}

/** After a token: how much text there was, and whether its bytes ended with a character. */
interface Mark { readonly chars: number; readonly clean: boolean }

export class OutputPipeline {
  readonly #tokenizer: Tokenizer
  readonly #isEnd: (token: number) => boolean
  readonly #decoder = new Utf8Decoder()
  readonly #stops: StopSearch
  readonly #reasoning: ReasoningReader | null
  readonly #tools: ToolCallParser | null
  /** Control tokens that are read as their text. */
  readonly #tags: ReadonlySet<string>
  /** Everything decoded, whatever was shown of it. */
  #text = ''
  /** What was shown as text where no tool calls are searched for. */
  #content = ''
  readonly #marks: Mark[] = [{ chars: 0, clean: true }]
  readonly #silent: number[] = []
  #cutAt: number | null = null
  #stopped = false

  constructor({ tokenizer, isEnd, stops, callsTools, toolFormat: format = hermes, tools = [], reasoning }: OutputOptions) {
    this.#tokenizer = tokenizer
    this.#isEnd = isEnd ?? ((token) => tokenizer.isEog(token))
    this.#stops = new StopSearch(stops)
    this.#reasoning = reasoning === undefined || reasoning === null
      ? null
      : readerOf(reasoning.tags, reasoning.opened)
    this.#tools = callsTools ? new ToolCallParser({ format, tools }) : null
    this.#tags = tagsOf(format, reasoning?.tags ?? null)
  }

  /** Text of a tool call that was opened and is not over, from its opening to the last token, shown or not. */
  get openCall(): string | null {
    const open = this.#tools?.openText ?? null
    return open === null || !this.#decoder.clean ? null : open + this.#stops.held
  }

  /** `stopped`: the token ends generation or completed a stop string; push no more, call `end('stop')`. */
  push(token: number): { readonly parts: readonly WirePart[]; readonly stopped: boolean } {
    assert(!this.#stopped, 'a token came after the output had stopped')
    if (this.#isEnd(token)) {
      this.#stopped = true
      return { parts: [], stopped: true }
    }
    const bytes = this.#spell(token)
    if (bytes === null) this.#silent.push(this.#marks.length - 1)
    const parts = this.#show(bytes === null ? '' : this.#decoder.push(bytes))
    this.#marks.push({ chars: this.#text.length, clean: this.#decoder.clean })
    return { parts, stopped: this.#stopped }
  }

  /** What was held back, and what is kept. `stop`: ended by itself; `length`: cut. Call it once. */
  end(finish: 'stop' | 'length'): OutputEnd {
    const parts = this.#cutAt === null ? [...this.#show(this.#decoder.end())] : []
    if (this.#cutAt === null) parts.push(...this.#parse(this.#stops.end()))
    if (this.#reasoning !== null) parts.push(...this.#tell(this.#reasoning.end()))
    parts.push(...this.#tools?.end() ?? [])
    this.#stopped = true
    const said = this.#tools?.message ?? { content: this.#content, toolCalls: [] }
    const reasoning = this.#reasoning?.reasoning ?? ''
    const message = reasoning === '' ? said : { ...said, reasoning }
    const called = finish === 'stop' && message.toolCalls.length > 0 && this.#tools?.cutShort === false
    return { parts, finish: called ? 'tool_calls' : finish, toolCalls: message.toolCalls, message, ...this.#kept() }
  }

  /** Null: the token spells nothing. */
  #spell(token: number): Uint8Array | null {
    if (!this.#tokenizer.isControl(token)) return this.#tokenizer.piece(token, true)
    const bytes = this.#tokenizer.piece(token, true)
    const text = Buffer.from(bytes).toString('utf8')
    return this.#tags.has(text) ? bytes : null
  }

  #show(text: string): readonly WirePart[] {
    if (text === '') return []
    this.#text += text
    const found = this.#stops.push(text)
    if (found.cutAt !== null) {
      this.#cutAt = found.cutAt
      this.#stopped = true
    }
    return this.#parse(found.text)
  }

  #parse(text: string): readonly WirePart[] {
    return this.#tell(this.#reasoning?.push(text) ?? { reasoning: '', text })
  }

  #tell({ reasoning, text }: Told): readonly WirePart[] {
    const thought: WirePart[] = reasoning === '' ? [] : [{ kind: 'reasoning', text: reasoning }]
    return [...thought, ...this.#say(text)]
  }

  #say(text: string): readonly WirePart[] {
    if (this.#tools !== null) return this.#tools.push(text)
    this.#content += text
    return text === '' ? [] : [{ kind: 'text', text }]
  }

  #kept(): Omit<KeptOutput, 'message'> {
    const cutAt = this.#cutAt
    const last = this.#marks.length - 1
    const keptTokens = cutAt === null ? last : this.#marks.findLastIndex(({ chars, clean }) => clean && chars <= cutAt)
    const spelled = this.#marks.slice(0, keptTokens + 1).map(({ chars }) => chars)
    // The last kept token also spells what an unfinished character was shown as.
    if (cutAt === null && last > 0) spelled[last] = this.#text.length
    return {
      keptTokens,
      spelled,
      keptText: this.#text.slice(0, cutAt ?? undefined),
      silent: this.#silent.filter((index) => index < keptTokens),
    }
  }
}

/** What is read as text where a vocabulary has it as a control token: the marks of calls and of reasoning. */
export function tagsOf(format: ToolFormat, reasoning: ReasoningTags | null): ReadonlySet<string> {
  const thinking = reasoning === null ? [] : [reasoning.open, reasoning.close]
  // A tag may be a mark and more text behind it.
  return new Set([...format.opens, ...format.tags, ...thinking].flatMap((tag) => [tag, ...tag.match(/<[^<>]*>/g) ?? []]))
}
