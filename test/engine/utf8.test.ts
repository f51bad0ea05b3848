import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { Utf8Decoder } from '../../src/engine/utf8.ts'

/** Bytes that are often nearly right. */
const someBytes = fc.array(fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 3 }).map((text) => [...Buffer.from(text)]),
  fc.array(
    fc.constantFrom(0xc0, 0xc2, 0xe0, 0xe2, 0xed, 0xf0, 0xf4, 0xf5, 0x80, 0x82, 0x9f, 0xa0, 0xbf, 0x41),
    { maxLength: 4 },
  ),
), { maxLength: 12 }).map((parts) => Uint8Array.from(parts.flat()))

const whole = (bytes: Uint8Array): string => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes)

describe('characters from bytes', () => {
  test('however the bytes are cut, the text is that of all of them', () => {
    fc.assert(fc.property(someBytes, fc.array(fc.nat(60), { maxLength: 8 }), (bytes, cuts) => {
      const decoder = new Utf8Decoder()
      const borders = [0, ...cuts.filter((cut) => cut <= bytes.length).sort((a, b) => a - b), bytes.length]
      const parts = borders.slice(1).map((end, i) => decoder.push(bytes.subarray(borders[i], end)))
      assert.equal(parts.join('') + decoder.end(), whole(bytes))
    }), { numRuns: 2_000 })
  })

  test('a character is never given out in parts, at any byte', () => {
    const text = 'aé世🎭\u{10ffff}\ufeff'
    const decoder = new Utf8Decoder()
    let shown = ''
    let bytes = 0
    for (const byte of Buffer.from(text)) {
      bytes++
      shown += decoder.push(Uint8Array.of(byte))
      assert(text.startsWith(shown))
      if (decoder.clean) assert.equal(Buffer.from(shown).length, bytes)
    }
    assert.equal(shown, text)
    assert.equal(decoder.end(), '')
  })

  test('nothing is held that no byte could finish', () => {
    for (const bytes of [[0xc0], [0xff], [0x80], [0xe0, 0x80], [0xed, 0xa0], [0xf0, 0x8f], [0xf4, 0x90], [0xf5]]) {
      const decoder = new Utf8Decoder()
      assert.equal(decoder.push(Uint8Array.from(bytes)), '\ufffd'.repeat(bytes.length))
      assert(decoder.clean)
    }
  })

  test('what is held and never finished becomes one U+FFFD', () => {
    const decoder = new Utf8Decoder()
    assert.equal(decoder.push(Uint8Array.of(0xf0, 0x9f, 0x8e)), '')
    assert(!decoder.clean)
    assert.equal(decoder.end(), '\ufffd')
  })
})
