import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { jsonText } from '../../../src/engine/grammar/json-text.ts'
import { GRAMMAR_CHARS_MAX, RULES_MAX } from '../../../src/engine/grammar/rules.ts'
import { SchemaError } from '../../../src/engine/grammar/schema-error.ts'
import { ITEMS_MAX, SCHEMA_DEPTH_MAX, STRING_LENGTH_MAX } from '../../../src/engine/grammar/schema-rules.ts'
import { toolCallGrammar } from '../../../src/engine/grammar/tool-call-grammar.ts'
import { writeMessage } from '../../../src/engine/tool-format/format.ts'
import { hermes } from '../../../src/engine/tool-format/hermes.ts'
import { ToolCallParser } from '../../../src/engine/tools.ts'
import { Gbnf } from './gbnf.ts'
import { isValid, objectSample } from './schemas.ts'

const tool = (parameters: Record<string, unknown>, name = 'f') => ({ name, description: '', parameters })

const grammarOf = (parameters: Record<string, unknown>): Gbnf => new Gbnf(toolCallGrammar([tool(parameters)]))

const accepts = (grammar: Gbnf, given: string): boolean =>
  grammar.matches(writeMessage(hermes, '', [{ name: 'f', arguments: given }]))

/** A schema of one member, for what a value may be. */
const holds = (schema: unknown, value: string): boolean =>
  accepts(grammarOf({ type: 'object', properties: { v: schema }, required: ['v'] }), `{"v": ${value}}`)

const refusal = (path: string, words: RegExp) => (error: unknown): boolean => {
  assert(error instanceof SchemaError, String(error))
  assert.equal(error.path, path)
  assert.match(error.message, words)
  return true
}

const refuses = (schema: unknown, words: RegExp, path = 'f#/properties/v'): void =>
  assert.throws(() => grammarOf({ type: 'object', properties: { v: schema } }), refusal(path, words))

describe('the grammar of a forced call', () => {
  test('whatever it accepts is one call whose arguments are valid', () => {
    fc.assert(fc.property(objectSample(3), fc.infiniteStream(fc.nat()), ({ schema }, stream) => {
      const grammar = grammarOf(schema)
      for (let draws = 0; draws < 5; draws++) {
        const text = grammar.draw((below) => (stream.next().value ?? 0) % below)
        const parser = new ToolCallParser({ format: hermes, tools: [] })
        assert.deepEqual(parser.push(text).map(({ kind }) => kind), ['toolCall'], text)
        const [call] = parser.message.toolCalls
        assert(call !== undefined)
        assert(isValid(JSON.parse(call.arguments), schema), `${call.arguments} under ${JSON.stringify(schema)}`)
        assert.equal(writeMessage(hermes, '', [call]), text, 'the rendering is what was written')
      }
    }), { numRuns: 300 })
  })

  test('whatever is valid and in order is accepted', () => {
    const pair = objectSample(3).chain(({ schema, value }) => fc.tuple(fc.constant(schema), value))
    fc.assert(fc.property(pair, ([schema, value]) => {
      assert(isValid(value, schema))
      assert(accepts(grammarOf(schema), jsonText(value)), `${jsonText(value)} under ${JSON.stringify(schema)}`)
    }), { numRuns: 1_000 })
  })

  test('one of several tools is called, each with its own arguments', () => {
    const grammar = new Gbnf(toolCallGrammar([
      tool({ type: 'object', properties: { a: { type: 'boolean' } }, required: ['a'] }, 'one'), tool({}, 'two'),
    ]))
    assert(grammar.matches('<tool_call>\n{"name": "one", "arguments": {"a": true}}\n</tool_call>'))
    assert(grammar.matches('<tool_call>\n{"name": "two", "arguments": {}}\n</tool_call>'))
    assert(!grammar.matches('<tool_call>\n{"name": "two", "arguments": {"a": true}}\n</tool_call>'))
    assert(!grammar.matches('<tool_call>\n{"name": "three", "arguments": {}}\n</tool_call>'))
  })
})

