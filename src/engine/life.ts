/** Owns one life that the probe lives: a prompt, some decodes, a tool's result, some decodes, and its company. */
import { createHash } from 'node:crypto'
import type { Lane, Lanes } from './lanes.ts'
import { prefillRowsMin } from './llama/attention.ts'
import type { Llama, Row } from './llama/llama.ts'
import { Plan } from './plan.ts'

export interface Way {
  readonly name: string
  readonly chunkTokens: number
  /** Other lanes that decode beside it and between its chunks; fewer where fewer are free. */
  readonly company: number
  /** By a copy of the State, after the first decodes. */
  readonly changesLane: boolean
  /** What is too short to be prefilled is fed one by one. */
  readonly singly: boolean
  /** In a lane that was used before, outputs forced. */
  readonly replays: boolean
}

/** `digest` is over every row of logits drawn from. */
export interface Lived { readonly digest: string; readonly outputs: readonly number[] }

const PROMPT_TOKENS = 70
/** With flash attention a lane computes otherwise once it is longer than 256. */
const PROMPT_TOKENS_FLASH = 300
const RESULT_TOKENS = 20
const DECODES = 6
/** What a lane was used for before a replay. */
const EARLIER_TOKENS = 24
const COMPANION_TOKENS = 12

interface Companion { readonly lane: Lane; position: number }

export class Life {
  readonly #llama: Llama
  readonly #lanes: Lanes
  readonly #way: Way
  readonly #forced: readonly number[]
  readonly #rowsMin: number
  readonly #promptTokens: number
  /** With the output before it, as much as just is not prefilled where that is more. */
  readonly #resultTokens: number
  readonly #held = new Map<string, Lane>()
  readonly #companions: Companion[] = []
  readonly #hash = createHash('sha256')
  readonly #outputs: number[] = []
  #lane: Lane
  #position = 0

  /** Needs one free lane, two where the way changes lanes. */
  constructor(llama: Llama, lanes: Lanes, way: Way, forced: readonly number[]) {
    this.#llama = llama
    this.#lanes = lanes
    this.#way = way
    this.#forced = forced
    this.#rowsMin = prefillRowsMin(llama.info.flashAttention)
    this.#resultTokens = Math.max(RESULT_TOKENS, this.#rowsMin - 2)
    this.#promptTokens = llama.info.flashAttention === false ? PROMPT_TOKENS : PROMPT_TOKENS_FLASH
    this.#lane = this.#take()
    while (this.#companions.length < way.company && lanes.free > 0) {
      this.#companions.push({ lane: this.#take(), position: 0 })
    }
  }

  get company(): number {
    return this.#companions.length
  }

  holds(lane: Lane): boolean {
    return this.#held.get(lane.state) === lane
  }

  release(): void {
    for (const lane of this.#held.values()) this.#giveBack(lane)
  }

  /** Yields one batch after another and goes on once it was decoded. */
  *live(): Generator<readonly Row[], Lived> {
    for (const [i, companion] of this.#companions.entries()) {
      const tokens = given(2_000 + i, Math.min(COMPANION_TOKENS + i, this.#llama.info.batchTokens))
      yield tokens.map((token, position) => row(companion.lane, position, token))
      companion.position = tokens.length
    }
    if (this.#way.replays) {
      yield* this.#prefill(given(1_000, EARLIER_TOKENS))
      this.#llama.cut(this.#lane.index, 0)
      this.#position = 0
    }
    this.#draw(yield* this.#prefill(given(0, Math.min(this.#promptTokens, this.#llama.info.laneTokens - 1 - this.#resultTokens - 2 * DECODES))))
    yield* this.#decode()
    if (this.#way.changesLane) this.#changeLane()
    this.#draw(yield* this.#prefill([this.#outputs.at(-1) ?? 0, ...given(500, this.#resultTokens)]))
    yield* this.#decode()
    return { digest: this.#hash.digest('hex'), outputs: this.#outputs }
  }

  /** Returns the row of the last token in its batch. */
  *#prefill(tokens: readonly number[]): Generator<readonly Row[], number> {
    const plan = new Plan(Int32Array.from(tokens), [{ tokens: tokens.length, origin: 'prefilled' }], [], 0, false, this.#rowsMin)
    let count = 0
    for (let done = 0; done < tokens.length; done += count) {
      const piece = plan.piece(done, this.#way.chunkTokens)
      const isSingle = this.#way.singly && plan.origin(done) === 'decoded'
      count = piece.kind === 'prefill' && !isSingle ? piece.count : 1
      if (done > 0 && this.company > 0) yield this.#beside()
      const last = done + count === tokens.length
      const rows = tokens.slice(done, done + count).map((token) => row(this.#lane, this.#position++, token))
      yield rows.map((each, i) => ({ ...each, logits: last && i === count - 1 }))
    }
    return count - 1
  }

  *#decode(): Generator<readonly Row[], void> {
    for (let i = 0; i < DECODES; i++) {
      const own = row(this.#lane, this.#position++, this.#outputs.at(-1) ?? 0)
      const rows = [own, ...this.#beside()].sort((a, b) => a.lane - b.lane)
      yield rows
      this.#draw(rows.indexOf(own))
    }
  }

  #beside(): readonly Row[] {
    return this.#companions.map((companion) => row(companion.lane, companion.position++, tokenAt(companion.position)))
  }

  #draw(rowIndex: number): void {
    const logits = this.#llama.logits(rowIndex)
    this.#hash.update(logits)
    this.#outputs.push((this.#way.replays ? this.#forced[this.#outputs.length] : undefined) ?? likeliest(logits))
  }

  #changeLane(): void {
    const from = this.#lane
    this.#lane = this.#take()
    this.#llama.copyLane(from.index, this.#lane.index)
    this.#giveBack(from)
  }

  #take(): Lane {
    const lane = this.#lanes.take(`probe ${this.#held.size}`)
    this.#held.set(lane.state, lane)
    return lane
  }

  #giveBack(lane: Lane): void {
    this.#llama.cut(lane.index, 0)
    this.#held.delete(lane.state)
    this.#lanes.release(lane)
  }
}

/** Every vocabulary has these; which they are does not matter. */
const TOKENS_USED = 200

const tokenAt = (index: number): number => (index * 89 + 7) % TOKENS_USED

const given = (from: number, count: number): readonly number[] =>
  Array.from({ length: count }, (_, i) => tokenAt(from + i * i))

const row = (lane: Lane, position: number, token: number): Row => ({ token, position, lane: lane.index, logits: true })

function likeliest(logits: Float32Array): number {
  let best = 0
  for (let token = 1; token < logits.length; token++) if ((logits[token] ?? 0) > (logits[best] ?? 0)) best = token
  return best
}
