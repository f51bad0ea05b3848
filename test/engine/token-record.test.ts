import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import {
  TokenRecordError, decodePrepared, decodeRecord, encodePrepared, encodeRecord, joinRuns, recordOf,
} from '../../src/engine/token-record.ts'
import type { TokenRecord, TokenRun } from '../../src/engine/token-record.ts'
import { OutputPipeline } from '../../src/engine/output.ts'
import { CONTROL_X, byteTokens, vocabulary } from './vocabulary.ts'

const PLAIN = { noNullPrototype: true } as const
const text = fc.string({ unit: 'binary', maxLength: 12 })
const origin = fc.constantFrom<TokenRun['origin']>('prefilled', 'decoded')

const records: fc.Arbitrary<TokenRecord> = fc.record({
  runs: fc.array(fc.record({ tokens: fc.integer({ min: 1, max: 9 }), origin }, PLAIN), { maxLength: 5 }),
  text,
  silent: fc.array(fc.nat(50)),
  vocabulary: text,
  toolsDigest: text,
  history: fc.array(fc.record({
    digest: text,
    committed: fc.option(fc.record({
      content: text, toolCalls: fc.array(fc.record({ name: text, arguments: text }, PLAIN), { maxLength: 2 }),
    }, PLAIN)),
  }, PLAIN), { maxLength: 3 }),
  pending: fc.array(fc.integer({ min: 0, max: 300_000 }), { maxLength: 2 }),
  pendingText: text,
}, PLAIN).chain((rest) => {
  const length = rest.runs.reduce((sum, run) => sum + run.tokens, 0)
  return fc.array(fc.integer({ min: 0, max: 300_000 }), { minLength: length, maxLength: length })
    .map((tokens) => ({ ...rest, tokens: Int32Array.from(tokens) }))
})

describe('a token record', () => {
  test('comes back from its bytes as it was', () => {
    fc.assert(fc.property(records, (record) => {
      assert.deepEqual(decodeRecord(encodeRecord(record)), record)
      const { pending: _, pendingText: __, ...prepared } = record
      assert.deepEqual(decodePrepared(encodePrepared(prepared)), prepared)
    }), { numRuns: 300 })
  })

  test('of version 1 is read by every later version', () => {
    const record = decodeRecord(Buffer.from(VERSION_1.join(''), 'base64'))
    assert.deepEqual([[...record.tokens], record.pending, record.silent], [[104, 105, 300], [286], [3]])
    assert.deepEqual(record.runs, [{ tokens: 2, origin: 'prefilled' }, { tokens: 1, origin: 'decoded' }])
    assert.deepEqual([record.text, record.pendingText, record.vocabulary, record.toolsDigest], ['hi€', '', 'v', 't'])
    assert.deepEqual(record.history, [
      { digest: 'd', committed: null },
      { digest: 'e', committed: { content: '€', toolCalls: [{ name: 'f', arguments: '{}' }] } },
    ])
  })

  test('with any bit changed, or cut anywhere, is refused', () => {
    fc.assert(fc.property(records, fc.nat(), fc.nat(7), (record, where, bit) => {
      const bytes = encodeRecord(record)
      const flipped = Uint8Array.from(bytes)
      flipped[where % bytes.length] = (bytes[where % bytes.length] ?? 0) ^ (1 << bit)
      assert.throws(() => decodeRecord(flipped), TokenRecordError)
      assert.throws(() => decodeRecord(bytes.subarray(0, where % bytes.length)), TokenRecordError)
    }), { numRuns: 500 })
  })

  test('is not a prompt, and a prompt is no record', () => {
    const { pending: _, pendingText: __, ...prepared } = sample()
    assert.throws(() => decodeRecord(encodePrepared(prepared)), /a prompt was given for a record/)
    assert.throws(() => decodePrepared(encodeRecord(sample())), /a record for a prompt/)
  })

  test('of another version is refused by its number', () => {
    const bytes = Buffer.from(encodeRecord(sample()))
    bytes.writeUInt16LE(9, 4)
    assert.throws(() => decodeRecord(bytes), /version 9 is unknown/)
  })
})

describe('a record as it grows', () => {
  test('joins neighbours of one origin and drops empty runs', () => {
    const prefilled = (tokens: number): TokenRun => ({ tokens, origin: 'prefilled' })
    assert.deepEqual(joinRuns([prefilled(2)], prefilled(3)), [prefilled(5)])
    assert.deepEqual(joinRuns([prefilled(2)], { tokens: 0, origin: 'decoded' }), [prefilled(2)])
    assert.deepEqual(
      joinRuns([prefilled(2)], { tokens: 1, origin: 'decoded' }), [prefilled(2), { tokens: 1, origin: 'decoded' }],
    )
  })

  test('has what was fed as decoded, what was not fed as pending, and nothing that was cut', () => {
    const outputs = [...byteTokens('a€'), CONTROL_X, ...byteTokens('bSTOP')]
    const output = new OutputPipeline({ tokenizer: vocabulary, stops: ['STOP'], callsTools: false })
    for (const token of outputs) output.push(token)
    const kept = output.end('stop')
    const { history: before, silent: _, ...prompt } = sample()
    const cases = [[0, '', 'a€b'], [2, 'a', '€b'], [4, 'a€', 'b'], [6, 'a€b', ''], [9, 'a€b', '']] as const
    for (const [fed, fedText, pendingText] of cases) {
      const record = recordOf({ ...prompt, silent: [], history: before }, outputs, fed, kept)
      assert.deepEqual([...record.tokens.subarray(2), ...record.pending], outputs.slice(0, 6))
      assert.deepEqual(record.runs, joinRuns(prompt.runs, { tokens: Math.min(fed, 6), origin: 'decoded' }))
      assert.deepEqual([record.text, record.pendingText], [`hi${fedText}`, pendingText])
      assert.deepEqual(record.silent, [2 + 4])
      assert.deepEqual(record.history.at(-1)?.committed, { content: 'a€b', toolCalls: [] })
    }
  })
})

const sample = (): TokenRecord => ({
  tokens: Int32Array.from(byteTokens('hi')), runs: [{ tokens: 2, origin: 'prefilled' }], text: 'hi', silent: [],
  vocabulary: 'v', toolsDigest: 't', history: [], pending: [], pendingText: '',
})

/** Written by version 1, never to be written anew. */
const VERSION_1 = [
  'RVRPSwEAAgAtAQAABAAAAHsicnVucyI6W3sidG9rZW5zIjoyLCJvcmlnaW4iOiJwcmVmaWxsZWQifSx7InRva2VucyI6MSwib3Jp',
  'Z2luIjoiZGVjb2RlZCJ9XSwidGV4dCI6Imhp4oKsIiwic2lsZW50IjpbM10sInZvY2FidWxhcnkiOiJ2IiwidG9vbHNEaWdlc3Qi',
  'OiJ0IiwiaGlzdG9yeSI6W3siZGlnZXN0IjoiZCIsImNvbW1pdHRlZCI6bnVsbH0seyJkaWdlc3QiOiJlIiwiY29tbWl0dGVkIjp7',
  'ImNvbnRlbnQiOiLigqwiLCJ0b29sQ2FsbHMiOlt7Im5hbWUiOiJmIiwiYXJndW1lbnRzIjoie30ifV19fV0sInBlbmRpbmdUZXh0',
  'IjoiIiwicGVuZGluZyI6MX1oAAAAaQAAACwBAAAeAQAA3oISRg==',
]
