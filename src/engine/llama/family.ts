/**
 * Owns what can be done with a State of a model, found out on the model itself with a few tokens and not from a list of
 * names: whether its end can be cut off, whether a copy goes in again, and whether its layout is one that `blob.ts`
 * takes apart. Attention over everything can all three; a window has two caches in its layout; a recurrent state has no
 * earlier self to go back to.
 */
import { parseBlob, tokenBytes } from './blob.ts'
import type { BlobForm } from './blob.ts'
import { LlamaError } from './error.ts'
import type { Functions } from './functions.ts'
import type { Pointer } from './layout.ts'
import type { Rows } from './rows.ts'

/** A lone row is computed otherwise; the first batch is of the usual sort. */
export const FIRST_ROWS = 2

export interface Family {
  /** How the library lays out a State; null where it is not taken apart, so that it has no image. */
  readonly form: BlobForm | null
  /** A State can be cut at a token; else only all of it can be forgotten. */
  readonly trims: boolean
  readonly copies: boolean
  readonly kvBytesPerToken: number
  /** Of a State, whatever its length. */
  readonly stateBytes: number
}

/** Also warms the weights. The context is empty before and after. */
export function measureFamily(fn: Functions, context: Pointer, rows: Rows): Family {
  const memory = fn.memory(context)
  feed(fn, context, rows, 0, FIRST_ROWS)
  const bytes = stateOf(fn, context)
  const form = formOf(bytes)
  const copies = Number(fn.stateSet(context, bytes, bytes.length, 0)) === bytes.length
  if (form !== null) {
    const trims = fn.memoryRemove(memory, 0, 1, -1)
    fn.memoryRemove(memory, 0, -1, -1)
    return { form, trims, copies, kvBytesPerToken: tokenBytes(form), stateBytes: 0 }
  }
  feed(fn, context, rows, FIRST_ROWS, FIRST_ROWS)
  const perToken = Math.max(0, Number(fn.stateSize(context, 0)) - bytes.length) / FIRST_ROWS
  const trims = fn.memoryRemove(memory, 0, 1, -1)
  fn.memoryRemove(memory, 0, -1, -1)
  const stateBytes = Math.max(0, Math.round(bytes.length - FIRST_ROWS * perToken))
  return { form, trims, copies, kvBytesPerToken: Math.ceil(perToken), stateBytes }
}

function feed(fn: Functions, context: Pointer, rows: Rows, from: number, count: number): void {
  const batch = rows.fill(Array.from({ length: count }, (_, index) => (
    { token: 0, position: from + index, lane: 0, logits: index === 0 })))
  const code = fn.decode(context, batch)
  if (code !== 0) throw new LlamaError('decode', `the first batch failed in the library with code ${code}`)
}

function stateOf(fn: Functions, context: Pointer): Buffer {
  const size = Number(fn.stateSize(context, 0))
  const bytes = Buffer.alloc(size)
  fn.stateGet(context, bytes, size, 0)
  return bytes
}

function formOf(bytes: Buffer): BlobForm | null {
  try {
    return parseBlob(bytes).form
  } catch (error) {
    if (error instanceof LlamaError && error.code === 'state') return null
    throw error
  }
}
