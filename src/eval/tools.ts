/**
 * Owns the tools of the demo's agents. Each does real work on what the model wrote, which may be nonsense: a tool
 * answers with what was wrong and never throws for it. How long a tool takes is its caller's to say.
 */
import { calculate } from './calculator.ts'
import { Corpus } from './corpus.ts'
import { readData } from './data-files.ts'

export type ToolName = 'calculator' | 'search' | 'lookup' | 'ask_person'

export interface ToolSchema {
  readonly type: 'function'
  readonly function: {
    readonly name: ToolName
    readonly description: string
    readonly parameters: Readonly<Record<string, unknown>>
  }
}

/** One bounded text, so that a forced call is short whatever the model would like to say. */
const schema = (name: ToolName, description: string, argument: string, charactersMax: number): ToolSchema => ({
  type: 'function',
  function: {
    name,
    description,
    parameters: {
      type: 'object',
      properties: { [argument]: { type: 'string', minLength: 1, maxLength: charactersMax } },
      required: [argument],
      additionalProperties: false,
    },
  },
})

export const TOOLS: Readonly<Record<ToolName, ToolSchema>> = {
  calculator: schema('calculator', 'Work out an expression.', 'expression', 24),
  search: schema('search', 'Find passages about something.', 'query', 32),
  lookup: schema('lookup', 'Read the record of a part.', 'part', 8),
  ask_person: schema('ask_person', 'Ask the person and wait.', 'question', 48),
}

export class Toolbox {
  readonly #corpus = Corpus.load()
  readonly #records = Object.entries(readData<Readonly<Record<string, string>>>('corpus', 'records.json'))
  readonly #answers = readData<readonly string[]>('corpus', 'answers.json')

  /** `argumentsJson` as the model wrote it; the result fills about `characters`, and never more. */
  run(name: ToolName, argumentsJson: string, characters: number): string {
    const argument = textArgument(argumentsJson)
    switch (name) {
      case 'calculator': return cut(worked(argument), characters)
      case 'search': return cut(this.#found(argument), characters)
      case 'lookup': return cut(this.#record(argument), characters)
      case 'ask_person': return cut(this.#answer(argument), characters)
    }
  }

  #found(query: string): string {
    return this.#corpus.search(query).map(({ title, text }) => `${title}: ${text}`).join('\n')
  }

  /** The part asked for and those on the shelves after it; for a part that is not kept, the nearest number. */
  #record(part: string): string {
    const exact = this.#records.findIndex(([key]) => key === part.trim())
    const start = exact >= 0 ? exact : hashOf(part) % this.#records.length
    const records = rotated(this.#records, start).map(([key, text]) => `${key}: ${text}`)
    return exact >= 0 ? records.join('\n') : [`No part ${part.trim()}. Did you mean`, ...records].join('\n')
  }

  #answer(question: string): string {
    const start = hashOf(question)
    const texts = rotated(this.#corpus.passages, start % this.#corpus.passages.length).map(({ text }) => text)
    return [...rotated(this.#answers, start % this.#answers.length), 'This is what I have on it.', ...texts].join(' ')
  }
}

function worked(expression: string): string {
  const result = calculate(expression)
  return result.ok ? `${expression.trim()} = ${result.value}` : `Cannot work out ${expression.trim()}: ${result.why}.`
}

/** The one text among the arguments; what is not JSON is taken as it stands. */
function textArgument(json: string): string {
  try {
    const parsed: unknown = JSON.parse(json)
    const values = typeof parsed === 'object' && parsed !== null ? Object.values(parsed) : [parsed]
    return values.filter((value) => typeof value === 'string').join(' ')
  } catch (error) {
    if (error instanceof SyntaxError) return json
    throw error
  }
}

/** At a space, so that no word is broken; at least one character. */
export function cut(text: string, characters: number): string {
  if (text.length <= characters) return text
  const space = text.lastIndexOf(' ', characters)
  return text.slice(0, space > characters / 2 ? space : Math.max(1, characters))
}

const rotated = <T>(list: readonly T[], by: number): T[] => [...list.slice(by), ...list.slice(0, by)]

function hashOf(text: string): number {
  let hash = 2_166_136_261
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 16_777_619)
  return hash >>> 0
}
