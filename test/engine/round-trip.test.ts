import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Llama } from '../../src/engine/llama/llama.ts'
import { LlamaError } from '../../src/engine/llama/llama.ts'
import { lostTexts } from '../../src/engine/round-trip.ts'

/** A token is a byte; `through` is what becomes of a text on the way in. */
const model = (through: (text: string) => string): Llama => ({
  tokenize: (text: string) => Int32Array.from(Buffer.from(through(text))),
  piece: (token: number) => Uint8Array.of(token),
}) as unknown as Llama

test('a tokenizer that loses plain text is refused with the place; one that loses a script is named for it', () => {
  assert.deepEqual(lostTexts(model((text) => text)), [])
  assert.deepEqual(lostTexts(model((text) => ` ${text}`)), [], 'a space of its own at the beginning is no loss')
  assert.deepEqual(lostTexts(model((text) => text.replaceAll(/[\u0400-\u04ff]/g, '?'))), ['Cyrillic'])
  assert.deepEqual(lostTexts(model((text) => text.normalize('NFD'))), ['accents'])
  for (const lossy of [(text: string) => text.replaceAll('{', ''), (text: string) => text.toLowerCase(), (text: string) => text.replaceAll('\n\n', '\n')]) {
    assert.throws(() => lostTexts(model(lossy)), (thrown: unknown) => thrown instanceof LlamaError && /loses text: /.test(thrown.message))
  }
})
