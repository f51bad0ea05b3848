/** Owns the memory of one batch: the arrays of a `llama_batch`, made once and filled again for every decode. */
import koffi from 'koffi'
import type { Batch, Pointer } from './layout.ts'

export interface Row {
  readonly token: number
  readonly position: number
  readonly lane: number
  readonly logits: boolean
}

export class Rows {
  readonly #memory: Pointer
  readonly #tokens: Int32Array
  readonly #positions: Int32Array
  readonly #lanes: Int32Array
  readonly #logits: Int8Array
  readonly #batch: Batch

  constructor(capacity: number) {
    // Eight bytes of pointer, then four arrays of four bytes and one of one.
    const bytes = capacity * (8 + 16 + 1)
    this.#memory = koffi.alloc('uint8_t', bytes) as Pointer
    const view = koffi.view(this.#memory, bytes)
    const at = (index: number): number => capacity * index
    const pointers = new BigUint64Array(view, 0, capacity)
    this.#tokens = new Int32Array(view, at(8), capacity)
    this.#positions = new Int32Array(view, at(12), capacity)
    this.#lanes = new Int32Array(view, at(16), capacity)
    new Int32Array(view, at(20), capacity).fill(1)
    this.#logits = new Int8Array(view, at(24), capacity)
    const address = (offset: number): Pointer => this.#memory + BigInt(offset)
    for (let row = 0; row < capacity; row++) pointers[row] = address(at(16) + row * 4)
    this.#batch = {
      n_tokens: 0, token: address(at(8)), embd: null, pos: address(at(12)), n_seq_id: address(at(20)),
      seq_id: address(0), logits: address(at(24)),
    }
  }

  fill(rows: readonly Row[]): Batch {
    let index = 0
    for (const row of rows) {
      this.#tokens[index] = row.token
      this.#positions[index] = row.position
      this.#lanes[index] = row.lane
      this.#logits[index] = row.logits ? 1 : 0
      index++
    }
    return { ...this.#batch, n_tokens: rows.length }
  }

  dispose(): void {
    koffi.free(this.#memory)
  }
}
