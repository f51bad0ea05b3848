/**
 * Owns arguments that a model writes one by one as text, not as a JSON object: what the text of a value means by the
 * tool's parameters, and the JSON that is told of it. Text is text where the parameter is declared so, or is no JSON.
 */
import type { ToolDefinition } from '../../protocol/chat.ts'
import { jsonText } from '../grammar/json-text.ts'
import type { Section } from './format.ts'

export class ValueArguments {
  readonly #section: Section
  readonly #tool: ToolDefinition | null
  #begun = false

  /** A call begins. */
  constructor(section: Section, name: string) {
    this.#section = section
    this.#tool = section.tools.find((tool) => tool.name === name) ?? null
    section.begin(name)
    section.add('{')
  }

  /** `isText`: as the form says it; null where it does not. */
  add(key: string, written: string, isText: boolean | null = null): void {
    const value = isText ?? this.#isText(key) ? JSON.stringify(written) : asJson(written)
    this.#section.add(`${this.#begun ? ', ' : ''}${JSON.stringify(key)}: ${value}`)
    this.#begun = true
  }

  end(): void {
    this.#section.add('}')
  }

  #isText(key: string): boolean {
    const { properties } = fields(this.#tool?.parameters)
    const { type } = fields(fields(properties)[key])
    return type === 'string'
  }
}

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
