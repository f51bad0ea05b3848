import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import type { WirePart } from '../../src/protocol/engine.ts'
import { jsonText } from '../../src/engine/grammar/json-text.ts'
import { writeMessage } from '../../src/engine/tool-format/format.ts'
import { hermes } from '../../src/engine/tool-format/hermes.ts'
import { qwenCoder } from '../../src/engine/tool-format/qwen-coder.ts'
import { ToolCallParser } from '../../src/engine/tools.ts'
import type { CommittedMessage } from '../../src/engine/token-record.ts'

interface Parsed { readonly message: ToolCallParser['message']; readonly parts: readonly WirePart[]; readonly cutShort: boolean }

/** `h` is one that nobody offered. */
const OFFERED = ['f', 'g', 'find'].map((name) => ({ name, description: '', parameters: {} }))

const hermesParser = (tools = OFFERED): ToolCallParser => new ToolCallParser({ format: hermes, tools })

const callsText = (content: string, calls: CommittedMessage['toolCalls']): string => writeMessage(hermes, content, calls)

function parse(text: string, cuts: readonly number[] = [], tools = OFFERED): Parsed {
  const parser = hermesParser(tools)
  const borders = [...new Set([0, ...cuts.filter((cut) => cut < text.length), text.length])].sort((a, b) => a - b)
  const parts = borders.slice(1).flatMap((end, i) => parser.push(text.slice(borders[i], end)))
  parts.push(...parser.end())
  return { message: parser.message, parts, cutShort: parser.cutShort }
}

/** The message as a client puts it together from parts. */
function assembled(parts: readonly WirePart[]): CommittedMessage {
  const calls: { name: string; arguments: string }[] = []
  let content = ''
  for (const part of parts) {
    if (part.kind === 'text') {
      content += part.text
      continue
    }
    assert(part.kind === 'toolCall')
    const call = calls[part.index]
    if (call === undefined) {
      assert(part.name !== null && part.index === calls.length, 'a call begins with its name')
      calls.push({ name: part.name, arguments: part.arguments })
    } else {
      assert.equal(part.name, null)
      call.arguments += part.arguments
    }
  }
  return { content, toolCalls: calls }
}

const argumentsText = fc.dictionary(fc.string({ maxLength: 4 }), fc.jsonValue({ maxDepth: 2 })).map(jsonText)
const calls = fc.array(
  fc.record({ name: fc.stringMatching(/^[a-z_]{1,8}$/), arguments: argumentsText }, { noNullPrototype: true }),
  { maxLength: 3 },
)
const content = fc.string(
  { unit: fc.constantFrom('a', ' ', '\n', '<', '>', '{', '<tool', '_call', '</tool_call>'), maxLength: 6 },
)
  .filter((text) => !text.includes('<tool_call>'))

/** Texts that are often nearly calls. */
const nearly = fc.array(fc.constantFrom(
  '<tool_call>', '</tool_call>', '\n', ' ', '{"name": "f", "arguments": {"a": 1}}', '{"name": "f", "arguments": ',
  '{"a": "}"}', '}', '{"arguments": {}, "name": "g"}', '{"name": "f"}', '<tool', '"', 'x', '{',
  '{"name": "", "arguments": {}}', '{"name": 1, "arguments": {}}', '{"name": "h", "arguments": {"q": "x"}}', '{"q": "xx"}',
), { maxLength: 10 }).map((parts) => parts.join(''))

const cutsOf = fc.array(fc.nat(120), { maxLength: 12 })

describe('tool calls in text', () => {
  test('what is written of a message is parsed to that message', () => {
    fc.assert(fc.property(content, calls, cutsOf, (text, toolCalls, cuts) => {
      const written = callsText(text, toolCalls)
      const whole = parse(written, cuts)
      assert.deepEqual(whole.message, { content: text, toolCalls })
      assert.equal(callsText(whole.message.content, whole.message.toolCalls), written)
      assert(!whole.cutShort)
      const offered = toolCalls.map(({ name }) => ({ name, description: '', parameters: {} }))
      assert.deepEqual(parse(written, cuts, offered).message, { content: text, toolCalls })
    }), { numRuns: 1_000 })
  })

  test('what is shown depends on the text alone, whatever its pieces', () => {
    const texts = fc.oneof(nearly, fc.tuple(content, calls).map(([a, b]) => callsText(a, b)))
    fc.assert(fc.property(texts, cutsOf, (text, cuts) => {
      const once = parse(text)
      const pieces = parse(text, cuts)
      assert.deepEqual(pieces.message, once.message)
      assert.deepEqual(assembled(pieces.parts), once.message)
      assert.deepEqual(assembled(once.parts), once.message)
    }), { numRuns: 3_000 })
  })

  test('at every cut of a text, what was shown is a beginning of what will be', () => {
    const text = callsText(
      'I look.', [{ name: 'find', arguments: '{"q": "a </tool_call> \\"b\\""}' }, { name: 'g', arguments: '{}' }],
    )
    const end = parse(text).message
    for (let cut = 0; cut <= text.length; cut++) {
      const parser = hermesParser()
      const shown = assembled(parser.push(text.slice(0, cut)))
      assert(end.content.startsWith(shown.content))
      for (const [i, call] of shown.toolCalls.entries()) {
        assert.equal(call.name, end.toolCalls[i]?.name)
        assert(end.toolCalls[i]?.arguments.startsWith(call.arguments))
      }
    }
  })
})

