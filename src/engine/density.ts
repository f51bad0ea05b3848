/**
 * Owns how the running lanes are brought together. Rows of consecutive lanes go through the model as one batch and a gap
 * splits it, so a State that runs apart is moved next to the others, by image, between two batches: what it holds and
 * what it yields stay the same (E1). A filler row in the gap costs as much as any row, which is more than the split.
 *
 * D1 only into free lanes, and only States that run: who is parked is left alone.
 * D2 one move before a batch, and only where its copy takes no longer than the batch: nobody waits for two of them.
 * D3 every move brings the runs nearer to one (the sum of the squares of their lengths grows), so moves come to an end.
 */
import type { Batch } from './batch.ts'
import type { LaneCopies } from './lane-copies.ts'
import type { Lanes } from './lanes.ts'
import type { Llama } from './llama/llama.ts'
import type { Speeds } from './speeds.ts'

export class Density {
  readonly #llama: Llama
  readonly #lanes: Lanes
  readonly #speeds: Speeds
  readonly #copies: LaneCopies

  constructor(llama: Llama, lanes: Lanes, speeds: Speeds, copies: LaneCopies) {
    this.#llama = llama
    this.#lanes = lanes
    this.#speeds = speeds
    this.#copies = copies
  }

  /** The batch as it should run: its members in the order of their lanes, one of which may be another now. */
  gather(batch: Batch): Batch {
    if (batch.kind === 'prefill') return batch
    const { members } = batch
    const move = moveTogether(members.map(({ lane }) => lane.index), (lane) => this.#lanes.isFree(lane))
    const member = members.find(({ lane }) => lane.index === move?.from)
    if (move === null || member === undefined) return batch
    const tokens = member.fed.length
    const { decodeBaseNs, decodeRowNs } = this.#speeds.snapshot()
    if (this.#copies.costNs(tokens) > decodeBaseNs + decodeRowNs * members.length) return batch
    if (!this.#copies.copy(move.from, move.to, tokens)) return batch
    this.#llama.cut(move.from, 0)
    this.#lanes.relocate(member.lane, move.to)
    return { kind: 'decode', members: [...members].sort((a, b) => a.lane.index - b.lane.index) }
  }
}

/** Consecutive lanes: `begin` to before `end`. */
interface Run { readonly begin: number; readonly end: number }

/** `lanes`: those that run, in ascending order; null where no free lane helps. */
export function moveTogether(lanes: readonly number[], isFree: (lane: number) => boolean): { readonly from: number; readonly to: number } | null {
  const runs = runsOf(lanes)
  if (runs.length < 2) return null
  const smallest = runs.reduce((least, run) => (lengthOf(run) < lengthOf(least) ? run : least))
  const others = runs.filter((run) => run !== smallest)
  let best: { readonly to: number; readonly length: number } | null = null
  for (const to of others.flatMap(({ begin, end }) => [begin - 1, end])) {
    if (!isFree(to)) continue
    const length = others.reduce((sum, run) => (run.end === to || run.begin === to + 1 ? sum + lengthOf(run) : sum), 1)
    if (best === null || length > best.length) best = { to, length }
  }
  if (best === null) return null
  // The end that is farther away, so that what stays of the run is no farther from the others.
  return { from: best.to < smallest.begin ? smallest.end - 1 : smallest.begin, to: best.to }
}

function runsOf(lanes: readonly number[]): Run[] {
  const runs: Run[] = []
  for (const lane of lanes) {
    const last = runs.at(-1)
    if (last?.end !== lane) runs.push({ begin: lane, end: lane + 1 })
    else runs[runs.length - 1] = { begin: last.begin, end: lane + 1 }
  }
  return runs
}

const lengthOf = ({ begin, end }: Run): number => end - begin