describe('members of an object', () => {
  test('there is no free space', () => {
    const grammar = grammarOf({ type: 'object', properties: { a: { type: 'array', items: { type: 'integer' } } } })
    assert(accepts(grammar, '{"a": [1, 2]}'))
    for (const other of ['{ "a": [1, 2]}', '{"a":[1, 2]}', '{"a": [1,2]}', '{"a": [1, 2] }', '{"a": [ ]}']) {
      assert(!accepts(grammar, other), other)
    }
  })

  test('members come in order, and only the optional ones may be missing', () => {
    const properties = { a: { type: 'null' }, b: { type: 'null' }, c: { type: 'null' } }
    const given = (names: string): string => `{${[...names].map((name) => `"${name}": null`).join(', ')}}`
    for (const required of ['', 'a', 'b', 'c', 'ac', 'abc']) {
      const grammar = grammarOf({ type: 'object', properties, required: [...required] })
      for (const names of ['', 'a', 'b', 'c', 'ab', 'ac', 'bc', 'abc']) {
        const complete = [...required].every((name) => names.includes(name))
        assert.equal(accepts(grammar, given(names)), complete, `${names} of ${required}`)
      }
      assert(!accepts(grammar, given('ba')) && !accepts(grammar, given('aa')))
    }
  })
})

describe('numbers and strings', () => {
  test('numbers lie between their bounds, to the last one', () => {
    const cases = [
      [-12, 7], [0, 0], [0, 9], [5, 105], [-1, 1], [99, 1001], [-30, -3], [10, 100], [-100, -10], [3, 3], [199, 201],
    ] as const
    for (const [minimum, maximum] of cases) {
      for (let n = minimum - 120; n <= maximum + 120; n++) {
        const inside = minimum <= n && n <= maximum
        const range = `${n} in ${minimum} to ${maximum}`
        assert.equal(holds({ type: 'integer', minimum, maximum }, String(n)), inside, range)
        const between = minimum < n && n < maximum
        if (maximum - minimum > 1) {
          const open = { type: 'number', exclusiveMinimum: minimum, exclusiveMaximum: maximum }
          assert.equal(holds(open, String(n)), between, range)
        }
      }
    }
  })

  test('numbers with a fraction lie between their bounds too', () => {
    const schema = { type: 'number', minimum: -1, maximum: 2 }
    for (const ok of ['-1', '-0.999', '0', '0.5', '1.75', '2']) assert(holds(schema, ok), ok)
    for (const bad of ['-1.001', '2.001', '2.0e5', '3', '-2', '01', '.5', '1.']) assert(!holds(schema, bad), bad)
    const open = { type: 'number', exclusiveMinimum: 0, exclusiveMaximum: 1 }
    for (const ok of ['0.5', '0.001', '0.91']) assert(holds(open, ok), ok)
    for (const bad of ['0', '0.0', '1', '-0.5', '-0', '0.000']) assert(!holds(open, bad), bad)
    assert(holds({ type: 'number', minimum: 0 }, '123.5') && !holds({ type: 'number', minimum: 0 }, '-0.5'))
  })

  test('numbers have one sane form', () => {
    for (const ok of ['0', '-1', '12.5', '1e9', '1e+21', '1.5E-7']) assert(holds({ type: 'number' }, ok), ok)
    for (const bad of ['00', '+1', '1e999', '1.', '-', '1e', '1234567890123456']) {
      assert(!holds({ type: 'number' }, bad), bad)
    }
    for (const bad of ['1.0', '1e3', '-0', '01']) assert(!holds({ type: 'integer' }, bad), bad)
    const safe = { type: 'integer', minimum: Number.MIN_SAFE_INTEGER, maximum: Number.MAX_SAFE_INTEGER }
    assert(holds(safe, '-123456789012345'))
  })

  test('strings are strict JSON, and each character counts once', () => {
    for (const ok of ['"é🎭"', '"a\\n\\"\\\\"', '"\\u00e9"', '"\\uD7FF"', '""']) {
      assert(holds({ type: 'string' }, ok), ok)
    }
    for (const bad of ['"\n"', '"\\x"', '"\\ud83d"', '"a', '"\u007f"', '"\ud800"']) {
      assert(!holds({ type: 'string' }, bad), bad)
    }
    const two = { type: 'string', minLength: 2, maxLength: 2 }
    assert(holds(two, '"🎭🎭"') && holds(two, '"\\u00e9\\n"') && !holds(two, '"🎭"') && !holds(two, '"abc"'))
  })

  test('formats are held', () => {
    const good = {
      'date': ['2024-02-29', '2023-12-31'], 'date-time': ['2026-11-30T23:59:59.5Z', '2026-11-30T00:00:00+01:30'],
      'time': ['09:30:00Z'], 'uuid': ['123e4567-e89b-12d3-a456-426614174000'], 'email': ['a.b+c@mail.example'],
      'ipv4': ['255.0.10.1'], 'uri': ['https://example.org:80/a?b=c'], 'hostname': ['a-b.example'],
    }
    const bad = {
      'date': ['2023-02-29', '2023-04-31', '23-1-1'], 'time': ['9:30'],
      'date-time': ['2026-11-30T24:00:00Z', '2026-11-30'],
      'uuid': ['123'], 'email': ['a@b', '@b.c'], 'ipv4': ['256.0.0.1'], 'uri': ['no'], 'hostname': ['-a.b'],
    }
    for (const [cases, held] of [[good, true], [bad, false]] as const) {
      for (const [format, values] of Object.entries(cases)) {
        for (const value of values) assert.equal(holds({ type: 'string', format }, `"${value}"`), held, value)
      }
    }
  })
})

