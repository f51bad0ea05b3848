import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import type { ChatMessage, ToolDefinition } from '../../src/protocol/chat.ts'
import { TemplateError } from '../../src/engine/template.ts'
import type { ChatTemplate } from '../../src/engine/template.ts'
import { ToolCallParser } from '../../src/engine/tools.ts'
import { CHATML, HERMES_JSON, HERMES_OBJECT, HERMES_TEXT, STRICT, compile } from './templates.ts'

const message = (
  role: ChatMessage['role'], content: string, calls: readonly (readonly [string, string])[] = [],
): ChatMessage => ({
  role, content, toolCalls: calls.map(([name, given], i) => ({ id: `c${i}`, name, arguments: given })),
  toolCallId: role === 'tool' ? 'c0' : null,
})

const find: ToolDefinition = {
  name: 'find', description: 'looks <here>', parameters: { type: 'object', properties: { q: { type: 'string' } } },
}

const textOf = (
  template: ChatTemplate, messages: readonly ChatMessage[], tools: readonly ToolDefinition[] = [],
): string =>
  template.render(messages, tools).map(({ text }) => text).join('')

const turns = [
  message('user', 'hi'), message('assistant', 'I look.', [['find', '{"q":  1}'], ['find', '{}']]),
  message('tool', 'one'), message('tool', 'two'),
]

const FORM = 'I look.\n<tool_call>\n{"name": "find", "arguments": {"q":  1}}\n</tool_call>\n'
  + '<tool_call>\n{"name": "find", "arguments": {}}\n</tool_call>'

describe('a chat template', () => {
  test('is given tools only where it writes calls in a form that is known', () => {
    const useOf = (source: string): string => compile(source).toolUse.kind
    assert.deepEqual([CHATML, STRICT].map(useOf), ['plain', 'plain'])
    assert.deepEqual([HERMES_JSON, HERMES_TEXT, HERMES_OBJECT].map(useOf), ['native', 'native', 'native'])
    const otherForm = HERMES_JSON.replaceAll('<tool_call>', '<call>')
    assert.equal(useOf(otherForm), 'plain')
    const dropsResults = HERMES_JSON.replace("+ message.content + '\\n</tool_response>", "+ '</tool_response>")
    assert.equal(useOf(dropsResults), 'written')
  })

  test('writes calls in one form and their arguments as they were given, whatever it does to arguments', () => {
    for (const source of [CHATML, HERMES_JSON, HERMES_TEXT, HERMES_OBJECT, STRICT]) {
      const text = textOf(compile(source), turns, [find])
      assert(text.includes(`<|im_start|>assistant\n${FORM}<|im_end|>\n`), text)
      for (const result of ['one', 'two']) assert(text.includes(`<tool_response>\n${result}\n</tool_response>`))
      assert(text.includes('"name": "find", "description": "looks <here>", "parameters": {"type": "object"'), text)
      assert(text.endsWith('<|im_start|>assistant\n'))
    }
  })

  test('whose calls are parsed renders them as they were written', () => {
    const given = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 2 }))
      .map((value) => JSON.stringify(value, null, 1))
    const calls = fc.array(fc.tuple(fc.stringMatching(/^[a-z]{1,6}$/), given), { minLength: 1, maxLength: 3 })
    const templates = [CHATML, HERMES_JSON, HERMES_TEXT, HERMES_OBJECT].map((source) => compile(source))
    const contents = fc.constantFrom('', 'Wait.', 'a\n\n')
    fc.assert(fc.property(calls, contents, fc.constantFrom(...templates), (called, content, template) => {
      const before = [message('user', 'hi')]
      const prompt = textOf(template, before, [find])
      const text = textOf(template, [...before, message('assistant', content, called)], [find])
      assert(text.startsWith(prompt))
      const written = text.slice(prompt.length, text.indexOf('<|im_end|>', prompt.length))
      const parser = new ToolCallParser({ format: template.toolUse.format, tools: [] })
      parser.push(written)
      parser.end()
      assert.deepEqual(parser.message, { content, toolCalls: called.map(([name, own]) => ({ name, arguments: own })) })
    }), { numRuns: 200 })
  })
})

describe('any chat template', () => {
  test('without tools of its own gets the list in the system text, and results as one user turn', () => {
    const text = textOf(compile(CHATML), [message('system', 'Short.'), ...turns], [find])
    assert.match(
      text,
      /^<\|im_start\|>system\nShort\.\n\n# Tools\n.*<tools>\n\{"type": .*<\/tools>.*\n<\|im_start\|>user\nhi/s,
    )
    const results = '<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>'
    assert(text.includes(`<|im_start|>user\n${results}<|im_end|>`))
    assert(textOf(compile(CHATML), turns, [find]).startsWith('<|im_start|>system\n# Tools'))
    assert(!textOf(compile(CHATML), [message('user', 'hi')]).includes('# Tools'))
  })

  test('without a system turn gets its text before the first user turn', () => {
    const text = textOf(compile(STRICT), [message('system', 'Short.'), message('user', 'hi')])
    assert.equal(text, '<|im_start|>user\nShort.\n\nhi<|im_end|>\n<|im_start|>assistant\n')
    assert(textOf(compile(STRICT), [message('user', 'hi')], [find]).startsWith('<|im_start|>user\n# Tools'))
  })

  test('that does not parse, or refuses the messages, says so', () => {
    assert.throws(() => compile('{% if %}'), TemplateError)
    assert.throws(
      () => textOf(compile(STRICT), [message('user', 'a'), message('user', 'b')]),
      /refused these messages: Turns must alternate/,
    )
  })

  test('begins with the beginning token where the vocabulary wants one, once', () => {
    assert(textOf(compile(CHATML, true), [message('user', 'hi')]).startsWith('<|x|><|im_start|>system'))
    assert(textOf(compile(`{{ bos_token }}${CHATML}`, true), [message('user', 'hi')]).startsWith('<|x|><|im_start|>'))
  })

  test('keeps hidden spellings literal wherever they come from, and only there', () => {
    const spelled = '<|im_end|>'
    const messages = [
      message('user', `a${spelled}b \ue000\ue001`),
      message('assistant', '', [['find', `{"q": "${spelled}"}`]]), message('tool', spelled),
    ]
    const tools = [{ ...find, description: `d ${spelled}` }]
    for (const source of [CHATML, HERMES_JSON, HERMES_TEXT, HERMES_OBJECT]) {
      const template = compile(source)
      const segments = template.render(messages, tools, [spelled])
      assert.equal(segments.map(({ text }) => text).join(''), textOf(template, messages, tools))
      assert.equal(segments.filter(({ literal }) => literal).length, 4)
      assert(segments.every(({ text, literal }) => !literal || text === spelled))
      const written = segments.map(({ text, literal }) => literal ? '' : text).join('')
      assert.equal(written.split('<|im_end|>').length - 1, 4, 'the turns of the template itself stay')
    }
  })
})
