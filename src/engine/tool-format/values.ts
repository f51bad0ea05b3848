/**
 * Owns arguments that a model writes one by one as text, not as a JSON object: what the text of a value means by the
 * tool's parameters, and the JSON that is told of it. Text is text where the parameter is declared so, or is no JSON.
 */
import type { ToolDefinition } from '../../protocol/chat.ts'
import { jsonText } from '../grammar/json-text.ts'
import { VALUE_CHARS_MAX } from './format.ts'
import type { Reading, Section } from './format.ts'

export class ValueArguments {
  readonly #section: Section
  readonly #name: string
  readonly #tool: ToolDefinition | null
  #begun = false
  #first = true

  constructor(section: Section, name: string) {
    this.#section = section
    this.#name = name
    this.#tool = section.tools.find((tool) => tool.name === name) ?? null
  }

  /**
   * Reads the value of a parameter up to `close`; text goes out as it comes. `isText`: as the form says it; null where it
   * does not. `breaks`: a line break at each end belongs to the form.
   */
  *read(key: string, close: string, isText: boolean | null = null, breaks = false): Reading {
    this.#begin()
    this.#section.add(`${this.#first ? '' : ', '}${JSON.stringify(key)}: `)
    this.#first = false
    if (isText ?? this.#isText(key)) {
      const text = new TextValue(breaks)
      this.#section.add('"')
      yield* this.#section.pieces(close, VALUE_CHARS_MAX, (piece) => this.#section.add(text.written(piece)))
      this.#section.add('"')
      return
    }
    const { text } = yield* this.#section.until([close], VALUE_CHARS_MAX)
    this.#section.add(asJson(breaks ? withoutBreaks(text) : text))
  }

  end(): void {
    this.#begin()
    this.#section.add('}')
    this.#section.done()
  }

  #begin(): void {
    if (this.#begun) return
    this.#begun = true
    this.#section.begin(this.#name)
    this.#section.add('{')
  }

  #isText(key: string): boolean {
    const { properties } = fields(this.#tool?.parameters)
    const { type } = fields(fields(properties)[key])
    return type === 'string'
  }
}

/** What a value that is text is written as in JSON, without its quotes. */
class TextValue {
  readonly #breaks: boolean
  #fresh = true
  #held = ''

  constructor(breaks: boolean) {
    this.#breaks = breaks
  }

  written(piece: string): string {
    return JSON.stringify(this.#breaks ? this.#unbroken(piece) : piece).slice(1, -1)
  }

  /** Without a line break at the beginning, and without one that may be at the end. */
  #unbroken(piece: string): string {
    let text = this.#held + piece
    if (text === '') return ''
    if (this.#fresh && text.startsWith('\n')) text = text.slice(1)
    this.#fresh = false
    this.#held = text.endsWith('\n') ? '\n' : ''
    return text.slice(0, text.length - this.#held.length)
  }
}

/** Without one line break at each end. */
const withoutBreaks = (text: string): string => text.replace(/^\n/, '').replace(/\n$/, '')

const fields = (value: unknown): Record<string, unknown> =>
  typeof value === 'object' && value !== null ? value as Record<string, unknown> : {}

/** As the templates write what is no text: JSON, or Python's words. */
const WORDS: ReadonlyMap<string, string> = new Map([['True', 'true'], ['False', 'false'], ['None', 'null']])

function asJson(written: string): string {
  const text = written.trim()
  try {
    return jsonText(JSON.parse(WORDS.get(text) ?? text))
  } catch (error) {
    if (error instanceof SyntaxError) return JSON.stringify(written)
    throw error
  }
}
