/**
 * Owns the forms that put JSON between two marks: a list of calls, or one call after another.
 *
 *   <|START_ACTION|>[{"tool_call_id": "0", "tool_name": "x", "parameters": {...}}]<|END_ACTION|>     Command R
 *   <TOOLCALL>[{"name": "x", "arguments": {...}}]</TOOLCALL>                                         Nemotron 2
 *   <tool_calls>\n{"name": "x", "arguments": {...}}\n</tool_calls>                           MiniMax M1, Apriel
 *   <|function_call|>{"name": "x", "arguments": {...}}                                              GigaChat 3
 */
import { listWriting } from './format.ts'
import type { CallWriting, ToolFormat } from './format.ts'
import { readJsonCall, readJsonList } from './json-call.ts'
import type { JsonKeys } from './json-call.ts'

const KEYS: JsonKeys = { name: 'name', arguments: ['arguments', 'parameters'], others: null, offered: false }

interface Marks { readonly name: string; readonly open: string; readonly close: string; readonly keys?: JsonKeys }

const between = ({ name, open, close, keys = KEYS }: Marks, around: Partial<CallWriting>, lead = ''): ToolFormat => ({
  name, opens: [open], bare: '', lead, tags: close === '' ? [] : [close],
  writing: {
    ...listWriting(open, close, { name: keys.name, arguments: keys.arguments[0] ?? '' }),
    ...around,
  },
  *read(_open, section) {
    yield* section.space()
    if (yield* section.found('[')) {
      yield* readJsonList(section, keys)
      yield* section.space()
    } else {
      do {
        yield* readJsonCall(section, keys)
        yield* section.space()
      } while (close !== '' && (yield* section.peek()) === '{')
    }
    yield* section.close(close)
  },
})

export const markedJson: readonly ToolFormat[] = [
  between({
    name: 'command-r', open: '<|START_ACTION|>', close: '<|END_ACTION|>',
    keys: { name: 'tool_name', arguments: ['parameters'], others: null, offered: false },
  }, {}),
  between({ name: 'toolcall', open: '<TOOLCALL>', close: '</TOOLCALL>' }, {}),
  between({ name: 'tool-calls', open: '<tool_calls>', close: '</tool_calls>' }, {
    begin: '<tool_calls>\n', between: '\n', end: '\n</tool_calls>',
  }, '\n'),
  between({ name: 'gigachat', open: '<|function_call|>', close: '' }, {
    begin: '<|function_call|>', between: '<|function_call|>', end: '',
  }),
]
