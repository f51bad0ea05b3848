import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import fc from 'fast-check'
import { ITEMS_MAX, STRING_LENGTH_MAX } from '../../../src/engine/grammar/schema-rules.ts'
import { toolCallGrammar } from '../../../src/engine/grammar/tool-call-grammar.ts'
import { Llama } from '../../../src/engine/llama/llama.ts'
import { OutputPipeline } from '../../../src/engine/output.ts'
import { tinyModel } from '../../real-model.ts'
import { Gbnf } from './gbnf.ts'
import { isValid, objectSample } from './schemas.ts'

let llama: Llama

before(async () => {
  llama = Llama.load({
    modelPath: await tinyModel(), lanes: 1, laneTokens: 256, batchTokens: 32, threads: 1, flashAttention: false,
    extraBuffers: true, libraryDir: null,
  })
})

after(() => llama.dispose())

const tool = (parameters: Record<string, unknown>) => ({ name: 'f', description: '', parameters })

/** The library takes the whole text and lets generation end there. */
function libraryTakes(gbnf: string, text: string): boolean {
  const grammar = llama.grammar(gbnf, 'root')
  try {
    for (const token of llama.tokenize(text, false)) {
      if (!grammar.allows(token)) return false
      grammar.accept(token)
    }
    return grammar.allows(llama.info.eos)
  } finally {
    grammar.dispose()
  }
}

describe('the grammar under the library', () => {
  test('the library reads it, and takes what it means', () => {
    fc.assert(fc.property(objectSample(2), fc.infiniteStream(fc.nat()), ({ schema }, stream) => {
      const gbnf = toolCallGrammar([tool(schema)])
      const own = new Gbnf(gbnf)
      const pick = (below: number): number => (stream.next().value ?? 0) % below
      const text = own.draw(pick)
      assert(libraryTakes(gbnf, text), text)
      const units = [...text]
      units.splice(pick(units.length), pick(2), ['"', 'x', '1', ',', ' ', '}'][pick(6)] ?? '')
      const other = units.join('')
      assert.equal(libraryTakes(gbnf, other), own.matches(other), other)
    }), { numRuns: 60 })
  })

  test('the bounds of strings and lists are within what it can expand', () => {
    const gbnf = toolCallGrammar([tool({
      type: 'object', required: ['s', 'l'],
      properties: {
        s: { type: 'string', minLength: STRING_LENGTH_MAX, maxLength: STRING_LENGTH_MAX },
        l: {
          type: 'array', items: { type: 'array', items: { type: 'integer', minimum: 1, maximum: 9 } },
          maxItems: ITEMS_MAX,
        },
        m: { type: 'array', items: { type: 'string', format: 'email' }, minItems: ITEMS_MAX },
      },
    })])
    assert(libraryTakes(gbnf, '<tool_call>\n{"name": "f", "arguments": {"s": "'
      + `${'a'.repeat(STRING_LENGTH_MAX)}", "l": [[1], [], [2, 3]]}}\n</tool_call>`))
    assert(!libraryTakes(gbnf, '<tool_call>\n{"name": "f", "arguments": {"s": "a"'))
  })

  test('every format is read by it', () => {
    const value = new Map([
      ['date', '2024-02-29'], ['time', '10:00:00Z'], ['date-time', '2024-02-29T10:00:00.5+01:00'],
      ['ipv4', '10.0.0.255'], ['uuid', '123e4567-e89b-12d3-a456-426614174000'], ['hostname', 'a.example'],
      ['email', 'a@b.example'], ['uri', 'https://a.example/'],
    ])
    for (const [format, text] of value) {
      const properties = { v: { type: 'string', format } }
      const gbnf = toolCallGrammar([tool({ type: 'object', properties, required: ['v'] })])
      assert(libraryTakes(gbnf, `<tool_call>\n{"name": "f", "arguments": {"v": "${text}"}}\n</tool_call>`), format)
    }
  })
})

describe('what the library lets through', () => {
  test('whatever bytes it lets through, the call is one and its arguments are valid', () => {
    // Any token that is allowed may be drawn, as by a model without sense; bytes of characters come apart.
    const schema = {
      type: 'object', required: ['s', 'n', 'l'],
      properties: {
        s: { type: 'string', maxLength: 6 }, n: { type: 'number', minimum: -2, maximum: 40 },
        l: { type: 'array', items: { enum: ['é', null, 3] }, maxItems: 2 },
        o: { type: 'object', additionalProperties: { type: 'boolean' } },
      },
    }
    const gbnf = toolCallGrammar([tool(schema)])
    let whole = 0
    fc.assert(fc.property(fc.infiniteStream(fc.nat()), (stream) => {
      const grammar = llama.grammar(gbnf, 'root')
      const output = new OutputPipeline({ tokenizer: llama, stops: [], toolParsing: 'streamed' })
      for (let tokens = 0, stopped = false; !stopped && tokens < 600; tokens++) {
        const logits = new Float32Array(llama.info.vocabSize)
        grammar.mask(logits)
        const open = [...logits.keys()].filter((token) => logits[token] !== -Infinity)
        // Brackets and quotes first now and then, so that it ends.
        const end = open.find((token) => '"}]'.includes(String.fromCharCode(token)))
        const pick = stream.next().value ?? 0
        const token = pick % 4 === 0 && end !== undefined ? end : open[pick % open.length]
        assert(token !== undefined, 'the grammar leads nowhere')
        stopped = output.push(token).stopped
        if (!stopped) grammar.accept(token)
      }
      grammar.dispose()
      const ended = output.end('stop')
      if (ended.keptTokens === 600) return
      whole++
      assert.equal(ended.finish, 'tool_calls', ended.keptText)
      const value: unknown = JSON.parse(ended.toolCalls[0]?.arguments ?? '')
      const { maxLength: _, ...unbounded } = schema.properties.s
      // An overlong form of a character counts once for the library and is several U+FFFD in the text.
      const free = { ...schema, properties: { ...schema.properties, s: unbounded } }
      assert(isValid(value, ended.keptText.includes('\ufffd') ? free : schema), ended.keptText)
    }), { numRuns: 60 })
    assert(whole > 30, `${whole} of 60 ended`)
  })
})
