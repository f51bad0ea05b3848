import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import type { WirePart } from '../../src/protocol/engine.ts'
import { OutputPipeline } from '../../src/engine/output.ts'
import type { OutputEnd, OutputOptions } from '../../src/engine/output.ts'
import { mistral } from '../../src/engine/tool-format/mistral.ts'
import type { Tokenizer } from '../../src/engine/token-record.ts'
import { CONTROL_X, EOT, IM_END, IM_START, VOCABULARY_SIZE, byteTokens, vocabulary } from './vocabulary.ts'

interface Run extends OutputEnd { readonly shown: readonly WirePart[]; readonly taken: number }

/** Pushes until it stops; the first `silent` tokens are a replay whose parts nobody sees. */
function run(tokens: readonly number[], options: Partial<OutputOptions> = {}, silent = 0): Run {
  const output = new OutputPipeline({ tokenizer: vocabulary, stops: [], callsTools: false, ...options })
  const shown: WirePart[] = []
  let taken = 0
  let stopped = false
  for (const token of tokens) {
    const pushed = output.push(token)
    taken++
    if (taken > silent) shown.push(...pushed.parts)
    stopped = pushed.stopped
    if (stopped) break
  }
  const end = output.end(stopped ? 'stop' : 'length')
  return { ...end, shown: [...shown, ...end.parts], taken }
}

const textOf = (parts: readonly WirePart[]): string =>
  parts.map((part) => part.kind === 'text' ? part.text : '').join('')

const call = '<tool_call>\n{"name": "f", "arguments": {"q": "é"}}\n</tool_call>'
const texts = fc.constantFrom('a', 'bc', 'é', '世', '🎭', 'hello', '\n', call, '<tool_call>')
const tokens = fc.array(fc.oneof(
  { weight: 3, arbitrary: fc.integer({ min: 0, max: VOCABULARY_SIZE - 1 }).map((token) => [token]) },
  { weight: 4, arbitrary: texts.map((text) => [...vocabulary.tokenize(text, true)]) },
), { maxLength: 12 }).map((parts) => parts.flat())
const stops = fc.array(fc.constantFrom('bc', 'abc', '世', '\n\n', 'el', '\ufffd', '</tool'), { maxLength: 2 })
const callsTools = fc.boolean()

/** What tokens spell, control tokens nothing. */
const spell = (kept: readonly number[]): string =>
  new TextDecoder('utf-8', { ignoreBOM: true })
    .decode(Buffer.concat(kept.map((token) => vocabulary.piece(token, false))))

describe('an output', () => {
  test('any replay in silence and the rest live shows what all of it live shows, from there on', () => {
    fc.assert(fc.property(tokens, stops, callsTools, fc.nat(40), (all, stopStrings, parsing, at) => {
      const options = { stops: stopStrings, callsTools: parsing }
      const { shown: _, taken, ...live } = run(all, options)
      const replayed = Math.min(at, taken)
      const { shown: rest, taken: __, ...resumed } = run(all, options, replayed)
      assert.deepEqual(resumed, live)
      const output = new OutputPipeline({ tokenizer: vocabulary, ...options })
      const before = all.slice(0, replayed).flatMap((token) => [...output.push(token).parts])
      assert.deepEqual([...before, ...rest], run(all, options).shown)
    }), { numRuns: 2_000 })
  })

  test('what is shown is the message, with no half character in it', () => {
    fc.assert(fc.property(tokens, stops, callsTools, (all, stopStrings, parsing) => {
      const end = run(all, { stops: stopStrings, callsTools: parsing })
      assert.equal(textOf(end.shown), end.message.content)
      assert(end.shown.every((part) => part.kind === 'toolCall' || !/\p{Surrogate}/u.test(part.text)))
      const called = new Set(end.shown.flatMap((part) => part.kind === 'toolCall' ? [part.index] : []))
      assert.equal(end.message.toolCalls.length, called.size)
      if (!parsing) assert.equal(end.message.content, end.keptText)
    }), { numRuns: 2_000 })
  })

  test('kept tokens are whole, as many as end before the stop string, and spell the text that is kept', () => {
    fc.assert(fc.property(tokens, stops, (all, stopStrings) => {
      const { keptTokens, spelled, keptText, silent, taken } = run(all, { stops: stopStrings })
      const kept = all.slice(0, keptTokens)
      assert(keptText.startsWith(spell(kept)))
      assert(!stopStrings.some((stop) => keptText.includes(stop)))
      assert.equal(spelled.length, keptTokens + 1)
      assert.equal(spelled.at(-1), spell(kept).length)
      assert.deepEqual(silent, kept.flatMap((token, i) => vocabulary.isControl(token) ? [i] : []))
      assert(!kept.some((token) => vocabulary.isEog(token)))
      const most = vocabulary.isEog(all[taken - 1] ?? 0) ? taken - 1 : taken
      if (spell(all.slice(0, most)) === keptText) assert.equal(keptTokens, most)
    }), { numRuns: 2_000 })
  })
})

