/**
 * Owns the bytes of a GGUF file: a head of named values, a table of tensors, and their data. Leaves what stands in them
 * to who writes one.
 */

export const F32 = 0
export const Q4_1 = 3
export const Q8_0 = 8

export type Value =
  | { readonly kind: 'u32' | 'f32'; readonly value: number }
  | { readonly kind: 'bool'; readonly value: boolean }
  | { readonly kind: 'text'; readonly value: string }
  | { readonly kind: 'texts'; readonly value: readonly string[] }
  | { readonly kind: 'i32s'; readonly value: readonly number[] }

export interface Tensor {
  readonly name: string
  readonly shape: readonly number[]
  readonly type: number
  readonly data: Buffer
}

export function ggufFile(pairs: readonly (readonly [string, Value])[], tensors: readonly Tensor[]): Buffer {
  const out = new Writer()
  out.bytes(Buffer.from('GGUF'))
  out.u32(3)
  out.u64(tensors.length)
  out.u64(pairs.length)
  for (const [key, value] of pairs) {
    out.text(key)
    out.value(value)
  }
  let offset = 0
  for (const tensor of tensors) {
    out.text(tensor.name)
    out.u32(tensor.shape.length)
    for (const size of tensor.shape) out.u64(size)
    out.u32(tensor.type)
    out.u64(offset)
    offset += padded(tensor.data.length)
  }
  out.align()
  for (const tensor of tensors) {
    out.bytes(tensor.data)
    out.align()
  }
  return out.whole()
}

/** Rows of blocks of 32: a half-precision scale, then 32 signed bytes. */
export function quantised(columns: number, rows: number, at: (row: number, column: number) => number): Buffer {
  const blockBytes = 34
  const data = Buffer.alloc((columns / 32) * rows * blockBytes)
  const block = new Float64Array(32)
  let offset = 0
  for (let row = 0; row < rows; row++) {
    for (let first = 0; first < columns; first += 32) {
      let largest = 0
      for (let i = 0; i < 32; i++) {
        block[i] = at(row, first + i)
        largest = Math.max(largest, Math.abs(block[i] ?? 0))
      }
      const scale = largest / 127
      data.writeUInt16LE(halfBits(scale), offset)
      for (let i = 0; i < 32; i++) data.writeInt8(scale === 0 ? 0 : Math.round((block[i] ?? 0) / scale), offset + 2 + i)
      offset += blockBytes
    }
  }
  return data
}

/** The nearest half-precision number not above `value`, as bits; `value` is positive and in the normal range, or 0. */
function halfBits(value: number): number {
  if (value === 0) return 0
  let exponent = 0
  let fraction = value
  while (fraction >= 2) { fraction /= 2; exponent++ }
  while (fraction < 1) { fraction *= 2; exponent-- }
  return ((exponent + 15) << 10) | Math.floor((fraction - 1) * 1024)
}

const ALIGNMENT = 32
const padded = (size: number): number => Math.ceil(size / ALIGNMENT) * ALIGNMENT

class Writer {
  readonly #parts: Buffer[] = []
  #size = 0

  bytes(part: Buffer): void {
    this.#parts.push(part)
    this.#size += part.length
  }

  u32(value: number): void {
    const part = Buffer.alloc(4)
    part.writeUInt32LE(value)
    this.bytes(part)
  }

  u64(value: number): void {
    const part = Buffer.alloc(8)
    part.writeBigUInt64LE(BigInt(value))
    this.bytes(part)
  }

  text(value: string): void {
    const part = Buffer.from(value)
    this.u64(part.length)
    this.bytes(part)
  }

  value(value: Value): void {
    switch (value.kind) {
      case 'u32':
        this.u32(4)
        this.u32(value.value)
        return
      case 'f32': {
        const part = Buffer.alloc(4)
        part.writeFloatLE(value.value)
        this.u32(6)
        this.bytes(part)
        return
      }
      case 'bool':
        this.u32(7)
        this.bytes(Buffer.from([value.value ? 1 : 0]))
        return
      case 'text':
        this.u32(8)
        this.text(value.value)
        return
      case 'texts':
        this.#array(8, value.value.length)
        for (const item of value.value) this.text(item)
        return
      case 'i32s':
        this.#array(5, value.value.length)
        for (const item of value.value) this.u32(item)
    }
  }

  align(): void {
    this.bytes(Buffer.alloc(padded(this.#size) - this.#size))
  }

  whole(): Buffer {
    return Buffer.concat(this.#parts)
  }

  #array(type: number, length: number): void {
    this.u32(9)
    this.u32(type)
    this.u64(length)
  }
}