describe('schemas that lead elsewhere', () => {
  test('free members and any value are there where the schema asks for them', () => {
    assert(!holds({ type: 'object' }, '{"a": 1}') && holds({ type: 'object' }, '{}'))
    assert(holds({ type: 'object', additionalProperties: true }, '{"a": [1, {}], "b": null}'))
    const numbers = { type: 'object', propertyNames: { type: 'string' }, additionalProperties: { type: 'number' } }
    assert(holds(numbers, '{"a": 1, "b": 2.5}') && !holds(numbers, '{"a": "x"}'))
    assert(holds({}, '{"a": [1, "b", true, null]}') && holds(true, '7') && holds({ type: 'array' }, '[1, "a"]'))
  })

  test('references are followed, recursion included', () => {
    const again = { $ref: '#/$defs/tree' }
    const kids = { type: 'array', items: again }
    const tree = { type: 'object', properties: { n: { type: 'integer' }, kids }, required: ['n'] }
    const grammar = grammarOf({ type: 'object', properties: { t: again, u: again }, $defs: { tree } })
    assert(accepts(grammar, '{"t": {"n": 1, "kids": [{"n": 2}, {"n": 3, "kids": []}]}, "u": {"n": 4}}'))
    assert(!accepts(grammar, '{"t": {"n": 1, "kids": [{"kids": []}]}}'))
    const escaped = { 'a/b': { type: 'null' }, c: { $ref: '#/properties/a~1b' } }
    assert(accepts(grammarOf({ type: 'object', properties: escaped }), '{"c": null}'))
  })

  test('branches of oneOf that exclude each other are alternatives', () => {
    const tagged = (kind: string, extra: string) => {
      const properties = { kind: { const: kind }, [extra]: { type: 'integer' } }
      return { type: 'object', properties, required: ['kind', extra] }
    }
    assert(holds({ oneOf: [tagged('a', 'x'), tagged('b', 'x')] }, '{"kind": "b", "x": 1}'))
    assert(holds({ oneOf: [{ type: 'string' }, { type: 'integer' }, { type: 'null' }] }, 'null'))
    const needs = (name: string) => ({ type: 'object', properties: { [name]: { type: 'null' } }, required: [name] })
    assert(holds({ oneOf: [needs('a'), needs('b')] }, '{"a": null}'))
    refuses({ oneOf: [{ type: 'number' }, { type: 'integer' }] }, /branches 0 and 1 may hold at once/)
    refuses({ oneOf: [{ type: 'string', nullable: true }, { type: 'null' }] }, /may hold at once/)
    refuses({ oneOf: [needs('a'), { type: 'object', properties: { a: { type: 'null' } } }] }, /may hold at once/)
  })
})

