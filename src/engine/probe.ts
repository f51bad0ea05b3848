/**
 * Owns the question whether this engine is exact: one short life of a State, lived in several ways that E1 says are the
 * same, compared by the hash of every row of logits drawn from. Runs once, a batch at a time, while nobody needs the
 * engine, in free lanes only; whoever comes has it let go, and the way it was in begins anew.
 */
import type { WireEngine } from '../protocol/engine.ts'
import type { Lane, Lanes } from './lanes.ts'
import { Life } from './life.ts'
import type { Lived, Way } from './life.ts'
import { prefillRowsMin } from './llama/attention.ts'
import type { Llama, Row } from './llama/llama.ts'
import { chunkTokensMin } from './plan.ts'

export type Exact = WireEngine['exact']

const LANES_NEEDED = 2

export class Probe {
  readonly #llama: Llama
  readonly #lanes: Lanes
  readonly #ways: readonly Way[]
  #life: Life | null = null
  #steps: Generator<readonly Row[], Lived> | null = null
  #reference: Lived | null = null
  #done = 0
  #companyMax = 0

  constructor(llama: Llama, lanes: Lanes, chunkTokens: number) {
    this.#llama = llama
    this.#lanes = lanes
    const rowsMin = prefillRowsMin(llama.info.flashAttention)
    const chunkMin = chunkTokensMin(rowsMin)
    const way = (name: string, other: Partial<Way>): Way => {
      const { chunkTokens: chunk = chunkTokens, ...rest } = other
      return { name, company: 0, changesLane: false, singly: false, replays: false, ...rest, chunkTokens: Math.min(Math.max(chunk, chunkMin), chunkTokens) }
    }
    this.#ways = [
      way('alone', {}),
      way(`in chunks of ${Math.max(23, chunkMin)} tokens, with a short remainder`, { chunkTokens: 23 }),
      way(`in chunks of ${Math.max(8, chunkMin)} tokens`, { chunkTokens: 8 }),
      way('beside one other lane', { company: 1 }),
      way('beside all other lanes', { company: lanes.total - 1, chunkTokens: 32 }),
      way('after a move to another lane', { changesLane: true }),
      ...(rowsMin > 2 ? [way('when what is short is fed one by one', { singly: true })] : []),
      way('when recomputed with its outputs forced', { replays: true, company: 1 }),
    ]
  }

  holds(lane: Lane): boolean {
    return this.#life?.holds(lane) ?? false
  }

  canAdvance(): boolean {
    return this.#life !== null || this.#lanes.free >= LANES_NEEDED
  }

  /** Runs one batch; the answer once it is known. */
  async advance(): Promise<Exact | null> {
    const way = this.#ways[this.#done]
    if (way === undefined) return this.#yes()
    this.#life ??= new Life(this.#llama, this.#lanes, way, this.#reference?.outputs ?? [])
    this.#steps ??= this.#life.live()
    const step = this.#steps.next()
    if (step.done !== true) {
      await this.#llama.decode(step.value)
      return null
    }
    this.#companyMax = Math.max(this.#companyMax, this.#life.company)
    this.release()
    this.#done++
    this.#reference ??= step.value
    if (step.value.digest === this.#reference.digest) return this.#done === this.#ways.length ? this.#yes() : null
    return { answer: 'no', because: `the same tokens have other logits ${way.name}` }
  }

  /** Gives its lanes back at once. Not while `advance` is under way. */
  release(): void {
    this.#life?.release()
    this.#life = null
    this.#steps = null
  }

  #yes(): Exact {
    const ways = `${this.#ways.length} ways to feed the same tokens, beside up to ${this.#companyMax} other lanes`
    return { answer: 'yes', because: `${ways}, gave the same logits` }
  }
}
