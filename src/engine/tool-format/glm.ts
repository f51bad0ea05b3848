/**
 * Owns the form of GLM 4, which Laguna has too:
 *
 *   <tool_call>x\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n</tool_call>
 */
import { NAME_CHARS_MAX, NotACall } from './format.ts'
import type { ToolFormat } from './format.ts'
import { ValueArguments } from './values.ts'

const OPEN = '<tool_call>'
const CLOSE = '</tool_call>'
const KEY = '<arg_key>'

export const glm: ToolFormat = {
  name: 'glm',
  opens: [OPEN],
  bare: '',
  lead: '\n',
  tags: [CLOSE, KEY, '</arg_key>', '<arg_value>', '</arg_value>'],
  writing: null,
  values: {
    head: (name) => `${OPEN}${name}\n`, open: (key) => `${KEY}${key}</arg_key>\n<arg_value>`, close: '</arg_value>\n',
    tail: CLOSE, mark: '</arg_value>',
  },
  *read(_open, section) {
    const { text, mark } = yield* section.until(['\n', KEY, CLOSE], NAME_CHARS_MAX)
    const name = text.trim()
    if (!/^[^\s{}<>"]+$/.test(name)) throw new NotACall()
    const given = new ValueArguments(section, name)
    let begun = mark === KEY
    while (mark !== CLOSE) {
      yield* section.space()
      if (!begun && !(yield* section.found(KEY))) break
      begun = false
      const key = (yield* section.until(['</arg_key>'], NAME_CHARS_MAX)).text
      yield* section.space()
      yield* section.must('<arg_value>')
      yield* given.read(key, '</arg_value>')
    }
    given.end()
    if (mark !== CLOSE) yield* section.close(CLOSE)
  },
}
