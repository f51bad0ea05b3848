/**
 * Owns the form of Granite 3:
 *
 *   <|tool_call|>[{"name": "x", "arguments": {...}}, ...]
 */
import { listWriting } from './format.ts'
import type { ToolFormat } from './format.ts'
import { readJsonList } from './json-call.ts'
import type { JsonKeys } from './json-call.ts'

const OPEN = '<|tool_call|>'
const KEYS: JsonKeys = { name: 'name', arguments: ['arguments'], others: null, offered: false }

export const granite: ToolFormat = {
  name: 'granite',
  opens: [OPEN, '<tool_call>['],
  bare: '',
  lead: '',
  tags: [],
  writing: listWriting(OPEN),
  *read(open, section) {
    yield* section.space()
    if (open === OPEN) yield* section.must('[')
    yield* readJsonList(section, KEYS)
  },
}
