/**
 * Owns the forms that write the name of a call before its arguments, each between marks of its own.
 *
 *   <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>x<｜tool▁sep｜>{...}<｜tool▁call▁end｜><｜tool▁calls▁end｜>       DeepSeek
 *   <|tool_calls_section_begin|><|tool_call_begin|>functions.x:0<|tool_call_argument_begin|>{...}...         Kimi K2
 *   <|tool_calls|><|tool_call:begin|>id<|tool_call:name|>x<|tool_call:args|>{...}<|tool_call:end|>         Solar
 *   <function=x>{...}</function>                                                                     Functionary
 */
import { NAME_CHARS_MAX, NotACall } from './format.ts'
import type { ToolFormat } from './format.ts'
import { readJsonObject } from './json-object.ts'

interface Marks {
  readonly name: string
  /** Around all calls; '' where there are no such marks. */
  readonly open: string
  readonly close: string
  readonly callOpen: string
  /** Ends an id before the name, where there is one. */
  readonly idEnd?: string
  readonly nameEnd: string
  readonly callClose: string
}

const marked = (marks: Marks, more: Partial<ToolFormat> = {}): ToolFormat => {
  const { name, open, close, callOpen, idEnd, nameEnd, callClose } = marks
  const first = open === '' ? callOpen : open
  return {
    name, opens: [first], bare: '', lead: '',
    tags: [close, callOpen, idEnd ?? '', nameEnd, callClose].flatMap((mark) => mark.match(/<[^<>]*>/g) ?? []),
    writing: {
      begin: open, head: (called) => `${callOpen}${called}${nameEnd}`, tail: callClose, between: '', end: close,
    },
    *read(_open, section) {
      if (open !== '') {
        yield* section.space()
        yield* section.must(callOpen)
      }
      for (;;) {
        if (idEnd !== undefined) yield* section.until([idEnd], NAME_CHARS_MAX)
        const { text } = yield* section.until([nameEnd], NAME_CHARS_MAX)
        const called = nameOf(text)
        if (called === '') throw new NotACall()
        yield* section.space()
        yield* readJsonObject(section, called)
        yield* section.close(callClose)
        if (open === '') return
        yield* section.space()
        if (!(yield* section.found(callOpen))) return yield* section.close(close)
      }
    },
    ...more,
  }
}

/** Without what Kimi puts around it. */
const nameOf = (text: string): string => text.trim().replace(/^functions\./, '').replace(/:[0-9]+$/, '')

const DEEPSEEK = { open: '<｜tool▁calls▁begin｜>', close: '<｜tool▁calls▁end｜>' }

export const namedJson: readonly ToolFormat[] = [
  marked({
    ...DEEPSEEK, name: 'deepseek', callOpen: '<｜tool▁call▁begin｜>', nameEnd: '<｜tool▁sep｜>', callClose: '<｜tool▁call▁end｜>',
  }),
  marked({
    ...DEEPSEEK, name: 'deepseek-r1',
    callOpen: '<｜tool▁call▁begin｜>function<｜tool▁sep｜>', nameEnd: '\n```json\n', callClose: '\n```<｜tool▁call▁end｜>',
  }),
  marked({
    name: 'kimi', open: '<|tool_calls_section_begin|>', close: '<|tool_calls_section_end|>',
    callOpen: '<|tool_call_begin|>', nameEnd: '<|tool_call_argument_begin|>', callClose: '<|tool_call_end|>',
  }, {
    writing: null, callId: (name, index) => `functions.${name}:${index}`,
    // With its place among the calls of the message.
    forced: {
      begin: '<|tool_calls_section_begin|>', head: (called) => `<|tool_call_begin|>functions.${called}:0<|tool_call_argument_begin|>`,
      tail: '<|tool_call_end|>', between: '', end: '<|tool_calls_section_end|>',
    },
  }),
  marked({
    name: 'solar', open: '<|tool_calls|>', close: '', callOpen: '<|tool_call:begin|>', idEnd: '<|tool_call:name|>',
    nameEnd: '<|tool_call:args|>', callClose: '<|tool_call:end|>',
  }, {
    writing: null,
    forced: {
      begin: '<|tool_calls|>', head: (called) => `<|tool_call:begin|>call00000<|tool_call:name|>${called}<|tool_call:args|>`,
      tail: '<|tool_call:end|>', between: '', end: '',
    },
  }),
  marked({
    name: 'functionary', open: '', close: '', callOpen: '<function=', nameEnd: '>', callClose: '</function>',
  }),
]
