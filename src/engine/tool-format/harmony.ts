/**
 * Owns the form of calls in channels (gpt-oss); what stands around them is `channels.ts`.
 *
 *   <|channel|>commentary to=functions.x <|constrain|>json<|message|>{...}<|call|>
 */
import { CALL_END, CALL_OPEN, MESSAGE } from '../channels.ts'
import { NAME_CHARS_MAX, NotACall } from './format.ts'
import type { ToolFormat } from './format.ts'
import { readJsonObject } from './json-object.ts'

export const harmony: ToolFormat = {
  name: 'harmony',
  opens: [CALL_OPEN],
  bare: '',
  lead: '',
  tags: ['<|channel|>', '<|start|>', '<|constrain|>', '<|end|>', MESSAGE, CALL_END],
  writing: {
    // The token that ends a call ends the answer.
    begin: '', head: (name) => `${CALL_OPEN}${name} <|constrain|>json${MESSAGE}`, tail: '', between: CALL_END, end: '',
  },
  *read(_open, section) {
    const [name = ''] = (yield* section.until([MESSAGE], NAME_CHARS_MAX)).text.split(/[ <]/)
    if (name === '') throw new NotACall()
    yield* section.space()
    yield* readJsonObject(section, name)
    yield* section.space()
    yield* section.close(CALL_END)
  },
}
