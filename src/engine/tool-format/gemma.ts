/**
 * Owns the form of Gemma 4: keys without quotes, and text between marks of its own.
 *
 *   <|tool_call>call:x{city:<|"|>Ulm<|"|>,days:3}<tool_call|>
 */
import { NAME_CHARS_MAX, NotACall } from './format.ts'
import type { ToolFormat } from './format.ts'
import { readMembers } from './loose-value.ts'
import type { LooseSyntax } from './loose-value.ts'

const OPEN = '<|tool_call>'
const CLOSE = '<tool_call|>'
const QUOTE = '<|"|>'
const SYNTAX: LooseSyntax = { quotes: [{ mark: QUOTE, escaped: false }, { mark: '"', escaped: true }], bareKeys: true }

export const gemma: ToolFormat = {
  name: 'gemma',
  opens: [OPEN],
  bare: '',
  lead: '',
  tags: [CLOSE, QUOTE],
  writing: null,
  *read(_open, section) {
    yield* section.space()
    yield* section.must('call:')
    const name = (yield* section.until(['{'], NAME_CHARS_MAX)).text.trim()
    if (!/^[^\s{}<>"]+$/.test(name)) throw new NotACall()
    section.begin(name)
    section.add('{')
    yield* readMembers(section, SYNTAX, 0)
    section.add('}')
    section.done()
    yield* section.space()
    yield* section.close(CLOSE)
  },
}
