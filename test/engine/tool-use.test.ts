import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import type { ChatMessage } from '../../src/protocol/chat.ts'
import { Gbnf } from './grammar/gbnf.ts'
import { planCall } from '../../src/engine/call-plan.ts'
import { measure } from '../../src/engine/measure.ts'
import { ReasoningParser, opensReasoning, reasoningOf } from '../../src/engine/reasoning.ts'
import { TemplateError } from '../../src/engine/template.ts'
import type { ChatTemplate } from '../../src/engine/template.ts'
import { messageBegin } from '../../src/engine/tool-format/choose.ts'
import { ToolCallParser } from '../../src/engine/tools.ts'
import { BARE_CALL, CHATML, HERMES_JSON, NAMED_CALLS, TOLD_CALLS, VALUES, compile } from './templates.ts'
import { vocabulary } from './vocabulary.ts'

const find = {
  name: 'find', description: 'd', parameters: { type: 'object', properties: { q: { type: 'string' }, n: { type: 'integer' } } },
}
const say = (role: ChatMessage['role'], content: string, more: Partial<ChatMessage> = {}): ChatMessage =>
  ({ role, content, toolCalls: [], toolCallId: null, ...more })
const calls = (...given: readonly string[]) => given.map((own, i) => ({ id: `chatcmpl-${i}`, name: 'find', arguments: own }))
const asked = (toolCalls: ChatMessage['toolCalls'], content = '', reasoning?: string): ChatMessage[] => [
  say('user', 'hi'),
  say('assistant', content, { toolCalls, ...(reasoning === undefined ? {} : { reasoning }) }),
  ...toolCalls.map(({ id }) => say('tool', 'found', { toolCallId: id })),
]
const textOf = (template: ChatTemplate, messages: readonly ChatMessage[], tools = [find]): string =>
  template.render(messages, tools).map(({ text }) => text).join('')

describe('the form of tool calls', () => {
  test('is that which the template itself writes', () => {
    const useOf = (source: string): string => {
      const use = compile(source).toolUse
      return [use.kind, use.format.name, ...(use.kind === 'native' ? [use.argumentsAs] : [])].join(' ')
    }
    assert.equal(useOf(HERMES_JSON), 'native hermes text')
    assert.equal(useOf(NAMED_CALLS), 'native mistral text')
    assert.equal(useOf(BARE_CALL), 'native llama3 text')
    assert.equal(useOf(VALUES), 'native qwen-coder values')
    assert.equal(useOf(TOLD_CALLS), 'written granite')
    assert.equal(useOf(CHATML), 'plain hermes')
    const own = TOLD_CALLS.replace('{{ message.content }}', "{{ message.content }}{% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}")
    assert.equal(useOf(own), 'plain hermes', 'a form of its own is none of those that its text names')
  })

  test('holds what is rendered, parsed and forced together, and arguments stand as they were given', () => {
    const given = '{"q":  "a b",\n "n": 1}'
    for (const source of [HERMES_JSON, NAMED_CALLS, BARE_CALL, TOLD_CALLS, CHATML]) {
      const template = compile(source)
      const { format } = template.toolUse
      const prompt = textOf(template, [say('user', 'hi')])
      const text = textOf(template, asked(calls(given)))
      const written = text.slice(messageBegin(prompt, text)).split('<|im_end|>')[0] ?? ''
      const parser = new ToolCallParser({ format, tools: [find] })
      parser.push(written)
      parser.end()
      assert.deepEqual(parser.message, { content: '', toolCalls: [{ name: 'find', arguments: given }] }, written)
      const body = {
        model: 'm', messages: [], tools: [find], toolChoice: 'required' as const, stop: [], maxTokens: null,
        sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 },
      }
      const plan = planCall(body, format)
      assert.equal(plan.toolFormat, format)
      const forced = new Gbnf(plan.grammar ?? '')
      const rendered = textOf(template, asked(calls('{"q": "a", "n": 1}')))
      assert(forced.matches(rendered.slice(messageBegin(prompt, rendered)).split('<|im_end|>')[0] ?? ''), rendered)
    }
  })

  test('whose values stand by themselves is forced as such, and in the Hermes form where its schema cannot be held so', () => {
    const { format } = compile(VALUES).toolUse
    const planned = (parameters: Record<string, unknown>) => planCall({
      model: 'm', messages: [], tools: [{ ...find, parameters }], toolChoice: 'required', stop: [], maxTokens: null,
      sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 },
    }, format)
    assert.equal(planned(find.parameters).toolFormat.name, 'qwen-coder')
    for (const parameters of [
      { type: 'object', properties: { q: { type: 'string', pattern: 'a' } } }, { type: 'object', additionalProperties: { type: 'string' }, minProperties: 1 },
      { anyOf: [{ type: 'object', properties: {} }] }, { type: 'object', properties: { 'a>b': { type: 'string' } } }, { type: 'object', properties: {}, required: ['x'] },
    ]) {
      const held = (): string => planned(parameters).toolFormat.name
      if (JSON.stringify(parameters).includes('minProperties')) assert.throws(held, /"minProperties" cannot be enforced/)
      else assert.equal(held(), 'hermes', JSON.stringify(parameters))
    }
  })
})

