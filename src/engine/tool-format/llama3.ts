/**
 * Owns the form of Llama 3: a bare object at the beginning of the message, or after `<|python_tag|>`. Its own code
 * after the tag is no call of ours and stays text.
 *
 *   {"name": "x", "parameters": {...}}
 */
import type { ToolFormat } from './format.ts'
import { readJsonCall } from './json-call.ts'
import type { JsonKeys } from './json-call.ts'

const KEYS: JsonKeys = { name: 'name', arguments: ['parameters', 'arguments'], others: ['type', 'id'], offered: true }

export const llama3: ToolFormat = {
  name: 'llama3',
  opens: ['<|python_tag|>'],
  bare: '{',
  lead: '',
  tags: [],
  writing: {
    begin: '',
    head: (name) => `{"name": ${JSON.stringify(name)}, "parameters": `,
    tail: '}',
    between: '\n',
    end: '',
  },
  *read(_open, section) {
    yield* section.space()
    yield* readJsonCall(section, KEYS)
  },
}
