/**
 * A vocabulary for tests: tokens 0 to 255 are the bytes, then longer pieces (so that borders move with the text), then
 * control tokens. Tokenising takes the longest piece at each place.
 */
import type { Tokenizer } from '../../src/engine/token-record.ts'

const PIECES = [
  'he', 'll', 'hello', ' wor', 'ld', 'the', ' the', 'ab', 'abc', 'bc', 'cd', '\n<', '<|', '|>', 'tool', '<tool',
  '_call>',
  '{"', '": ', '", "', '"}', '}\n', 'éé', 'user', 'assistant', 'system', 'im_', 'start', 'end',
]
const CONTROL = ['<|im_start|>', '<|im_end|>', '<|eot|>', '<|x|>', '<|odd|>']

export const IM_START = 256 + PIECES.length
export const IM_END = IM_START + 1
export const EOT = IM_START + 2
export const CONTROL_X = IM_START + 3
export const VOCABULARY_SIZE = IM_START + CONTROL.length

const pieceBytes: readonly Uint8Array[] = [
  ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
  ...PIECES.map((piece) => Buffer.from(piece)),
  ...CONTROL.map((piece) => Buffer.from(piece)),
]

export class FakeVocabulary implements Tokenizer {
  tokenize(text: string, parseSpecial: boolean): Int32Array {
    const bytes = Buffer.from(text)
    const tokens: number[] = []
    for (let at = 0; at < bytes.length;) {
      const token = longest(bytes, at, parseSpecial)
      tokens.push(token)
      at += pieceBytes[token]?.length ?? 1
    }
    return Int32Array.from(tokens)
  }

  piece(token: number, special: boolean): Uint8Array {
    if (this.isControl(token) && !special) return new Uint8Array(0)
    const bytes = pieceBytes[token]
    if (bytes === undefined) throw new RangeError(`no token ${token}`)
    return bytes
  }

  isEog(token: number): boolean {
    return token === IM_END || token === EOT
  }

  isControl(token: number): boolean {
    return token >= IM_START
  }
}

function longest(bytes: Buffer, at: number, control: boolean): number {
  let best = bytes[at] ?? 0
  let length = 1
  for (let token = 256; token < pieceBytes.length; token++) {
    const piece = pieceBytes[token]
    if (piece === undefined || (token >= IM_START && !control)) continue
    if (piece.length > length && bytes.subarray(at, at + piece.length).equals(piece)) {
      best = token
      length = piece.length
    }
  }
  return best
}

export const vocabulary = new FakeVocabulary()

/** The bytes of `text`, one token each. */
export const byteTokens = (text: string): number[] => [...Buffer.from(text)]
