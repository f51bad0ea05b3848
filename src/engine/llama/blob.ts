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
/** Position, number of sequences, sequence. */
const CELL_BYTES = 12
/** What stands before the data of a plane, in rows as in columns. */
const HEAD_BYTES = 12

/** The form of one layer's K or V, whatever the number of tokens. */
export interface PlaneForm {
  /** ggml's number of the element type. */
  readonly type: number
  /** Bytes of one token in one row. */
  readonly cellBytes: number
  /** Rows of one cell a token: 1 where a token's bytes lie together, V's width where V is transposed. */
  readonly rows: number
}

/** The form of a State's KV: equal forms can be taken apart and put together. */
export interface BlobForm {
  readonly transposed: boolean
  readonly keys: readonly PlaneForm[]
  readonly values: readonly PlaneForm[]
}

/** A plane in a blob, and the place of its first data byte. */
interface Plane extends PlaneForm {
  readonly offset: number
}

export interface Blob {
  readonly tokens: number
  readonly form: BlobForm
  /** K of every layer, then V of every layer. */
  readonly planes: readonly Plane[]
}

/** KV bytes of one token over all layers. */
export const tokenBytes = (form: BlobForm): number =>
  [...form.keys, ...form.values].reduce((sum, plane) => sum + plane.cellBytes * plane.rows, 0)

/** Equal forms have equal names. */
export function formName(form: BlobForm): string {
  const planes = (list: readonly PlaneForm[]): string => {
    const names = list.map((plane) => `${plane.type}x${plane.cellBytes}x${plane.rows}`)
    return new Set(names).size === 1 ? `${names[0]}*${names.length}` : names.join('+')
  }
  return `${form.transposed ? 'columns' : 'rows'},k${planes(form.keys)},v${planes(form.values)}`
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
  const keys = Array.from({ length: layers }, () => readPlane(read, tokens, false))
  const values = Array.from({ length: layers }, () => readPlane(read, tokens, transposed))
  for (let stream = before; stream < streams; stream++) {
    if (read.u32() !== 0) throw new LlamaError('state', 'a sequence state with cells in two streams')
  }
  read.end()
  const form = { transposed, keys: keys.map(formOf), values: values.map(formOf) }
  return { tokens, form, planes: [...keys, ...values] }
}

/** A blob without its data, as a context of `streams` streams reads it; the data goes where `planes` says. */
export function emptyBlob(
  form: BlobForm, tokens: number, streams: number,
): { readonly bytes: Buffer; readonly blob: Blob } {
  const planes = [...form.keys, ...form.values]
  const bytes = Buffer.allocUnsafeSlow(
    4 * 4 + tokens * CELL_BYTES + 2 * 4 + planes.length * HEAD_BYTES + tokenBytes(form) * tokens + (streams - 1) * 4)
  let at = 0
  const u32 = (value: number): void => { at = bytes.writeUInt32LE(value, at) }
  for (const value of [MAGIC, 0, streams, tokens]) u32(value)
  for (let position = 0; position < tokens; position++) for (const value of [position, 1, 0]) u32(value)
  u32(form.transposed ? 1 : 0)
  u32(form.keys.length)
  const placed = planes.map((plane, index): Plane => {
    u32(plane.type)
    u32(plane.cellBytes)
    u32(isColumns(form, index) ? plane.rows : 0)
    const offset = at
    at += plane.cellBytes * plane.rows * tokens
    return { ...plane, offset }
  })
  for (let stream = 1; stream < streams; stream++) u32(0)
  return { bytes, blob: { tokens, form, planes: placed } }
}

/** Some planes, one after another, and their bytes for a span. */
export interface Piece {
  readonly planes: readonly Plane[]
  readonly bytes: number
}

/** All planes in order, in pieces of at most `bytesMax` for a span of `count` tokens; a longer plane is one piece. */
export function* pieces(blob: Blob, count: number, bytesMax: number): Generator<Piece> {
  let planes: Plane[] = []
  let bytes = 0
  for (const plane of blob.planes) {
    const more = plane.cellBytes * plane.rows * count
    if (planes.length > 0 && bytes + more > bytesMax) {
      yield { planes, bytes }
      planes = []
      bytes = 0
    }
    planes.push(plane)
    bytes += more
  }
  yield { planes, bytes }
}

/** Copies tokens `[from, from + count)` of a piece's planes out of a blob: plane by plane, row by row. */
export function takePiece(bytes: Buffer, blob: Blob, piece: Piece, from: number, count: number, out: Buffer): void {
  let at = 0
  for (const plane of piece.planes) {
    const run = plane.cellBytes * count
    let source = plane.offset + plane.cellBytes * from
    for (let row = 0; row < plane.rows; row++) {
      bytes.copy(out, at, source, source + run)
      source += plane.cellBytes * blob.tokens
      at += run
    }
  }
}

/** The reverse of `takePiece`. */
export function putPiece(bytes: Buffer, blob: Blob, piece: Piece, from: number, count: number, data: Buffer): void {
  let at = 0
  for (const plane of piece.planes) {
    const run = plane.cellBytes * count
    let target = plane.offset + plane.cellBytes * from
    for (let row = 0; row < plane.rows; row++) {
      data.copy(bytes, target, at, at + run)
      target += plane.cellBytes * blob.tokens
      at += run
    }
  }
}

const formOf = ({ type, cellBytes, rows }: Plane): PlaneForm => ({ type, cellBytes, rows })

/** V is written in columns where it is transposed; K never is. */
const isColumns = (form: BlobForm, index: number): boolean => form.transposed && index >= form.keys.length

function readCell(read: Reader, index: number): void {
  const position = read.u32()
  if (position !== index) throw new LlamaError('state', `cell ${index} is at position ${position}`)
  if (read.u32() !== 1) throw new LlamaError('state', `cell ${index} belongs to several sequences`)
  read.u32()
}

/** Rows have their size in eight bytes; columns the element's in four and their number in four. */
function readPlane(read: Reader, tokens: number, columns: boolean): Plane {
  const type = read.u32()
  const cellBytes = read.u32()
  const second = read.u32()
  if (!columns && second !== 0) throw new LlamaError('state', 'a row of more than 4 GiB')
  const rows = columns ? second : 1
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
