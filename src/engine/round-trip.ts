/**
 * Owns whether a model's tokenizer gives a text back: what it loses can be neither asked nor answered, nor matched with
 * what a client echoes. Losing plain text is a refusal; losing other scripts is said.
 */
import { LlamaError } from './llama/llama.ts'
import type { Llama } from './llama/llama.ts'

const PLAIN = Array.from({ length: 0x5f }, (_, i) => String.fromCharCode(0x20 + i)).join('')
  + '\n{"a": [1, 2.5, null]}\n\n  two words\tand a tab'

const OTHER: readonly (readonly [string, string])[] = [
  ['accents', 'déjà vu, größer, año, İstanbul'],
  ['Cyrillic', 'Проверка'],
  ['Chinese', '你好，世界'],
  ['Arabic', 'مرحبا'],
  ['emoji', '👩🏽‍🚀🎉'],
]

/** What is lost of other scripts, by name. Throws LlamaError where plain text does not come back. */
export function lostTexts(llama: Llama): readonly string[] {
  const back = throughTokens(llama, PLAIN)
  if (back !== PLAIN) {
    const at = [...PLAIN].findIndex((unit, index) => unit !== [...back][index])
    const lost = JSON.stringify(PLAIN.slice(Math.max(0, at), at + 8))
    throw new LlamaError('model', `the model's tokenizer loses text: ${lost} does not come back from its tokens. `
      + 'The file was converted with a wrong or partial vocabulary; take another file of this model.')
  }
  return OTHER.filter(([, text]) => throughTokens(llama, text) !== text).map(([name]) => name)
}

function throughTokens(llama: Llama, text: string): string {
  const bytes = Buffer.concat([...llama.tokenize(text, false)].map((token) => llama.piece(token, false)))
  const back = bytes.toString('utf8')
  // Some vocabularies begin every text with a space of their own.
  return back.startsWith(' ') && !text.startsWith(' ') ? back.slice(1) : back.startsWith('  ') ? back.slice(1) : back
}