describe('schemas of several parts', () => {
  const part = (name: string, more: object = {}) =>
    ({ type: 'object', properties: { [name]: { type: 'integer' } }, required: [name], ...more })

  test('allOf of objects is one object that is all of them', () => {
    const both = { allOf: [part('a'), part('b')] }
    assert(holds(both, '{"a": 1, "b": 2}') && !holds(both, '{"a": 1}') && !holds(both, '{"b": 1}'))
    const tighter = { allOf: [{ type: 'integer', minimum: 1 }, { type: 'number', maximum: 3 }] }
    assert(holds(tighter, '2') && !holds(tighter, '4') && !holds(tighter, '0') && !holds(tighter, '2.5'))
    const closed = { allOf: [part('a', { additionalProperties: false }), { properties: { b: { type: 'null' } } }] }
    assert(holds(closed, '{"a": 1}') && !holds(closed, '{"a": 1, "b": null}'))
    const values = { allOf: [{ enum: ['a', 'b'] }, { enum: ['b', 'c'] }] }
    assert(holds(values, '"b"') && !holds(values, '"a"'))
  })

  test('a reference and branches hold beside other keywords', () => {
    const $defs = { base: part('a') }
    const grammar = grammarOf({ type: 'object', properties: { v: { $ref: '#/$defs/base', ...part('b') } }, required: ['v'], $defs })
    assert(accepts(grammar, '{"v": {"b": 1, "a": 2}}') || accepts(grammar, '{"v": {"a": 2, "b": 1}}'))
    assert(!accepts(grammar, '{"v": {"a": 2}}'))
    const either = { type: 'object', properties: { a: { type: 'null' }, b: { type: 'null' } }, anyOf: [{ required: ['a'] }, { required: ['b'] }] }
    assert(holds(either, '{"a": null}') && holds(either, '{"b": null}') && !holds(either, '{}'))
    const nullable = { nullable: true, allOf: [{ type: 'string' }, { maxLength: 1 }] }
    assert(holds(nullable, 'null') && holds(nullable, '"a"') && !holds(nullable, '"ab"'))
  })

  test('a required name that is no property is written all the same', () => {
    const schema = { type: 'object', required: ['x'], additionalProperties: { type: 'null' } }
    assert(holds(schema, '{"x": null}') && !holds(schema, '{"x": 1}') && !holds(schema, '{}'))
  })

  test('lists with items of their own', () => {
    const pair = { type: 'array', prefixItems: [{ type: 'null' }, { type: 'boolean' }] }
    for (const ok of ['[]', '[null]', '[null, true]']) assert(holds(pair, ok), ok)
    for (const bad of ['[true]', '[null, null]', '[null, true, 1]']) assert(!holds(pair, bad), bad)
    const more = { ...pair, items: { type: 'integer' }, minItems: 2, maxItems: 3 }
    assert(holds(more, '[null, true]') && holds(more, '[null, true, 1]'))
    for (const bad of ['[null]', '[null, true, 1, 2]', '[null, true, null]']) assert(!holds(more, bad), bad)
    assert(holds({ type: 'array', prefixItems: [], items: { type: 'null' }, minItems: 1 }, '[null, null]'))
  })
})

