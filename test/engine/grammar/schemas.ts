/** Random schemas with values of theirs, and what is valid under a schema: for tests. */
import fc from 'fast-check'
import { jsonEqual } from '../../../src/engine/grammar/json-text.ts'

type Schema = Readonly<Record<string, unknown>>

export interface Sample { readonly schema: Schema; readonly value: fc.Arbitrary<unknown> }

/** Control characters must be escaped, and lone surrogates cannot be written. */
const text = (minLength: number, maxLength: number): fc.Arbitrary<string> =>
  fc.string({ unit: 'binary', minLength, maxLength }).filter((value) => !/[\u007f-\u009f]/.test(value))

/** Numbers of few digits: more than a double's are not held. */
const anyValue: fc.Arbitrary<unknown> = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small' },
    fc.constant(null), fc.boolean(), fc.integer(), fc.constantFrom(1.5, -0.25, 1e21, 2.5e-7), text(0, 4),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(text(0, 3), tie('value'), { maxKeys: 3, noNullPrototype: true }),
  ),
})).value

const key = fc.string({ unit: fc.constantFrom('a', 'b', '"', '\\', 'é', ' ', '\n'), minLength: 1, maxLength: 3 })

const leaf: fc.Arbitrary<Sample> = fc.oneof(
  fc.constant({ schema: { type: 'string', description: 'x' }, value: text(0, 6) }),
  fc.tuple(fc.nat(3), fc.nat(4)).map(([least, more]) =>
    ({ schema: { type: 'string', minLength: least, maxLength: least + more }, value: text(least, least + more) })),
  fc.constant({ schema: { type: 'integer' }, value: fc.integer() }),
  bounded('integer'),
  bounded('number'),
  fc.constant({
    schema: { type: 'number' },
    value: fc.oneof(fc.integer(), fc.integer({ min: -99999, max: 99999 }).map((n) => n / 1000)),
  }),
  fc.constant({ schema: { type: 'boolean' }, value: fc.boolean() }),
  fc.constant({ schema: { type: ['string', 'null'] }, value: fc.option(text(0, 3)) }),
  fc.constant({ schema: { type: 'integer', nullable: true }, value: fc.option(fc.integer()) }),
  fc.array(anyValue, { minLength: 1, maxLength: 4 }).map((values) =>
    ({ schema: { enum: values }, value: fc.constantFrom(...values) })),
  anyValue.map((value) => ({ schema: { const: value }, value: fc.constant(value) })),
  fc.constant({ schema: {}, value: anyValue }),
  fc.constantFrom('^[a-c]{1,3}$', '^(x|y\\d)+$', '^\\w{2}-\\d?$').chain((pattern) =>
    fc.constant({ schema: { type: 'string', pattern }, value: fc.stringMatching(new RegExp(pattern)) })),
)

function bounded(type: 'integer' | 'number'): fc.Arbitrary<Sample> {
  const bound = fc.oneof(fc.integer({ min: -20, max: 20 }), fc.integer({ min: -99_999, max: 99_999 }))
  const side = fc.constantFrom('both', 'low', 'high', 'exclusive')
  return fc.tuple(bound, fc.nat(3000), side).map(([low, more, sides]) => {
    const high = low + 2 + more
    const bounds = {
      both: { minimum: low, maximum: high }, low: { minimum: low }, high: { maximum: high },
      exclusive: { exclusiveMinimum: low, exclusiveMaximum: high },
    }[sides] ?? {}
    const inside = fc.integer({ min: low + 1, max: high - 1 })
    const ends = sides === 'both' ? fc.constantFrom(low, high) : inside
    const broken = fc.tuple(inside, fc.nat(999)).map(([whole, part]) => whole + (whole < 0 ? -part : part) / 1000)
      .filter((value) => low < value && value < high)
    return {
      schema: { type, ...bounds }, value: type === 'integer' ? fc.oneof(inside, ends) : fc.oneof(inside, ends, broken),
    }
  })
}

export function sample(depth: number): fc.Arbitrary<Sample> {
  if (depth === 0) return leaf
  return fc.oneof({ weight: 2, arbitrary: leaf }, { weight: 3, arbitrary: objectSample(depth) },
    { weight: 2, arbitrary: arraySample(depth) }, { weight: 1, arbitrary: unionSample(depth) },
    { weight: 1, arbitrary: tupleSample(depth) }, { weight: 1, arbitrary: taggedSample(depth) },
    { weight: 1, arbitrary: allSample(depth) })
}

export function objectSample(depth: number): fc.Arbitrary<Sample> {
  const members = fc.uniqueArray(
    fc.tuple(key, sample(depth - 1), fc.boolean()), { selector: ([name]) => name, maxLength: 4 },
  )
  return members.map((all) => ({
    schema: {
      type: 'object',
      properties: Object.fromEntries(all.map(([name, { schema }]) => [name, schema])),
      required: all.filter(([, , required]) => required).map(([name]) => name),
      additionalProperties: false,
    },
    value: fc.tuple(...all.map(([name, { value }, required]) =>
      required ? value.map((one) => [[name, one]]) : fc.option(value).map((one) => one === null ? [] : [[name, one]])))
      .map((parts) => Object.fromEntries(parts.flat() as [string, unknown][])),
  }))
}

