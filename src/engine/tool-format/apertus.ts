/**
 * Owns the form of Apertus: a list of objects, each with the name as its only key.
 *
 *   <|tools_prefix|>[{"x": {...}}, {"y": {...}}]<|tools_suffix|>
 */
import { NAME_CHARS_MAX, NotACall } from './format.ts'
import type { ToolFormat } from './format.ts'
import { readJsonObject } from './json-object.ts'

const OPEN = '<|tools_prefix|>'
const CLOSE = '<|tools_suffix|>'

export const apertus: ToolFormat = {
  name: 'apertus',
  opens: [OPEN],
  bare: '',
  lead: '',
  tags: [CLOSE],
  writing: { begin: `${OPEN}[`, head: (name) => `{${JSON.stringify(name)}: `, tail: '}', between: ', ', end: `]${CLOSE}` },
  *read(_open, section) {
    yield* section.space()
    yield* section.must('[')
    do {
      yield* section.space()
      yield* section.must('{')
      yield* section.space()
      yield* section.must('"')
      const name = (yield* section.until(['"'], NAME_CHARS_MAX)).text
      if (name === '' || name.includes('\\')) throw new NotACall()
      yield* section.space()
      yield* section.must(':')
      yield* section.space()
      yield* readJsonObject(section, name)
      yield* section.space()
      yield* section.must('}')
      yield* section.space()
    } while (yield* section.found(','))
    yield* section.must(']')
    yield* section.space()
    yield* section.close(CLOSE)
  },
}