describe('what is nearly a call', () => {
  test('no character is swallowed or said twice, whatever becomes of a call', () => {
    // No mark of the form has an x.
    const ofX = (text: string): number => text.split('x').length - 1
    fc.assert(fc.property(nearly, cutsOf, (text, cuts) => {
      const { content: said, toolCalls } = parse(text, cuts).message
      assert.equal(ofX(said) + toolCalls.reduce((sum, call) => sum + ofX(call.arguments), 0), ofX(text), text)
    }), { numRuns: 5_000 })
  })

  test('what is not a call stays text, every character of it', () => {
    for (const text of [
      '<tool_call>', '<tool_call>x</tool_call>', '<tool_call>\n{"name": "f"}\n</tool_call>',
      '<tool_call>{"name": "f", "arguments": [1]}</tool_call>',
      '<tool_call>\n{"name": "h", "arguments": {"a": tru}}\n</tool_call>',
      'a\n<tool_call>\n{"name": "h", "arguments": {}} and more',
      '<tool_call>\n{"name": 1, "arguments": {}}\n</tool_call>', '\n<tool_ca', '</tool_call>',
      '<tool_call>{"name": "f", "argum', '<tool_call>{"name": "h", "arguments": {"a": 1',
      '<tool_call>{"name": "f", "name": "g", "arguments": {}}</tool_call>',
    ]) {
      assert.deepEqual(parse(text).message, { content: text, toolCalls: [] }, text)
    }
  })

  test('a call that was shown ends where it goes on as none, and what comes then is text', () => {
    const begun = '<tool_call>\n{"name": "f", "arguments": {"a": '
    const { message, cutShort } = parse(`so\n${begun}tru} and <tool_call>{"name": "g", "arguments": {}}</tool_call>`)
    assert.deepEqual(message, { content: 'so} and ', toolCalls: [{ name: 'f', arguments: '{"a": tru' }, { name: 'g', arguments: '{}' }] })
    assert(!cutShort)
    const whole = parse(`${begun}1}} and more`).message
    assert.deepEqual(whole, { content: ' and more', toolCalls: [{ name: 'f', arguments: '{"a": 1}' }] })
    assert.deepEqual(parse(`${begun}1}, "b`).message, { content: ', "b', toolCalls: [{ name: 'f', arguments: '{"a": 1}' }] })
  })

  test('an object of many members is no call, and costs no more than its length', () => {
    const many = `<tool_call>{${Array.from({ length: 20_000 }, (_, i) => `"k${i}": 1`).join(', ')}}`
    const begunMs = performance.now()
    assert.deepEqual(parse(many).message, { content: many, toolCalls: [] })
    assert(performance.now() - begunMs < 5_000)
  })

  test('a call inside what is not a call is found', () => {
    const call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    assert.deepEqual(
      parse(`<tool_call>no ${call}`).message,
      { content: '<tool_call>no ', toolCalls: [{ name: 'f', arguments: '{}' }] },
    )
  })

  test('the end stands for a closing tag, and members may come in any order', () => {
    const toolCalls = [{ name: 'f', arguments: '{"a":1}' }]
    assert.deepEqual(
      parse('<tool_call> {"arguments":{"a":1}, "id": 7, "name":"f"}\n</tool').message, { content: '', toolCalls },
    )
  })

  test('text after a call is text, space after it is not', () => {
    const call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    assert.equal(parse(`a\n${call}\n\n`).message.content, 'a')
    assert.equal(parse(`a\n${call}\n done`).message.content, 'a\n done')
    assert.equal(parse(`a\n${call}\n<tool`).message.content, 'a\n<tool')
  })

  test('that begins again and again and never ends is read again only so often, and then is text', () => {
    const again = (text: string): ToolCallParser['message'] => {
      const parser = new ToolCallParser({ format: qwenCoder, tools: [] })
      parser.push(text)
      parser.end()
      return parser.message
    }
    const begun = '<function=f><parameter=a>'
    const call = '<tool_call><function=f></function></tool_call>'
    const text = begun.repeat(4_000) + call
    assert(again(text).content === text, 'all of it is text')
    assert.equal(again(`${'<function=f>x'.repeat(4_000)}${call}`).toolCalls.length, 1, 'what breaks at once costs nothing')
  })

  test('a call that is cut stays a call, and says that it was cut', () => {
    const { message, cutShort } = parse('<tool_call>\n{"name": "f", "arguments": {"a": "bc')
    assert.deepEqual(message.toolCalls, [{ name: 'f', arguments: '{"a": "bc' }])
    assert(cutShort)
    assert.deepEqual(parse('<tool_call>\n{"name": "f').message.toolCalls, [])
  })

  test('a call of a tool that was offered is shown from its arguments on, another when it is whole', () => {
    const parts = (name: string): WirePart[][] => {
      const parser = hermesParser()
      return [...`<tool_call>\n{"name": "${name}", "arguments": {"a": 1}}\n</tool_call>`].map((unit) => parser.push(unit))
    }
    const offered = parts('f')
    const opening = '<tool_call>\n{"name": "f", "arguments": {'.length
    assert(offered.slice(0, opening - 1).every((shown) => shown.length === 0))
    assert.deepEqual(offered[opening - 1], [{ kind: 'toolCall', index: 0, name: 'f', arguments: '{' }])
    assert.deepEqual(offered.slice(opening).flat().map((part) => part.kind === 'toolCall' ? part.arguments : ''), [...'"a": 1}'])
    const other = parts('h')
    assert(other.slice(0, -1).every((shown) => shown.length === 0))
    assert.deepEqual(other.at(-1), [{ kind: 'toolCall', index: 0, name: 'h', arguments: '{"a": 1}' }])
  })
})
