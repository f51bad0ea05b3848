/**
 * Owns reading the head of a GGUF file: what it says of the model, and where its last tensor ends. Leaves to the engine
 * whether the library can run it. Nothing of the weights is read, so a file of any size answers in well under a second.
 *
 * Throws GgufFault where the file is none, is damaged or is cut short; every number in it is checked against the file's
 * size before it is used.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
import { ELEMENT_TYPES, quantisationName } from './gguf-types.ts'

/** The library reads these; version 1 had other widths. */
const VERSION_MIN = 2
const VERSION_MAX = 3
const WINDOW_BYTES = 1 << 20
const DIMENSIONS_MAX = 4
const KEY_BYTES_MAX = 1 << 16
const TEXT_BYTES_MAX = 16 << 20
/** Longer arrays (vocabularies) are walked over and not kept. */
const ARRAY_KEPT_MAX = 4_096
const ALIGNMENT_DEFAULT = 32

type Value = string | number | boolean | readonly number[] | { readonly items: number }

export interface Gguf {
  /** Of the file. */
  readonly bytes: number
  readonly architecture: string
  readonly name: string | null
  readonly licence: string | null
  readonly quantisation: string | null
  /** What the model was trained for; null where the file does not say. */
  readonly contextTokens: number | null
  readonly hasTemplate: boolean
  readonly parameters: number
  /** Files the model is cut into; 1 where it is whole. */
  readonly parts: number
}

export class GgufFault extends Error {
  readonly kind: 'not-gguf' | 'damaged' | 'truncated'

  constructor(kind: GgufFault['kind'], message: string) {
    super(message)
    this.name = 'GgufFault'
    this.kind = kind
  }
}

/** Throws GgufFault, or what the file system says. */
export function readGguf(path: string): Gguf {
  const file = openSync(path, 'r')
  try {
    return readHead(new Cursor(file, fstatSync(file).size))
  } finally {
    closeSync(file)
  }
}

function readHead(read: Cursor): Gguf {
  const magic = read.bytes(Math.min(4, read.size)).toString('latin1')
  if (magic !== 'GGUF') throw new GgufFault('not-gguf', `is not a GGUF file: it begins with ${JSON.stringify(magic)}`)
  const version = read.u32()
  if (version < VERSION_MIN || version > VERSION_MAX) {
    const order = version >= 1 << 16 ? ' (its bytes are in the other order)' : ''
    throw new GgufFault('damaged', `is a GGUF file of version ${version}${order}; ${VERSION_MIN} and ${VERSION_MAX} are read`)
  }
  const tensors = read.count('tensors')
  const pairs = read.count('entries')
  const meta = new Map<string, Value>()
  for (let index = 0; index < pairs; index++) {
    const key = read.text(KEY_BYTES_MAX)
    meta.set(key, readValue(read, read.u32()))
  }
  const parameters = readTensors(read, tensors, numberOf(meta.get('general.alignment')) ?? ALIGNMENT_DEFAULT)
  return headOf(meta, read.size, parameters)
}

function headOf(meta: ReadonlyMap<string, Value>, bytes: number, parameters: number): Gguf {
  const architecture = textOf(meta.get('general.architecture'))
  if (architecture === null) throw new GgufFault('damaged', 'does not say its architecture (general.architecture)')
  const fileType = numberOf(meta.get('general.file_type'))
  return {
    bytes,
    architecture,
    name: textOf(meta.get('general.name')),
    licence: textOf(meta.get('general.license')),
    quantisation: fileType === null ? null : quantisationName(fileType),
    contextTokens: numberOf(meta.get(`${architecture}.context_length`)),
    hasTemplate: textOf(meta.get('tokenizer.chat_template')) !== null,
    parameters,
    parts: Math.max(1, numberOf(meta.get('split.count')) ?? 1),
  }
}

const textOf = (value: Value | undefined): string | null => typeof value === 'string' ? value : null
const numberOf = (value: Value | undefined): number | null => typeof value === 'number' ? value : null

/** Sizes of fixed-width values by GGUF's number of the type; 8 is a text and 9 an array. */
const WIDTHS: readonly number[] = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8]
const TEXT = 8
const ARRAY = 9