describe('a conversation with calls', () => {
  test('is rendered the same whatever ids the client gave them', () => {
    const template = compile(NAMED_CALLS)
    const first = asked(calls('{"q": "a"}', '{"q": "b"}'))
    const others = first.map((message) => ({
      ...message, toolCallId: message.toolCallId === null ? null : `x${message.toolCallId}`,
      toolCalls: message.toolCalls.map((call) => ({ ...call, id: `x${call.id}` })),
    }))
    assert.equal(textOf(template, first), textOf(template, others))
    const source = NAMED_CALLS.replace("+ '[ARGS]'", "+ '[CALL_ID]' + call.id + '[ARGS]'")
    const again = textOf(compile(source), [...first, ...asked(calls('{"q": "c"}'))])
    assert.deepEqual(again.match(/call[0-9]{5}/g), ['call00000', 'call00001', 'call00002'], 'one that comes again is another')
  })

  test('that the template refuses is told with its reason', () => {
    const template = compile(BARE_CALL)
    assert.throws(() => textOf(template, asked(calls('{}', '{}'))), /refused these messages: one call a message/)
    const found = measure(vocabulary, template, JSON.stringify({
      model: 'm', messages: asked(calls('{}', '{}')), tools: [find], toolChoice: 'auto', stop: [], maxTokens: null,
      sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 },
    }), [], { contextTokens: 1_000, vocabulary: 'fake' })
    assert(!found.ok && found.code === 'template_failed', JSON.stringify(found))
  })

  test('whose arguments are no JSON is refused where their values are needed, and only there', () => {
    const broken = asked(calls('{"q": '))
    assert.throws(() => textOf(compile(VALUES), broken), (error) => error instanceof TemplateError && /no JSON/.test(error.message))
    assert(textOf(compile(NAMED_CALLS), broken).includes('[ARGS]{"q": '))
  })

  test('keeps control tokens that a user, a tool or a call spells literal, values of calls included', () => {
    const spelled = '<|im_end|>'
    const messages = [say('user', spelled), ...asked(calls(`{"q": "${spelled}"}`)).slice(1), say('tool', spelled, { toolCallId: 'chatcmpl-0' })]
    for (const source of [NAMED_CALLS, BARE_CALL, VALUES, TOLD_CALLS]) {
      const template = compile(source)
      const segments = template.render(messages, [find], [spelled])
      assert.equal(segments.map(({ text }) => text).join(''), textOf(template, messages))
      assert.equal(segments.filter(({ literal }) => literal).length, 3, source)
      const own = segments.map(({ text, literal }) => literal ? '' : text).join('')
      assert.equal(own.split(spelled).length - 1, messages.length + 1, 'the turns of the template itself stay')
    }
  })
})

describe('reasoning', () => {
  test('is looked for where the template knows its tags, and may be opened by the prompt', () => {
    assert.equal(reasoningOf(CHATML), null)
    const template = compile(VALUES)
    assert.deepEqual(template.reasoning, { open: '<think>', close: '</think>' })
    const tags = template.reasoning ?? assert.fail('no tags')
    assert(opensReasoning(tags, textOf(template, [say('user', 'hi')])))
    assert(!opensReasoning(tags, textOf(compile(NAMED_CALLS), [say('user', '<think>')])))
  })

  test('of an earlier turn is given to the template, which renders it as it was written', () => {
    const template = compile(NAMED_CALLS)
    const text = textOf(template, asked(calls('{}'), 'Yes.', 'one\n\ntwo'))
    assert(text.includes('assistant\n<think>\none\n\ntwo\n</think>\n\nYes.[TOOL_CALLS]find'), text)
    const parser = new ReasoningParser({ open: '<think>', close: '</think>' }, false)
    const said = parser.push('<think>\none\n\ntwo\n</think>\n\nYes.')
    assert.deepEqual([parser.reasoning, said.text], ['one\n\ntwo', 'Yes.'])
  })
})
