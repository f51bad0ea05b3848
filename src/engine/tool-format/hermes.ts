/**
 * Owns the Hermes form, which Qwen, Granite 4 and many others have too:
 *
 *   content\n<tool_call>\n{"name": "x", "arguments": {...}}\n</tool_call>\n<tool_call>\n...
 */
import type { CallWriting, ToolFormat } from './format.ts'
import { readJsonCall } from './json-call.ts'
import type { JsonKeys } from './json-call.ts'

const OPEN = '<tool_call>'
const CLOSE = '</tool_call>'
const KEYS: JsonKeys = { name: 'name', arguments: ['arguments'], others: null, offered: false }

export const hermesWriting: CallWriting = {
  begin: '',
  head: (name) => `${OPEN}\n{"name": ${JSON.stringify(name)}, "arguments": `,
  tail: `}\n${CLOSE}`,
  between: '\n',
  end: '',
}

export const hermes: ToolFormat = {
  name: 'hermes',
  opens: [OPEN],
  bare: '',
  lead: '\n',
  tags: [CLOSE],
  writing: hermesWriting,
  *read(_open, section) {
    yield* section.space()
    yield* readJsonCall(section, KEYS)
    yield* section.space()
    yield* section.close(CLOSE)
  },
}
