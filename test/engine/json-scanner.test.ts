import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { JsonScanner } from '../../src/engine/json-scanner.ts'
import type { ScanState } from '../../src/engine/json-scanner.ts'

function scan(text: string): { state: ScanState; end: number; scanner: JsonScanner } {
  const scanner = new JsonScanner()
  for (let at = 0; at < text.length; at++) {
    const state = scanner.push(text.charAt(at))
    if (state !== 'open') return { state, end: at + 1, scanner }
  }
  return { state: scanner.state, end: text.length, scanner }
}

function isJson(text: string): boolean {
  try {
    return JSON.parse(text) !== undefined
  } catch {
    return false
  }
}

const objects = fc.dictionary(fc.string({ unit: 'binary', maxLength: 4 }), fc.jsonValue({ maxDepth: 3 }))

describe('reading an object as it comes', () => {
  test('it is done where the object ends, and at no character before', () => {
    fc.assert(fc.property(objects, fc.constantFrom(0, 2), (object, indent) => {
      const text = JSON.stringify(object, null, indent)
      const { state, end } = scan(`${text}{"more`)
      assert.equal(state, 'done')
      assert.equal(end, text.length)
    }), { numRuns: 500 })
  })

  test('it knows its own members and where their values lie', () => {
    fc.assert(fc.property(objects, (object) => {
      const text = JSON.stringify(object, null, 1)
      const { members } = scan(text).scanner
      const read = members.map(({ keyBegin, keyEnd, valueBegin, valueEnd }) =>
        [JSON.parse(text.slice(keyBegin, keyEnd)), JSON.parse(text.slice(valueBegin, valueEnd ?? undefined))])
      assert.deepEqual(Object.fromEntries(read), JSON.parse(text))
    }), { numRuns: 500 })
  })

  test('it takes exactly what JSON.parse takes', () => {
    const units = fc.constantFrom(
      ...'{}[]",:\\u0a1-+.eE tfn\n', 'true', 'false', 'null', '"a"', '"b": ', '1.5', '\\u00e9',
    )
    const added = fc.array(units, { maxLength: 3 })
    const near = fc.tuple(objects, fc.nat(80), added, fc.nat(3)).map(([object, at, put, drop]) => {
      const text = JSON.stringify(object, null, 1)
      return text.slice(0, at) + put.join('') + text.slice(at + drop)
    })
    const any = fc.array(units, { maxLength: 12 }).map((parts) => `{${parts.join('')}`)
    fc.assert(fc.property(fc.oneof(near, any), (text) => {
      const { state, end } = scan(text)
      if (state === 'done') assert(isJson(text.slice(0, end)), text)
      if (state === 'open') assert(!isJson(text) || !text.trimStart().startsWith('{'), text)
      // Nothing that was refused could have gone on to be an object: no longer text of the same beginning was one.
      if (state === 'bad') assert(!isJson(text) || !text.trimStart().startsWith('{'), text)
    }), { numRuns: 5_000 })
  })

  test('nesting has a bound', () => {
    assert.equal(scan(`{"a": ${'['.repeat(300)}`).state, 'bad')
    assert.equal(scan(`{"a": ${'['.repeat(100)}`).state, 'open')
  })
})
