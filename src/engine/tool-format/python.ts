/**
 * Owns the form of LFM 2: a list of calls as Python writes them.
 *
 *   <|tool_call_start|>[x(city='Ulm', days=3), y()]<|tool_call_end|>
 */
import { jsonText } from '../grammar/json-text.ts'
import { NAME_CHARS_MAX, NotACall } from './format.ts'
import type { Reading, Section, ToolFormat } from './format.ts'
import { readLoose } from './loose-value.ts'
import type { LooseSyntax } from './loose-value.ts'

const OPEN = '<|tool_call_start|>'
const CLOSE = '<|tool_call_end|>'
const SYNTAX: LooseSyntax = { quotes: [{ mark: '"', escaped: true }, { mark: "'", escaped: true }], bareKeys: false }
const NAME = /^[a-zA-Z0-9_.:-]+$/

export const python: ToolFormat = {
  name: 'python',
  opens: [OPEN],
  hints: [OPEN, 'List of tools: [', '<|tool_list_start|>'],
  bare: '',
  lead: '',
  tags: [CLOSE],
  writing: null,
  write: (calls) => `${OPEN}[${calls.map((call) => `${call.name}(${keywords(call.arguments)})`).join(', ')}]${CLOSE}`,
  *read(_open, section) {
    yield* section.space()
    yield* section.must('[')
    do {
      yield* section.space()
      yield* readCall(section)
      yield* section.space()
    } while (yield* section.found(','))
    yield* section.must(']')
    yield* section.space()
    yield* section.close(CLOSE)
  },
}

function* readCall(section: Section): Reading {
  const name = (yield* section.until(['('], NAME_CHARS_MAX)).text
  if (!NAME.test(name)) throw new NotACall()
  section.begin(name)
  section.add('{')
  yield* section.space()
  if (!(yield* section.found(')'))) {
    for (;;) {
      const key = (yield* section.until(['='], NAME_CHARS_MAX)).text.trim()
      if (!NAME.test(key)) throw new NotACall()
      section.add(`${JSON.stringify(key)}: `)
      yield* readLoose(section, SYNTAX)
      yield* section.space()
      if (!(yield* section.found(','))) break
      section.add(', ')
      yield* section.space()
    }
    yield* section.must(')')
  }
  section.add('}')
  section.done()
}

/** What is no object of JSON stands as it is. */
function keywords(given: string): string {
  try {
    const members: unknown = JSON.parse(given)
    if (typeof members !== 'object' || members === null || Array.isArray(members)) return given
    return Object.entries(members).map(([key, value]) => `${key}=${literal(value)}`).join(', ')
  } catch (error) {
    if (error instanceof SyntaxError) return given
    throw error
  }
}

function literal(value: unknown): string {
  if (value === null) return 'None'
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  return jsonText(value)
}
