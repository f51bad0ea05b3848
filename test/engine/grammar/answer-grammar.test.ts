import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import fc from 'fast-check'
import { answerGrammar } from '../../../src/engine/grammar/answer-grammar.ts'
import { Grammars } from '../../../src/engine/grammar/grammars.ts'
import { jsonText } from '../../../src/engine/grammar/json-text.ts'
import { GrammarError, SchemaError } from '../../../src/engine/grammar/schema-error.ts'
import { Llama } from '../../../src/engine/llama/llama.ts'
import { tinyModel } from '../../real-model.ts'
import { Gbnf } from './gbnf.ts'
import { isValid, sample } from './schemas.ts'

let llama: Llama
let grammars: Grammars

before(async () => {
  llama = Llama.load({
    modelPath: await tinyModel(), lanes: 1, laneTokens: 256, batchTokens: 32, threads: 1, flashAttention: false,
    extraBuffers: true, libraryDir: null,
  })
  grammars = new Grammars(llama)
})

after(() => llama.dispose())

const grammarOf = (schema: Record<string, unknown>): string => answerGrammar({ kind: 'schema', schema }, [])

test('whatever the grammar of a schema accepts is JSON that is valid under it', () => {
  fc.assert(fc.property(sample(3), fc.infiniteStream(fc.nat()), ({ schema }, stream) => {
    const grammar = new Gbnf(grammarOf(schema))
    for (let draws = 0; draws < 5; draws++) {
      const text = grammar.draw((below) => (stream.next().value ?? 0) % below)
      assert(isValid(JSON.parse(text), schema), `${text} under ${JSON.stringify(schema)}`)
    }
  }), { numRuns: 300 })
})

test('whatever is valid and in order is accepted', () => {
  const pair = sample(3).chain(({ schema, value }) => fc.tuple(fc.constant(schema), value))
  fc.assert(fc.property(pair, ([schema, value]) => {
    assert(isValid(value, schema))
    assert(new Gbnf(grammarOf(schema)).matches(jsonText(value)), `${jsonText(value)} under ${JSON.stringify(schema)}`)
  }), { numRuns: 500 })
})

test('tokens drawn at random under it end as JSON that is valid', () => {
  let whole = 0
  fc.assert(fc.property(sample(2), fc.infiniteStream(fc.nat()), ({ schema }, stream) => {
    const grammar = grammars.begin(grammarOf(schema))
    const bytes: number[] = []
    for (let tokens = 0; tokens < 300; tokens++) {
      const logits = new Float32Array(llama.info.vocabSize)
      grammar.mask(logits)
      const open = [...logits.keys()].filter((token) => logits[token] !== -Infinity)
      const pick = stream.next().value ?? 0
      // Letters are drawn, and what closes now and then: bytes of characters are another test's.
      const plain = open.filter((token) => llama.isEog(token) || llama.piece(token, true).every((byte) => byte < 128))
      const end = plain.find((token) => llama.isEog(token) || '"}]'.includes(String.fromCharCode(...llama.piece(token, true))))
      const token = pick % 2 === 0 && end !== undefined ? end : plain[pick % plain.length]
      // Only a character beyond ASCII may follow in a literal that has one.
      const drawn = token ?? open[pick % open.length]
      assert(drawn !== undefined, 'the grammar leads nowhere')
      if (llama.isEog(drawn)) {
        const text = Buffer.from(bytes).toString('utf8')
        whole++
        assert(isValid(JSON.parse(text), schema), `${text} under ${JSON.stringify(schema)}`)
        break
      }
      grammar.accept(drawn)
      bytes.push(...llama.piece(drawn, true))
    }
  }), { numRuns: 60 })
  assert(whole > 20, `${whole} of 60 ended`)
})

test('a schema of any type is held, also beside calls', () => {
  assert(new Gbnf(grammarOf({ type: 'array', items: { type: 'boolean' } })).matches('[true, false]'))
  const tools = [{ name: 'f', description: '', parameters: {} }]
  const beside = new Gbnf(answerGrammar({ kind: 'schema', schema: { type: 'null' } }, tools))
  const call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
  for (const text of ['null', call, `${call}\n${call}`]) assert(beside.matches(text), text)
  for (const text of ['', `null${call}`, `${call}null`]) assert(!beside.matches(text), text)
  assert(new Gbnf(answerGrammar({ kind: 'json' }, [])).matches('{"a": [1, {}]}'))
  assert(!new Gbnf(answerGrammar({ kind: 'json' }, [])).matches('[1]'))
})

test('what cannot be held is named by the field and a JSON pointer', () => {
  const schema = { type: 'object', properties: { 'a/b': { anyOf: [{ type: 'integer', multipleOf: 3 }] } } }
  assert.throws(() => grammarOf(schema), (thrown: unknown) => {
    assert(thrown instanceof SchemaError)
    assert.equal(thrown.path, 'response_format.json_schema.schema#/properties/a~1b/anyOf/0')
    return true
  })
})

test('a grammar of the client is taken as it is, up to a length', () => {
  const grammar = (gbnf: string): string => answerGrammar({ kind: 'grammar', gbnf }, [])
  const good = '# (((\nroot ::= "((((" [()[] # x\n  | more\nmore ::= "a"\n'
  assert.equal(grammar(good), good)
  assert.throws(() => grammar(`root ::= "${'a'.repeat(70_000)}"`), (thrown: unknown) =>
    thrown instanceof GrammarError && /longer than/.test(thrown.message))
})
