/**
 * Owns the form without marks of its own: one call or a list of them, as JSON at the beginning of the message. The word
 * that some models write before the list is read too.
 *
 *   {"name": "x", "arguments": {...}}      [{"name": "x", "arguments": {...}}, ...]
 */
import { listWriting } from './format.ts'
import type { ToolFormat } from './format.ts'
import { readJsonCall, readJsonList } from './json-call.ts'
import type { JsonKeys } from './json-call.ts'

const KEYS: JsonKeys = { name: 'name', arguments: ['arguments', 'parameters'], others: ['type', 'id'], offered: true }

export const json: ToolFormat = {
  name: 'json',
  opens: [' functools['],
  bare: '{[',
  lead: '',
  tags: [],
  writing: listWriting(''),
  *read(open, section) {
    if (open !== '' || (yield* section.found('['))) yield* readJsonList(section, KEYS)
    else yield* readJsonCall(section, KEYS)
  },
}
