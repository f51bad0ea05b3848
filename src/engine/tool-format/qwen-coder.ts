/**
 * Owns the form of Qwen3-Coder, which Qwen3.5, Nemotron 3 and StepFun have too. The line breaks around a value belong
 * to the form.
 *
 *   <tool_call>\n<function=x>\n<parameter=city>\nUlm\n</parameter>\n</function>\n</tool_call>
 */
import { NAME_CHARS_MAX, NotACall } from './format.ts'
import type { ToolFormat } from './format.ts'
import { ValueArguments } from './values.ts'

const OPEN = '<tool_call>'
const CLOSE = '</tool_call>'
const BARE_OPEN = '<function='

export const qwenCoder: ToolFormat = {
  name: 'qwen-coder',
  opens: [OPEN, BARE_OPEN],
  bare: '',
  lead: '\n',
  tags: [CLOSE],
  writing: null,
  values: {
    head: (name) => `${OPEN}\n<function=${name}>\n`, open: (key) => `<parameter=${key}>\n`, close: '\n</parameter>\n',
    tail: `</function>\n${CLOSE}`, mark: '</parameter>',
  },
  *read(open, section) {
    if (open === OPEN) {
      yield* section.space()
      yield* section.must(BARE_OPEN)
    }
    const name = (yield* section.until(['>'], NAME_CHARS_MAX)).text.trim()
    if (name === '') throw new NotACall()
    const given = new ValueArguments(section, name)
    for (;;) {
      yield* section.space()
      if (!(yield* section.found('<parameter='))) break
      const key = (yield* section.until(['>'], NAME_CHARS_MAX)).text.trim()
      yield* given.read(key, '</parameter>', null, true)
    }
    yield* section.must('</function>')
    given.end()
    if (open !== OPEN) return
    yield* section.space()
    yield* section.close(CLOSE)
  },
}