describe('patterns', () => {
  const cases: readonly [string, readonly string[], readonly string[]][] = [
    ['^[A-Z]{2}-\\d{3}$', ['AB-123'], ['AB-12', 'ab-123', 'AB-1234']],
    ['^(?:cat|dogs?)$', ['cat', 'dog', 'dogs'], ['ca', 'catdog', '']],
    ['^a|b$', ['a', 'ax', 'xb', 'b'], ['xa', 'bx']],
    ['\\d', ['1', 'a1b'], ['', 'ab']],
    ['^\\+?[0-9]{1,3}( [^ "]+)*$', ['+12 ab é', '1'], ['+', '1  a']],
    ['^"\\\\\\n$', ['"\\\n'], ['"']],
    ['^.{2}$', ['é.', '" '], ['a', 'a\nb']],
    ['^(?<year>\\d{4})[-\\/]\\w+?$', ['2026-a', '2026/b_'], ['2026-', '226-a']],
    ['^\\u0041\\x42\\u{43}$', ['ABC'], ['abc']],
    ['^$', [''], ['a']],
    ['^(a*|b?)*c$', ['c', 'aabac'], ['', 'ad']],
    ['^[\\s\\S]$', ['a', ' ', '\n'], ['', 'ab']],
  ]
  for (const [pattern, good, bad] of cases) {
    test(`are held: ${pattern}`, () => {
      const grammar = grammarOf({ type: 'object', properties: { v: { type: 'string', pattern } }, required: ['v'] })
      const text = (value: string) => jsonText({ v: value })
      for (const value of good) assert(new RegExp(pattern, 'u').test(value) && accepts(grammar, text(value)), value)
      for (const value of bad) assert(!new RegExp(pattern, 'u').test(value) && !accepts(grammar, text(value)), value)
      fc.assert(fc.property(fc.infiniteStream(fc.nat()), (stream) => {
        const drawn = grammar.draw((below) => (stream.next().value ?? 0) % below)
        const given = JSON.parse(drawn.slice(drawn.indexOf('{"v"'), drawn.lastIndexOf('}\n'))) as { v: string }
        assert(new RegExp(pattern, 'u').test(given.v), `${JSON.stringify(given.v)} under ${pattern}`)
      }), { numRuns: 100 })
    })
  }
})