function readValue(read: Cursor, kind: number): Value {
  if (kind === TEXT) return read.text(TEXT_BYTES_MAX)
  if (kind !== ARRAY) return readScalar(read, kind)
  const itemKind = read.u32()
  const items = read.count('items')
  if (itemKind === ARRAY) throw new GgufFault('damaged', 'holds an array of arrays')
  if (itemKind === TEXT) {
    for (let index = 0; index < items; index++) read.skip(read.length(TEXT_BYTES_MAX))
    return { items }
  }
  if (items > ARRAY_KEPT_MAX) {
    read.skip(items * widthOf(itemKind))
    return { items }
  }
  return Array.from({ length: items }, () => Number(readScalar(read, itemKind)))
}

function widthOf(kind: number): number {
  const width = WIDTHS[kind] ?? 0
  if (width === 0) throw new GgufFault('damaged', `holds a value of the unknown type ${kind}`)
  return width
}

function readScalar(read: Cursor, kind: number): number | boolean {
  const bytes = read.bytes(widthOf(kind))
  switch (kind) {
    case 0: return bytes.readUInt8()
    case 1: return bytes.readInt8()
    case 2: return bytes.readUInt16LE()
    case 3: return bytes.readInt16LE()
    case 4: return bytes.readUInt32LE()
    case 5: return bytes.readInt32LE()
    case 6: return bytes.readFloatLE()
    case 7: return bytes.readUInt8() !== 0
    case 10: return Number(bytes.readBigUInt64LE())
    case 11: return Number(bytes.readBigInt64LE())
    default: return bytes.readDoubleLE()
  }
}

/** Gives the number of weights; throws where the file ends before the last of them. */
function readTensors(read: Cursor, count: number, alignment: number): number {
  let parameters = 0
  let end = 0
  for (let index = 0; index < count; index++) {
    const name = read.text(KEY_BYTES_MAX)
    const dimensions = read.u32()
    if (dimensions > DIMENSIONS_MAX) throw new GgufFault('damaged', `gives the tensor ${name} ${dimensions} dimensions`)
    let elements = 1
    for (let dimension = 0; dimension < dimensions; dimension++) elements *= read.u64()
    const type = read.u32()
    const offset = read.u64()
    const sizes = ELEMENT_TYPES.get(type)
    if (sizes === undefined) throw new GgufFault('damaged', `holds the tensor ${name} of the unknown type ${type}`)
    parameters += elements
    end = Math.max(end, offset + Math.ceil(elements / sizes.block) * sizes.bytes)
  }
  const wanted = Math.ceil(read.at / alignment) * alignment + end
  if (wanted > read.size) {
    throw new GgufFault('truncated', `is cut short: its last tensor ends at byte ${wanted} and the file at ${read.size}`)
  }
  return parameters
}

/** Reads forwards through a window, so that a head of many small values costs few reads. */
class Cursor {
  readonly size: number
  at = 0
  readonly #file: number
  #window = Buffer.alloc(0)
  #windowAt = 0

  constructor(file: number, size: number) {
    this.#file = file
    this.size = size
  }

  bytes(count: number): Buffer {
    const start = this.at
    this.skip(count)
    if (start < this.#windowAt || this.at > this.#windowAt + this.#window.length) this.#fill(start, count)
    return this.#window.subarray(start - this.#windowAt, this.at - this.#windowAt)
  }

  skip(count: number): void {
    if (this.at + count > this.size) {
      throw new GgufFault('truncated', `is cut short: it ends at byte ${this.size}, in the middle of its head`)
    }
    this.at += count
  }

  u32(): number {
    return this.bytes(4).readUInt32LE()
  }

  u64(): number {
    const value = this.bytes(8).readBigUInt64LE()
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new GgufFault('damaged', `holds the size ${value}`)
    return Number(value)
  }

  /** A number of things of a byte or more each, so the file cannot hold more of them than it has bytes. */
  count(what: string): number {
    const value = this.u64()
    if (value > this.size) throw new GgufFault('damaged', `claims ${value} ${what} in ${this.size} bytes`)
    return value
  }

  length(bytesMax: number): number {
    const value = this.u64()
    if (value > bytesMax) throw new GgufFault('damaged', `holds a text of ${value} bytes`)
    return value
  }

  text(bytesMax: number): string {
    return this.bytes(this.length(bytesMax)).toString('utf8')
  }

  #fill(from: number, count: number): void {
    const window = Buffer.allocUnsafe(Math.min(Math.max(count, WINDOW_BYTES), this.size - from))
    const read = readSync(this.#file, window, 0, window.length, from)
    if (read < count) throw new GgufFault('truncated', `is cut short: it ended at byte ${from + read} while it was read`)
    this.#window = window.subarray(0, read)
    this.#windowAt = from
  }
}
