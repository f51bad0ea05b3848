/**
 * Owns turning messages and tools into the text a model was trained on, through the chat template of its file. The only
 * place that knows the template engine. Leaves tokens to `measure.ts`, the turns that are given to `turns.ts`, and which
 * form of tool calls the template has to `tool-format/choose.ts`: so what is rendered, what a grammar forces and what
 * the parser reads is one form, and a parsed message renders as the model wrote it.
 *
 * P1 the arguments of a call stand in the text exactly as they are given, whatever the template would do to them: a
 *    placeholder goes through the template in their place. Where the template writes each value on its own, their values
 *    stand there.
 * P2 in `segments`, what is marked literal came from a user, a tool or a model and spells a control token: it must not
 *    be read as one. Only such text is marked; all else is tokenised as a whole, as the model's own tooling does it.
 */
import { Template } from '@huggingface/jinja'
import type { ChatMessage, ToolDefinition } from '../protocol/chat.ts'
import { reasoningOf } from './reasoning.ts'
import type { ReasoningTags } from './reasoning.ts'
import { chooseToolUse, fillAll, placer } from './tool-format/choose.ts'
import type { ToolUse } from './tool-format/choose.ts'
import { nativeTool, nativeTurns, plainTurns, turn, writtenTurns } from './turns.ts'
import type { Turn } from './turns.ts'

interface TemplateSource {
  /** Jinja, as the model file carries it. */
  readonly source: string
  /** What the special tokens spell; '' where the model has none. */
  readonly bosText: string
  readonly eosText: string
  /** The vocabulary wants a beginning token even where the template writes none. */
  readonly addBos: boolean
}

export interface Segment { readonly text: string; readonly literal: boolean }

export class TemplateError extends Error {}

export class ChatTemplate {
  readonly #template: Template
  readonly #source: TemplateSource
  readonly #takesSystem: boolean
  /** Some templates want no list where there are no tools, some an empty one. */
  readonly #noTools: readonly unknown[] | null
  readonly toolUse: ToolUse
  /** Null: the model does not think aloud. */
  readonly reasoning: ReasoningTags | null

  /** Throws TemplateError where the source is no template. */
  static compile(source: TemplateSource): ChatTemplate {
    try {
      return new ChatTemplate(new Template(source.source), source)
    } catch (error) {
      throw new TemplateError(`the chat template does not parse: ${reason(error)}`, { cause: error })
    }
  }

  private constructor(template: Template, source: TemplateSource) {
    this.#template = template
    this.#source = source
    this.reasoning = reasoningOf(source.source)
    this.toolUse = chooseToolUse({
      source: source.source, reasoning: this.reasoning,
      render: (turns, tools, again) => this.#asked(turns, tools, again),
    })
    this.#noTools = this.#asked([turn('user', 'x')], null, true) === null ? [] : null
    this.#takesSystem = this.#asked([turn('system', PROBE), turn('user', 'x')], this.#noTools, true)?.includes(PROBE) ?? false
  }

  /**
   * The prompt up to where the assistant's answer begins. `hidden`: spellings of control tokens, to be kept literal
   * where they do not come from the template. Throws TemplateError.
   */
  render(
    messages: readonly ChatMessage[], tools: readonly ToolDefinition[], hidden: readonly string[] = [],
  ): Segment[] {
    const marks = freeMarks([messages, tools], hidden.length + 1)
    const hide = (text: string): string =>
      hidden.reduce((left, spelling, i) => left.replaceAll(spelling, marks[i] ?? ''), text)
    const given = deep({ messages, tools }, hide)
    const text = this.#rendered(given.messages, given.tools, marks[hidden.length] ?? '')
    return split(text, marks.slice(0, hidden.length), hidden)
  }

  #rendered(messages: readonly ChatMessage[], tools: readonly ToolDefinition[], mark: string): string {
    const given: string[] = []
    const turns = this.#turns(messages, tools, mark, given)
    const list = this.toolUse.kind === 'plain' || tools.length === 0 ? this.#noTools : tools.map(nativeTool)
    const filled = fillAll(this.#run(turns, list), mark, given)
    const bos = this.#source.bosText
    return this.#source.addBos && bos !== '' && !filled.startsWith(bos) ? bos + filled : filled
  }

