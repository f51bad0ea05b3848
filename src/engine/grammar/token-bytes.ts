/**
 * Owns the bytes of every token that a grammar may allow, in the order of those bytes, so that what tokens begin with in
 * common is looked at once. Tokens that spell nothing are not among them, and of control tokens only those
 * that are read as their text.
 */
export interface Vocabulary {
  readonly info: { readonly vocabSize: number }
  isEog(token: number): boolean
  isControl(token: number): boolean
  piece(token: number, special: boolean): Uint8Array
}

export class TokenBytes {
  readonly vocabSize: number
  /** Tokens that end generation. */
  readonly ends: readonly number[]
  /** By place in the order: the token. */
  readonly tokens: Int32Array
  /** By place: where its bytes begin; one more entry than places. */
  readonly begins: Uint32Array
  readonly bytes: Uint8Array
  /** By place: how many bytes it has in common with the one before. */
  readonly shared: Uint16Array
  /** By token: its place, or -1. */
  readonly places: Int32Array

  /** `tags`: what is read as text although it is a control token. */
  constructor(vocabulary: Vocabulary, tags: ReadonlySet<string>) {
    const { vocabSize } = vocabulary.info
    this.vocabSize = vocabSize
    const all = Array.from({ length: vocabSize }, (_, token) => token)
    this.ends = all.filter((token) => vocabulary.isEog(token))
    const spelled = all
      .filter((token) => !vocabulary.isEog(token))
      .map((token) => ({ token, bytes: latin1(vocabulary.piece(token, true)) }))
      .filter(({ token, bytes }) => bytes !== '' && (!vocabulary.isControl(token) || tags.has(Buffer.from(bytes, 'latin1').toString('utf8'))))
      .sort((a, b) => a.bytes < b.bytes ? -1 : a.bytes > b.bytes ? 1 : a.token - b.token)
    this.tokens = Int32Array.from(spelled, ({ token }) => token)
    this.bytes = Buffer.from(spelled.map(({ bytes }) => bytes).join(''), 'latin1')
    this.begins = new Uint32Array(spelled.length + 1)
    this.shared = new Uint16Array(spelled.length)
    this.places = new Int32Array(vocabSize).fill(-1)
    for (const [place, { token, bytes }] of spelled.entries()) {
      this.begins[place + 1] = (this.begins[place] ?? 0) + bytes.length
      this.places[token] = place
      this.shared[place] = inCommon(spelled[place - 1]?.bytes ?? '', bytes)
    }
  }
}

/** A byte a character: strings sort faster than arrays of bytes. */
const latin1 = (bytes: Uint8Array): string => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('latin1')

function inCommon(a: string, b: string): number {
  let length = 0
  while (length < a.length && length < b.length && a.charCodeAt(length) === b.charCodeAt(length)) length++
  return length
}
