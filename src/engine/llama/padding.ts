/**
 * Owns rows that are fed for the sake of the others: some kernels compute a lone row, or rows that are no multiple of
 * four, by other code, so that what a token yields would depend on how many rows are beside it. Where the setting wants
 * it, each lane's rows in a batch are followed by others that continue them. They come after, so that nothing attends to
 * them, and are cut before anybody looks. Beside a lone row they ask for logits as it does: the last matrices are
 * computed for those rows only that ask.
 */
import type { FlashAttention } from './attention.ts'
import type { Row } from './rows.ts'

/** Rows of a lane in a batch: as they come, at least two, or a multiple of four. */
export type RowUnit = 1 | 2 | 4
export const ROW_UNITS: readonly RowUnit[] = [1, 2, 4]

interface Padded {
  readonly rows: readonly Row[]
  /** Where each given row is. */
  readonly places: Int32Array
  /** What is to be cut again: the lanes, and from where on. */
  readonly cuts: readonly { readonly lane: number; readonly from: number }[]
}

/** Rows that a lane must have room for beyond its own: with exact attention a lone one may get a second. */
export const spareTokens = (attention: FlashAttention, unit: RowUnit): number => Math.max(unit, attention === 'exact' ? 2 : 1) - 1

export const paddedCount = (rows: number, unit: RowUnit): number =>
  unit === 4 ? Math.ceil(rows / 4) * 4 : Math.max(rows, unit)

/** A lane's rows are neighbours in the batch. */
export function pad(rows: readonly Row[], unit: RowUnit): Padded {
  const all: Row[] = []
  const places = new Int32Array(rows.length)
  const cuts: { lane: number; from: number }[] = []
  for (let begin = 0; begin < rows.length;) {
    const lane = rows[begin]?.lane
    let end = begin
    while (rows[end]?.lane === lane) {
      const row = rows[end]
      if (row !== undefined) places[end] = all.push(row) - 1
      end++
    }
    const last = rows[end - 1]
    const more = paddedCount(end - begin, unit) - (end - begin)
    if (last !== undefined && more > 0) {
      const logits = end - begin === 1 && last.logits
      for (let i = 1; i <= more; i++) all.push({ ...last, position: last.position + i, logits })
      cuts.push({ lane: last.lane, from: last.position + 1 })
    }
    begin = end
  }
  return { rows: all, places, cuts }
}