  #turns(
    messages: readonly ChatMessage[], tools: readonly ToolDefinition[], mark: string, given: string[],
  ): readonly Turn[] {
    const use = this.toolUse
    switch (use.kind) {
      case 'native': {
        const place = placer(use.argumentsAs, mark, given)
        return nativeTurns(messages, use.format, (text) => {
          try {
            return place(text)
          } catch (error) {
            const why = 'the arguments of a tool call in the messages are no JSON, and the model\'s chat template needs '
              + 'their values'
            throw new TemplateError(why, { cause: error })
          }
        })
      }
      case 'written': return writtenTurns(messages, use.format, use.results)
      case 'plain': return plainTurns(messages, tools, this.#takesSystem)
    }
  }

  #run(turns: readonly Turn[], tools: readonly unknown[] | null): string {
    try {
      return this.#template.render(this.#context(turns, tools, true))
    } catch (error) {
      // One that takes no reasoning beside an answer and calls drops it: then it is rendered as without.
      const plain = turns.map(({ thinking: _, reasoning_content: __, ...rest }) => rest)
      const again = turns.some(({ thinking }) => thinking !== undefined) ? this.#asked(plain, tools, true) : null
      if (again !== null) return again
      throw new TemplateError(`the model's chat template refused these messages: ${reason(error)}`, { cause: error })
    }
  }

  /** Null where the template refuses: it may raise at what it does not support. */
  #asked(turns: readonly Turn[], tools: readonly unknown[] | null, again: boolean): string | null {
    try {
      return this.#template.render(this.#context(turns, tools, again))
    } catch (error) {
      if (error instanceof Error) return null
      throw error
    }
  }

  #context(turns: readonly Turn[], tools: readonly unknown[] | null, again: boolean): Record<string, unknown> {
    const { bosText, eosText } = this.#source
    return { messages: turns, tools, add_generation_prompt: again, bos_token: bosText, eos_token: eosText }
  }
}

/** Stands for any text in a probe; plain letters, so that no filter changes it. */
const PROBE = 'entracteprobe'

// ---------------------------------------------------------------- literal text

const PRIVATE_USE_FIRST = 0xe000
const PRIVATE_USE_LAST = 0xf8ff

/** Characters for private use that occur in none of the strings of `value`. */
function freeMarks(value: unknown, count: number): string[] {
  const taken = new Set<string>()
  deep(value, (text) => {
    for (const char of text) if (char >= '\ue000' && char <= '\uf8ff') taken.add(char)
    return text
  })
  const marks: string[] = []
  for (let code = PRIVATE_USE_FIRST; code <= PRIVATE_USE_LAST && marks.length < count; code++) {
    const char = String.fromCharCode(code)
    if (!taken.has(char)) marks.push(char)
  }
  if (marks.length < count) throw new TemplateError('the messages use all characters for private use')
  return marks
}

/** A copy with every string in it changed, keys included. */
function deep<T>(value: T, change: (text: string) => string): T {
  const walk = (item: unknown): unknown => {
    if (typeof item === 'string') return change(item)
    if (Array.isArray(item)) return item.map(walk)
    if (typeof item !== 'object' || item === null) return item
    return Object.fromEntries(Object.entries(item).map(([key, member]) => [change(key), walk(member)]))
  }
  return walk(value) as T
}

function split(text: string, marks: readonly string[], spellings: readonly string[]): Segment[] {
  let segments: Segment[] = [{ text, literal: false }]
  for (const [i, mark] of marks.entries()) {
    const spelling = spellings[i] ?? ''
    segments = segments.flatMap((segment) => segment.literal ? [segment] : splitAt(segment.text, mark, spelling))
  }
  return segments.filter((segment) => segment.text !== '')
}

const splitAt = (text: string, mark: string, spelling: string): Segment[] =>
  text.split(mark).flatMap((part, i) =>
    i === 0 ? [{ text: part, literal: false }] : [{ text: spelling, literal: true }, { text: part, literal: false }])

const reason = (error: unknown): string => error instanceof Error ? error.message : String(error)