describe('what is refused', () => {
  test('what cannot be enforced is refused by name and path', () => {
    refuses({ type: 'string', pattern: '(?=a)' }, /f#\/properties\/v: "pattern" that looks around cannot be enforced/)
    for (const pattern of ['\\bx', '(a)\\1', 'a(^b)', '[b-a]', '\\p{L}', '[a', '(a', 'a{30000}', 'x'.repeat(1_001)]) {
      refuses({ type: 'string', pattern }, /"pattern" .*cannot be enforced/)
    }
    refuses({ type: 'string', format: 'regex' }, /"format" "regex" cannot/)
    refuses({ type: 'array', items: { type: 'integer', multipleOf: 3 } }, /"multipleOf"/, 'f#/properties/v/items')
    refuses({ type: 'array', uniqueItems: true }, /"uniqueItems"/)
    refuses({ type: 'string', pattern: 'a', minLength: 1 }, /"pattern" beside "minLength"/)
    refuses({ if: {}, then: {} }, /"if"/)
    refuses({ patternProperties: {} }, /"patternProperties"/)
    refuses({ type: 'object', minProperties: 1 }, /"minProperties"/)
    refuses({ not: {} }, /"not"/)
    refuses({ allOf: [{ type: 'string', format: 'date' }, { format: 'time' }] }, /"format" said twice, differently/)
    refuses({ anyOf: [{ type: 'string' }, { type: 'string', not: {} }] }, /"not"/, 'f#/properties/v/anyOf/1')
    refuses({ type: 'number', minimum: 0.5 }, /no integers/)
    refuses({ type: 'integer', minimum: 3, maximum: 2 }, /no number lies/)
    refuses({ type: 'strange' }, /"strange" is no type/)
    refuses({ constructor: 1 }, /"constructor"/)
    refuses({ $ref: '#/$defs/none' }, /leads nowhere/)
    refuses({ $ref: 'http://example.org/x' }, /leads out of the schema/)
    refuses({ $ref: '#/properties/v' }, /leads to itself/, 'f#/properties/v/$ref')
    assert.throws(() => grammarOf({ type: 'string' }), refusal('f', /must be an object/))
    assert.throws(() => grammarOf({ $ref: '#/$defs/none' }), refusal('f', /leads nowhere/))
    assert.throws(() => grammarOf({ $ref: '#' }), refusal('f#/$ref', /leads to itself/))
    assert.throws(() => grammarOf({ $ref: '#/$defs/any', $defs: { any: {} } }), refusal('f', /must be an object/))
    assert.throws(() => grammarOf({ anyOf: [{ type: 'object' }, {}] }), refusal('f', /must be an object/))
  })

  test('what nothing satisfies is refused', () => {
    refuses({ type: 'string', enum: [1] }, /no value of the type/)
    refuses({ type: 'object', required: ['x'], additionalProperties: false }, /"x", which is no property/)
    refuses({ type: 'object', properties: { x: false }, required: ['x'] }, /nothing satisfies/, 'f#/properties/v/properties/x')
    refuses({ allOf: [{ type: 'string' }, { type: 'integer' }] }, /nothing satisfies it/)
    refuses({ anyOf: [false, { allOf: [{ enum: [1, 2] }, { enum: [3] }] }] }, /nothing satisfies it/)
    refuses({ type: 'array', items: false, minItems: 1 }, /nothing satisfies it/, 'f#/properties/v/items')
    refuses({ type: 'array', prefixItems: [{}], items: false, minItems: 2 }, /nothing satisfies it/)
    const node = { type: 'object', properties: { next: { $ref: '#/$defs/node' } }, required: ['next'] }
    assert.throws(() => grammarOf({ type: 'object', properties: { v: { $ref: '#/$defs/node' } }, $defs: { node } }), /satisfies it that has an end/)
  })

  test('what multiplies itself is refused in bounded time', () => {
    const begunMs = performance.now()
    const branches = Array.from({ length: 8 }, (_, i) => ({ type: 'object', properties: { [`p${i}`]: { type: 'null' } } }))
    refuses({ allOf: Array.from({ length: 8 }, () => ({ anyOf: branches })) }, /over 5000 steps/)
    const doubled = Object.fromEntries(Array.from({ length: 40 }, (_, i) =>
      [`d${i}`, i === 39 ? { type: 'null' } : { oneOf: [{ $ref: `#/$defs/d${i + 1}` }, { $ref: `#/$defs/d${i + 1}` }] }]))
    assert.throws(() => grammarOf({ type: 'object', properties: { v: { $ref: '#/$defs/d0' } }, $defs: doubled }), SchemaError)
    const itself = { allOf: [{ $ref: '#/$defs/itself' }, { type: 'object' }] }
    assert.throws(() => grammarOf({ type: 'object', properties: { v: { $ref: '#/$defs/itself' } }, $defs: { itself } }), /leads to itself/)
    refuses({ oneOf: Array.from({ length: 201 }, (_, i) => ({ const: i })) }, /"oneOf" of more than 200/)
    assert(performance.now() - begunMs < 5_000)
  })

  test('size and depth have bounds', () => {
    refuses({ type: 'string', maxLength: STRING_LENGTH_MAX + 1 }, /"maxLength" over/)
    refuses({ type: 'array', maxItems: ITEMS_MAX + 1 }, /"maxItems" over/)
    let deep: Record<string, unknown> = { type: 'object', properties: {} }
    for (let depth = 0; depth < SCHEMA_DEPTH_MAX + 2; depth++) deep = { type: 'object', properties: { a: deep } }
    assert.throws(() => grammarOf(deep), /nested deeper than/)
    const wide = Object.fromEntries(Array.from({ length: RULES_MAX + 1 }, (_, i) => [`p${i}`, { type: 'null' }]))
    assert.throws(() => grammarOf({ type: 'object', properties: wide }), /more than 4000 rules/)
    const long = { enum: ['x'.repeat(GRAMMAR_CHARS_MAX)] }
    assert.throws(() => grammarOf({ type: 'object', properties: { long } }), /longer than/)
  })
})
