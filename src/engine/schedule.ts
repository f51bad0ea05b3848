/**
 * Owns what runs next. Decodes and prefills weigh the same, one batch each in turn: one chunk at most stands between two
 * tokens of a running call, and one decode between two chunks of a prefill, so neither starves. All who decode do so
 * together; of the lanes that prefill, the best-ranked goes first. Asked anew before every batch, so that an order given
 * meanwhile holds at once.
 */
import type { Batch } from './batch.ts'
import type { Sequence } from './sequence.ts'

export class Schedule {
  readonly #chunkTokens: number
  #last: Batch['kind'] = 'prefill'

  constructor(chunkTokens: number) {
    this.#chunkTokens = chunkTokens
  }

  /** Null: nobody runs. */
  next(running: Iterable<Sequence>): Batch | null {
    const decoding: Sequence[] = []
    let best: { readonly member: Sequence; readonly count: number } | null = null
    for (const sequence of running) {
      const piece = sequence.piece(this.#chunkTokens)
      if (piece.kind === 'decode') decoding.push(sequence)
      else if (best === null || goesBefore(sequence, best.member)) best = { member: sequence, count: piece.count }
    }
    if (best !== null && (decoding.length === 0 || this.#last === 'decode')) {
      this.#last = 'prefill'
      return { kind: 'prefill', ...best }
    }
    this.#last = 'decode'
    if (decoding.length === 0) return null
    return { kind: 'decode', members: decoding.sort((a, b) => a.lane.index - b.lane.index) }
  }
}

const goesBefore = (a: Sequence, b: Sequence): boolean =>
  a.rank !== b.rank ? a.rank < b.rank : a.lane.index < b.lane.index
