/**
 * Owns the form of the library's blob of one sequence: envelope (magic, sequence, streams with their cell counts), the
 * cells' positions, K rows by layer, then V rows, or V transposed (one run of cells for each of V's elements) where
 * flash attention is off. Leaves spans, files and digests to `kv-image.ts`.
 *
 * Integers are little-endian. Whatever does not parse to its last byte is refused by LlamaError('state').
 */
import { LlamaError } from './error.ts'

const MAGIC = 0xaf143cd8
const STREAMS_MAX = 256
const LAYERS_MAX = 1024

/** One layer's K or V: where its data lies and how it is cut by token. */
export interface Plane {
  readonly type: number
  /** Bytes of one token in one row. */
  readonly cellBytes: number
  /** Rows of `tokens` cells each: 1 where a token's bytes lie together, V's width where V is transposed. */
  readonly rows: number
  /** Of the first data byte. */
  readonly offset: number
}

export interface Blob {
  readonly tokens: number
  readonly transposed: boolean
  readonly keys: readonly Plane[]
  readonly values: readonly Plane[]
  /** KV bytes of one token over all layers. */
  readonly bytesPerToken: number
}

export function parseBlob(bytes: Uint8Array): Blob {
  const read = new Reader(bytes)
  if (read.u32() !== MAGIC) throw new LlamaError('state', 'this is no sequence state: its first bytes are others')
  read.u32()
  const streams = read.u32()
  if (streams === 0 || streams > STREAMS_MAX) throw new LlamaError('state', `a sequence state of ${streams} streams`)
  let before = 0
  let tokens = 0
  while (tokens === 0 && before < streams) {
    tokens = read.u32()
    before++
  }
  if (tokens === 0) throw new LlamaError('state', 'a sequence state without a token')
  for (let index = 0; index < tokens; index++) readCell(read, index)
  const transposed = read.u32() === 1
  const layers = read.u32()
  if (layers === 0 || layers > LAYERS_MAX) throw new LlamaError('state', `a sequence state of ${layers} layers`)
  const keys = Array.from({ length: layers }, () => readRows(read, tokens))
  const values = Array.from({ length: layers }, () => transposed ? readColumns(read, tokens) : readRows(read, tokens))
  for (let stream = before; stream < streams; stream++) {
    if (read.u32() !== 0) throw new LlamaError('state', 'a sequence state with cells in two streams')
  }
  read.end()
  const bytesPerToken = [...keys, ...values].reduce((sum, plane) => sum + plane.cellBytes * plane.rows, 0)
  return { tokens, transposed, keys, values, bytesPerToken }
}

function readCell(read: Reader, index: number): void {
  const position = read.u32()
  if (position !== index) throw new LlamaError('state', `cell ${index} is at position ${position}`)
  if (read.u32() !== 1) throw new LlamaError('state', `cell ${index} belongs to several sequences`)
  read.u32()
}

function readRows(read: Reader, tokens: number): Plane {
  const type = read.u32()
  const cellBytes = read.u64()
  return { type, cellBytes, rows: 1, offset: read.skip(cellBytes * tokens) }
}

function readColumns(read: Reader, tokens: number): Plane {
  const type = read.u32()
  const cellBytes = read.u32()
  const rows = read.u32()
  return { type, cellBytes, rows, offset: read.skip(cellBytes * rows * tokens) }
}

class Reader {
  readonly #view: DataView
  #at = 0

  constructor(bytes: Uint8Array) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  }

  u32(): number {
    const at = this.skip(4)
    return this.#view.getUint32(at, true)
  }

  u64(): number {
    const at = this.skip(8)
    const value = this.#view.getBigUint64(at, true)
    if (value > 0xffff_ffffn) throw new LlamaError('state', `a row of ${value} bytes`)
    return Number(value)
  }

  /** Moves on and gives the place left. */
  skip(bytes: number): number {
    const at = this.#at
    if (at + bytes > this.#view.byteLength) throw new LlamaError('state', 'a sequence state ends in the middle')
    this.#at = at + bytes
    return at
  }

  end(): void {
    if (this.#at !== this.#view.byteLength) throw new LlamaError('state', 'a sequence state goes on after its end')
  }
}