const arraySample = (depth: number): fc.Arbitrary<Sample> =>
  fc.tuple(sample(depth - 1), fc.nat(2), fc.option(fc.nat(3))).map(([{ schema, value }, least, more]) => ({
    schema: { type: 'array', items: schema, minItems: least, ...(more === null ? {} : { maxItems: least + more }) },
    value: fc.array(value, { minLength: least, maxLength: least + (more ?? 3) }),
  }))

const unionSample = (depth: number): fc.Arbitrary<Sample> =>
  fc.array(sample(depth - 1), { minLength: 1, maxLength: 3 }).map((all) =>
    ({ schema: { anyOf: all.map(({ schema }) => schema) }, value: fc.oneof(...all.map(({ value }) => value)) }))

const tupleSample = (depth: number): fc.Arbitrary<Sample> =>
  fc.array(sample(depth - 1), { minLength: 1, maxLength: 3 }).map((all) => ({
    schema: { type: 'array', prefixItems: all.map(({ schema }) => schema), items: false, minItems: all.length },
    value: fc.tuple(...all.map(({ value }) => value)),
  }))

/** Branches that a member tells apart. */
const taggedSample = (depth: number): fc.Arbitrary<Sample> =>
  fc.array(sample(depth - 1), { minLength: 1, maxLength: 3 }).map((all) => ({
    schema: {
      oneOf: all.map(({ schema }, i) =>
        ({ type: 'object', properties: { kind: { const: i }, of: schema }, required: ['kind', 'of'] })),
    },
    value: fc.oneof(...all.map(({ value }, i) => value.map((of) => ({ kind: i, of })))),
  }))

/** Objects that leave room for each other's members. */
const allSample = (depth: number): fc.Arbitrary<Sample> =>
  fc.array(sample(depth - 1), { minLength: 1, maxLength: 3 }).map((all) => ({
    schema: { allOf: all.map(({ schema }, i) => ({ type: 'object', properties: { [`m${i}`]: schema }, required: [`m${i}`] })) },
    value: fc.tuple(...all.map(({ value }) => value)).map((values) =>
      Object.fromEntries(values.map((one, i) => [`m${i}`, one]))),
  }))

/** The part of JSON Schema that the samples use, as the standard says it. */
export function isValid(value: unknown, schema: Schema): boolean {
  const { type, nullable } = schema
  if (nullable === true && value === null) return true
  if ('const' in schema) return jsonEqual(value, schema['const'])
  if (Array.isArray(schema['enum'])) return schema['enum'].some((one) => jsonEqual(value, one))
  if (Array.isArray(schema['anyOf'])) return schema['anyOf'].some((one: Schema) => isValid(value, one))
  if (Array.isArray(schema['oneOf'])) return schema['oneOf'].filter((one: Schema) => isValid(value, one)).length === 1
  if (Array.isArray(schema['allOf'])) return schema['allOf'].every((one: Schema) => isValid(value, one))
  const { pattern } = schema
  if (typeof pattern === 'string' && typeof value === 'string' && !new RegExp(pattern, 'u').test(value)) return false
  const types = type === undefined ? null : Array.isArray(type) ? type : [type]
  const fits = types === null || types.some((one) => isOf(value, one))
  return fits && sizesHold(value, schema) && partsHold(value, schema)
}

function isOf(value: unknown, type: unknown): boolean {
  if (type === 'null') return value === null
  if (type === 'array') return Array.isArray(value)
  if (type === 'integer') return Number.isInteger(value)
  if (type === 'object') return typeof value === 'object' && value !== null && !Array.isArray(value)
  return typeof value === type
}

function sizesHold(value: unknown, schema: Schema): boolean {
  const at = (keyword: string, otherwise: number): number => schema[keyword] as number | undefined ?? otherwise
  const within = (size: number, low: string, high: string): boolean => at(low, 0) <= size && size <= at(high, Infinity)
  if (typeof value === 'string') return within([...value].length, 'minLength', 'maxLength')
  if (Array.isArray(value)) return within(value.length, 'minItems', 'maxItems')
  if (typeof value !== 'number') return true
  return at('minimum', -Infinity) <= value && value <= at('maximum', Infinity)
    && at('exclusiveMinimum', -Infinity) < value && value < at('exclusiveMaximum', Infinity)
}

function partsHold(value: unknown, schema: Schema): boolean {
  if (Array.isArray(value)) {
    const first = schema['prefixItems'] as Schema[] | undefined ?? []
    const rest = schema['items'] === false ? { type: [] } : schema['items'] as Schema | undefined ?? {}
    return value.every((item, i) => isValid(item, first[i] ?? rest))
  }
  if (typeof value !== 'object' || value === null || schema['properties'] === undefined) return true
  const properties = new Map(Object.entries(schema['properties'] as Record<string, Schema>))
  const required = schema['required'] as string[] | undefined ?? []
  return required.every((name) => Object.hasOwn(value, name))
    && Object.entries(value).every(([name, member]) => isValid(member, properties.get(name) ?? (schema['additionalProperties'] === false ? { type: [] } : {})))
}
