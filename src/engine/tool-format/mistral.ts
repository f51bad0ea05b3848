/**
 * Owns both forms of Mistral: the list of its earlier models, and the one that names each call.
 *
 *   [TOOL_CALLS][{"name": "x", "arguments": {...}}, ...]
 *   [TOOL_CALLS]x[ARGS]{...}[TOOL_CALLS]x[CALL_ID]a1b2c3d4e[ARGS]{...}
 */
import { NAME_CHARS_MAX, NotACall, listWriting } from './format.ts'
import type { Reading, Section, ToolFormat } from './format.ts'
import { readJsonList } from './json-call.ts'
import type { JsonKeys } from './json-call.ts'
import { readJsonObject } from './json-object.ts'

const OPEN = '[TOOL_CALLS]'
const ARGS = '[ARGS]'
const CALL_ID = '[CALL_ID]'
const KEYS: JsonKeys = { name: 'name', arguments: ['arguments'], others: null, offered: false }

export const mistralList: ToolFormat = {
  name: 'mistral-list', opens: [OPEN], bare: '', lead: '', tags: [],
  writing: listWriting(OPEN),
  *read(_open, section) {
    yield* section.space()
    yield* section.must('[')
    yield* readJsonList(section, KEYS)
  },
}

/** The list is read too: models of the newer form fall back to it. */
export const mistral: ToolFormat = {
  name: 'mistral', opens: [OPEN], bare: '', lead: '', tags: [ARGS, CALL_ID],
  writing: { begin: '', head: (name) => `${OPEN}${name}${ARGS}`, tail: '', between: '', end: '' },
  *read(_open, section) {
    yield* section.space()
    if (yield* section.found('[')) yield* readJsonList(section, KEYS)
    else yield* readNamed(section)
  },
}

function* readNamed(section: Section): Reading {
  const { text, mark } = yield* section.until([ARGS, CALL_ID, '{'], NAME_CHARS_MAX)
  const name = text.trim()
  if (name === '' || mark === '{') throw new NotACall()
  if (mark === CALL_ID) yield* section.until([ARGS], NAME_CHARS_MAX)
  yield* section.space()
  yield* readJsonObject(section, name)
}