describe('the end of an output', () => {
  test('the token that ends generation shows nothing and is not kept', () => {
    for (const eog of [IM_END, EOT]) {
      const end = run([...byteTokens('ok'), eog, ...byteTokens('more')])
      assert.deepEqual([end.keptTokens, end.keptText, end.finish], [2, 'ok', 'stop'])
    }
  })

  test('a stop string is found across token borders and nothing of it is ever shown', () => {
    const end = run(byteTokens('one\n\nEND two'), { stops: ['\n\nEND'] })
    assert.deepEqual(
      [textOf(end.shown), end.keptTokens, end.keptText, end.finish, end.taken], ['one', 3, 'one', 'stop', 8],
    )
  })

  test('a token that a stop string cuts is dropped and its text before the cut stays', () => {
    const [hello] = vocabulary.tokenize('hello', false)
    const end = run([97, hello ?? 0, 98], { stops: ['lo'] })
    assert.deepEqual([end.keptTokens, end.keptText, end.spelled], [1, 'ahel', [0, 1]])
  })

  test('bytes that make no character become U+FFFD, at once or at the end', () => {
    assert.equal(run([0xff, 97]).keptText, '\ufffda')
    const end = run([97, 0xe2, 0x82])
    assert.deepEqual([end.keptTokens, end.keptText, end.spelled], [3, 'a\ufffd', [0, 1, 1, 2]])
  })

  test('a generated control token shows nothing and is kept', () => {
    const end = run([97, CONTROL_X, IM_START, 98])
    assert.deepEqual([textOf(end.shown), end.keptTokens, end.silent], ['ab', 4, [1, 2]])
  })

  test('tool call tags that are control tokens are read as their text', () => {
    const tagged: Tokenizer = {
      tokenize: (text, special) => vocabulary.tokenize(text, special),
      piece: (token, special) =>
        token === CONTROL_X ? Buffer.from(special ? '<tool_call>' : '') : vocabulary.piece(token, special),
      isEog: (token) => vocabulary.isEog(token),
      isControl: (token) => vocabulary.isControl(token),
    }
    const written = [CONTROL_X, ...byteTokens('{"name": "f", "arguments": {}}</tool_call>'), IM_END]
    const end = run(written, { tokenizer: tagged, callsTools: true })
    assert.deepEqual([end.toolCalls, end.finish, end.silent], [[{ name: 'f', arguments: '{}' }], 'tool_calls', []])
  })

  test('so are the other tags of the form of the model, and those of reasoning', () => {
    for (const tag of ['[ARGS]', '</think>']) {
      const tagged: Tokenizer = {
        tokenize: (text, special) => vocabulary.tokenize(text, special),
        piece: (token, special) => token === CONTROL_X ? Buffer.from(special ? tag : '') : vocabulary.piece(token, special),
        isEog: (token) => vocabulary.isEog(token),
        isControl: (token) => vocabulary.isControl(token),
      }
      const text = '<think>a</think>b[TOOL_CALLS]f[ARGS]{}'
      const at = text.indexOf(tag)
      const written = [...byteTokens(text.slice(0, at)), CONTROL_X, ...byteTokens(text.slice(at + tag.length)), IM_END]
      const reasoning = { tags: { open: '<think>', close: '</think>' }, opened: false }
      const end = run(written, { tokenizer: tagged, callsTools: true, toolFormat: mistral, reasoning })
      assert.deepEqual(end.message, { content: 'b', reasoning: 'a', toolCalls: [{ name: 'f', arguments: '{}' }] }, tag)
    }
  })

  test('it ends in tool calls where it ended by itself with whole calls, and only there', () => {
    const finish = (text: string, parsing: boolean, options: Partial<OutputOptions> = {}): string =>
      run([...vocabulary.tokenize(text, true)], { callsTools: parsing, ...options }).finish
    const tools = [{ name: 'f', description: '', parameters: {} }]
    assert.equal(finish(`${call}<|im_end|>`, true), 'tool_calls')
    assert.equal(finish(`${call}<|im_end|>`, false), 'stop')
    assert.equal(finish(call, true), 'length')
    assert.equal(finish(call, true, { stops: ['"q"'], tools }), 'stop')
    assert.equal(finish('none<|im_end|>', true), 'stop')
  })

  test('a token after the end is an error', () => {
    const output = new OutputPipeline({ tokenizer: vocabulary, stops: [], callsTools: false })
    output.push(IM_END)
    assert.throws(() => output.push(97), /after the output had stopped/)
  })
})
