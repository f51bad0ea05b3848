/**
 * Owns turning messages and tools into the text a model was trained on, through the chat template of its file. The only
 * place that knows the template engine. Leaves tokens to `measure.ts`.
 *
 * A template that writes tool calls in the Hermes form (`tools.ts`) is given the tools; any other is given plain turns:
 * the tool list in the system text, calls in the assistant's text, results as a user's turn. So what is rendered, what
 * a grammar forces and what the parser reads is one form, and a parsed message renders as the model wrote it.
 *
 * P1 the arguments of a call stand in the text exactly as they are given, whatever the template would do to them: a
 *    placeholder goes through the template in their place.
 * P2 in `segments`, what is marked literal came from a user, a tool or a model and spells a control token: it must not
 *    be read as one. Only such text is marked; all else is tokenised as a whole, as the model's own tooling does it.
 */
import { Template } from '@huggingface/jinja'
import type { ChatMessage, ToolDefinition } from '../protocol/chat.ts'
import { jsonText } from './grammar/json-text.ts'
import { CALL_CLOSE, CALL_OPEN, CALL_TAIL, callHead, callsText } from './tools.ts'

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

/** How a template takes the arguments of a call. */
type ArgumentsAs = 'text' | 'object'

export class ChatTemplate {
  readonly #template: Template
  readonly #source: TemplateSource
  /** Null: the template does not write tools in our form. */
  readonly #nativeArguments: ArgumentsAs | null
  readonly #takesSystem: boolean

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
    const probes: ArgumentsAs[] = ['text', 'object']
    this.#nativeArguments = probes.find((as) => writesOurForm(template, as)) ?? null
    this.#takesSystem = rendered(template, [turn('system', PROBE), turn('user', 'x')], null)?.includes(PROBE) ?? false
  }

  /** The template itself is given tools, calls and results. */
  get nativeTools(): boolean {
    return this.#nativeArguments !== null
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
    const as = this.#nativeArguments
    const given: string[] = []
    const placeholder = (text: string): unknown => {
      const name = `${mark}${given.push(text) - 1}${mark}`
      return as === 'object' ? { [name]: 0 } : name
    }
    const turns = as === null
      ? this.#plainTurns(messages, tools)
      : messages.map((message) => nativeTurn(message, placeholder))
    const context = this.#context(turns, as === null || tools.length === 0 ? null : tools.map(nativeTool))
    const text = this.#run(context)
    const filled = given.reduce((left, written, i) => fill(left, `${mark}${i}${mark}`, written), text)
    const bos = this.#source.bosText
    return this.#source.addBos && bos !== '' && !filled.startsWith(bos) ? bos + filled : filled
  }

  #context(turns: readonly Turn[], tools: readonly unknown[] | null): Record<string, unknown> {
    return {
      messages: turns,
      tools,
      add_generation_prompt: true,
      bos_token: this.#source.bosText,
      eos_token: this.#source.eosText,
    }
  }

  #run(context: Record<string, unknown>): string {
    try {
      return this.#template.render(context)
    } catch (error) {
      throw new TemplateError(`the model's chat template refused these messages: ${reason(error)}`, { cause: error })
    }
  }

  /** The same conversation in turns that any template knows. */
  #plainTurns(messages: readonly ChatMessage[], tools: readonly ToolDefinition[]): Turn[] {
    const turns: Turn[] = []
    for (const [i, message] of messages.entries()) {
      const last = turns.at(-1)
      const result = resultText(message.content)
      if (message.role !== 'tool') turns.push(turn(message.role, callsText(message.content, message.toolCalls)))
      else if (messages[i - 1]?.role === 'tool' && last !== undefined) last.content += `\n${result}`
      else turns.push(turn('user', result))
    }
    const [first] = turns
    const given = first?.role === 'system' ? [first.content] : []
    const rest = turns.slice(given.length)
    const text = [...given, ...(tools.length > 0 ? [toolsText(tools)] : [])].join('\n\n')
    if (tools.length === 0 && given.length === 0) return rest
    const [user] = rest
    if (this.#takesSystem || user?.role !== 'user') return [turn('system', text), ...rest]
    return [turn('user', `${text}\n\n${user.content}`), ...rest.slice(1)]
  }
}

