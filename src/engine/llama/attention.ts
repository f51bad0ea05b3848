/**
 * Owns the ways in which attention is computed, and what each asks of batches so that a State depends on its tokens and
 * origins alone (E1). The library computes flash attention by two routines, one for 64 and more rows of a lane and one
 * for fewer; and a row that is alone in its part of a batch, over 512 cells and more, is split over the threads
 * (`ggml-cpu/ops.cpp` of the release). `exact`: every prefill has 64 rows or more, what is shorter counts as decoded,
 * and a lone row is computed by one thread.
 */
import type { Row } from './rows.ts'

export type FlashAttention = boolean | 'exact'

/** Rows of a lane from which on the library takes its other routine. */
const TILE_ROWS = 64
const ROWS_MIN = 2
/** Cells are counted in steps of 256: beyond so many tokens a lane has the 512 from which on a lone row is split. */
const UNSPLIT_TOKENS = 256

/** What fewer rows of a lane yield is what they yield one by one. */
export const prefillRowsMin = (attention: FlashAttention): number => (attention === 'exact' ? TILE_ROWS : ROWS_MIN)

/** In the names of what only engines of its like can read. */
export const attentionName = (attention: FlashAttention): string =>
  attention === 'exact' ? `fa${TILE_ROWS}` : attention ? 'fa' : 'nofa'

/** Whether some row would be split: it is alone in its part of the batch, a run of neighbouring lanes. `rows` lie in order of lanes. */
export const hasLoneRow = (rows: readonly Row[]): boolean => rows.some(({ lane, position }, at) => {
  if (position < UNSPLIT_TOKENS) return false
  const [before, after] = [rows[at - 1]?.lane, rows[at + 1]?.lane]
  return ![lane - 1, lane].includes(before ?? -2) && ![lane, lane + 1].includes(after ?? -2)
})