// ---------------------------------------------------------------- turns

interface Turn {
  readonly role: string
  content: string
  readonly tool_calls?: readonly unknown[]
  readonly tool_call_id?: string
}

const turn = (role: string, content: string): Turn => ({ role, content })

function nativeTurn(message: ChatMessage, placeholder: (text: string) => unknown): Turn {
  const { role, content, toolCalls, toolCallId } = message
  const calls = toolCalls.map((call) => ({
    id: call.id, type: 'function', function: { name: call.name, arguments: placeholder(call.arguments) },
  }))
  return {
    role,
    content,
    ...(calls.length > 0 ? { tool_calls: calls } : {}),
    ...(toolCallId === null ? {} : { tool_call_id: toolCallId }),
  }
}

const nativeTool = ({ name, description, parameters }: ToolDefinition): unknown =>
  ({ type: 'function', function: { name, description, parameters } })

const resultText = (content: string): string => `<tool_response>\n${content}\n</tool_response>`

/** The Hermes wording, as the models that know the form have seen it. */
const toolsText = (tools: readonly ToolDefinition[]): string => [
  '# Tools\n\nYou may call one or more functions to assist with the user query.\n',
  'You are provided with function signatures within <tools></tools> XML tags:\n<tools>',
  ...tools.map((tool) => jsonText(nativeTool(tool))),
  '</tools>\n',
  'For each function call, return a json object with function name and arguments within '
  + `${CALL_OPEN}${CALL_CLOSE} XML tags:\n${CALL_OPEN}`,
  `{"name": <function-name>, "arguments": <args-json-object>}\n${CALL_CLOSE}`,
].join('\n')

// ---------------------------------------------------------------- probing

/** Stands for any text in a probe; plain letters, so that no filter changes it. */
const PROBE = 'entracteprobe'

/** The tool, the call in our form and its result all come out. */
function writesOurForm(template: Template, as: ArgumentsAs): boolean {
  const given = as === 'text' ? PROBE : { [PROBE]: 0 }
  const call = { id: 'a', type: 'function', function: { name: 'f', arguments: given } }
  const text = rendered(template, [
    turn('user', 'x'),
    { ...turn('assistant', ''), tool_calls: [call] },
    { ...turn('tool', `${PROBE}result`), tool_call_id: 'a' },
  ], [nativeTool({ name: `${PROBE}tool`, description: 'd', parameters: { type: 'object', properties: {} } })])
  if (text === null || !text.includes(`${PROBE}tool`) || !text.includes(`${PROBE}result`)) return false
  const spelled = fill(text.replaceAll(`${PROBE}tool`, '').replaceAll(`${PROBE}result`, ''), PROBE, '{"k": 1}')
  return spelled.includes(`${callHead('f')}{"k": 1}${CALL_TAIL}`)
}

/** Null where the template refuses. */
function rendered(template: Template, messages: readonly Turn[], tools: readonly unknown[] | null): string | null {
  try {
    return template.render({ messages, tools, add_generation_prompt: true, bos_token: '', eos_token: '' })
  } catch (error) {
    // A template may raise at what it does not support: that is the answer here.
    if (error instanceof Error) return null
    throw error
  }
}

/** Puts `written` where the placeholder came out: as an object's only key, quoted, or bare. */
function fill(text: string, placeholder: string, written: string): string {
  for (const form of [`{${JSON.stringify(placeholder)}: 0}`, JSON.stringify(placeholder), placeholder]) {
    if (text.includes(form)) return text.replace(form, () => written)
  }
  return text
}

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
