/**
 * Owns one life of a program as the exactness measurement feeds it: a prompt prefilled, tokens decoded, a given span
 * prefilled, tokens decoded; with what a schedule changes about it. Records every logit row and the KV at the end.
 * Leaves what is compared with what to `exactness.ts`.
 *
 * The decoded tokens are the first run's in every run, so that a difference is one of arithmetic and not of text.
 */
import { createHash } from 'node:crypto'
import { parseBlob } from '../src/engine/llama/blob.ts'
import type { Llama, Row } from '../src/engine/llama/llama.ts'

interface Company {
  /** Lanes beside ours that hold tokens and decode in the same batches. */
  readonly lanes: number
  /** Tokens they begin with. */
  readonly tokens: number
}

/** How a life is fed; what is absent is as in the reference. */
export interface Schedule {
  readonly lane?: number
  readonly chunk?: number
  readonly company?: Company
  /** Half-way, the State leaves its lane and goes on in another. */
  readonly move?: (llama: Llama, from: number, to: number) => Promise<void>
  readonly moveTo?: number
  /** Somebody else had the lane before. */
  readonly usedLane?: boolean
  /** The prompt comes as a copy of another lane that was longer, cut. */
  readonly copied?: boolean
  /** Half-way, the last decodes are cut and fed again. */
  readonly retried?: boolean
  /** Of each prefilled chunk only the last row is asked for its logits, as a server does. */
  readonly lastRowOnly?: boolean
  /** Given tokens one by one, alone. */
  readonly oneByOne?: boolean
  /** The first decoded tokens are prefilled, as a plain recompute does. */
  readonly plain?: boolean
  /** Decode rows of company ride in the batches of the prefill. */
  readonly mixed?: boolean
}

export interface Script {
  readonly prompt: readonly number[]
  readonly given: readonly number[]
  /** Tokens of each of the two runs of decodes. */
  readonly decodes: number
}

export interface Life {
  /** The logits of every row fed, in order of position. */
  readonly rows: readonly Float32Array[]
  readonly tokens: readonly number[]
  readonly kvDigest: string
}

/** Rows of a chunk where the schedule names none. */
export const CHUNK = 128
/** A row whose logits nobody asked for. */
const NOT_ASKED = new Float32Array(0)

/** `known` are the decoded tokens of the reference; without them, the likeliest token is taken. */
export async function live(
  llama: Llama, script: Script, schedule: Schedule, known: readonly number[] | null,
): Promise<Life> {
  for (let lane = 0; lane < llama.info.lanes; lane++) llama.cut(lane, 0)
  const feeder = new Feeder(llama, schedule)
  await feeder.prepare(script.prompt)
  await feeder.given(script.prompt)
  await feeder.decoded(script.decodes, known?.slice(0, script.decodes) ?? null)
  if (schedule.retried === true) await feeder.again(Math.ceil(script.decodes / 2))
  if (schedule.move !== undefined && schedule.moveTo !== undefined) await feeder.move(schedule.move, schedule.moveTo)
  await feeder.given(script.given)
  await feeder.decoded(script.decodes, known?.slice(script.decodes) ?? null)
  return { rows: feeder.rows, tokens: feeder.tokens, kvDigest: kvDigest(llama, feeder.lane) }
}

/** A last chunk never has one row: it takes one from the chunk before, or goes with it. */
function chunksOf(tokens: number, size: number): number[] {
  const chunks: number[] = []
  for (let left = tokens; left > 0;) {
    const take = left - size === 1 ? (size > 2 ? size - 1 : left) : Math.min(size, left)
    chunks.push(take)
    left -= take
  }
  return chunks
}

function kvDigest(llama: Llama, lane: number): string {
  const bytes = Buffer.from(llama.stateBytes(lane).buffer)
  const blob = parseBlob(bytes)
  const hash = createHash('sha256')
  for (const plane of blob.planes) {
    hash.update(bytes.subarray(plane.offset, plane.offset + plane.cellBytes * plane.rows * blob.tokens))
  }
  return hash.digest('hex').slice(0, 16)
}

class Feeder {
  readonly rows: Float32Array[] = []
  readonly tokens: number[] = []
  lane: number
  readonly #llama: Llama
  readonly #schedule: Schedule
  readonly #company: { readonly lane: number; position: number; left: number }[] = []
  readonly #decodedTokens: number[] = []
  #position = 0

  constructor(llama: Llama, schedule: Schedule) {
    this.#llama = llama
    this.#schedule = schedule
    this.lane = schedule.lane ?? 0
  }

  async prepare(prompt: readonly number[]): Promise<void> {
    const { usedLane, copied, company } = this.#schedule
    if (usedLane === true) {
      await this.#feed(rowsAt(prompt.slice().reverse().slice(0, 90), this.lane, 0, false))
      this.#llama.cut(this.lane, 0)
    }
    if (company !== undefined) await this.#meet(company)
    if (copied === true) {
      const other = (this.lane + 1) % this.#llama.info.lanes
      for (const chunk of cutBy(prompt, chunksOf(prompt.length, this.#schedule.chunk ?? CHUNK))) {
        await this.#feed(rowsAt(chunk.tokens, other, chunk.from, false))
      }
      await this.#feed(rowsAt([prompt[0] ?? 0], other, prompt.length, true))
      this.#llama.copyLane(other, this.lane)
      // All but two tokens of the prompt are reused: the logits of its last token are fed for.
      this.#llama.cut(this.lane, prompt.length - 2)
      this.#llama.cut(other, 0)
      this.#position = prompt.length - 2
    }
  }

  /** Given tokens, prefilled; a copied prefix is not fed again. */
  async given(tokens: readonly number[]): Promise<void> {
    const start = this.tokens.length
    const skip = this.#position - start
    for (let index = 0; index < skip; index++) this.rows.push(NOT_ASKED)
    const { oneByOne, chunk, mixed, lastRowOnly } = this.#schedule
    const left = tokens.slice(skip)
    const sizes = oneByOne === true ? left.map(() => 1) : chunksOf(left.length, chunk ?? CHUNK)
    for (const piece of cutBy(left, sizes)) {
      const rows = rowsAt(piece.tokens, this.lane, this.#position, lastRowOnly !== true)
      const count = rows.length
      const last = rows[count - 1]
      if (last !== undefined) rows[count - 1] = { ...last, logits: true }
      if (mixed === true) rows.push(...this.#companyRows())
      await this.#feed(rows)
      this.#read(count, lastRowOnly === true ? count - 1 : 0)
      this.#position += count
      if (mixed !== true && this.#company.length > 0) await this.#feed(this.#companyRows())
    }
    this.tokens.push(...tokens)
  }

  async decoded(count: number, known: readonly number[] | null): Promise<void> {
    if (this.#schedule.plain === true && known !== null && this.#decodedTokens.length === 0) {
      this.#decodedTokens.push(...known)
      return await this.given(known)
    }
    for (let index = 0; index < count; index++) {
      const token = known?.[index] ?? likeliest(this.rows.at(-1))
      this.#decodedTokens.push(token)
      await this.#step(token)
    }
  }

  /** Cuts the last tokens and feeds them as they were fed. */
  async again(count: number): Promise<void> {
    this.#llama.cut(this.lane, this.#position - count)
    this.#position -= count
    this.rows.length -= count
    for (const token of this.tokens.splice(this.tokens.length - count)) await this.#step(token)
  }

  async move(how: (llama: Llama, from: number, to: number) => Promise<void>, to: number): Promise<void> {
    await how(this.#llama, this.lane, to)
    this.lane = to
  }

  async #step(token: number): Promise<void> {
    const rows: Row[] = [{ token, position: this.#position, lane: this.lane, logits: true }, ...this.#companyRows()]
    await this.#feed(rows)
    this.#read(1)
    this.tokens.push(token)
    this.#position++
  }

  async #meet(company: Company): Promise<void> {
    const ours = [this.lane, this.#schedule.moveTo]
    const lanes = [...Array(this.#llama.info.lanes).keys()].filter((lane) => !ours.includes(lane))
    const [first, ...others] = lanes.slice(0, company.lanes)
    if (first === undefined) return
    const tokens = Array.from({ length: company.tokens }, (_, index) => (index * 37 + 11) % this.#llama.info.vocabSize)
    for (const chunk of cutBy(tokens, chunksOf(tokens.length, this.#schedule.chunk ?? CHUNK))) {
      await this.#feed(rowsAt(chunk.tokens, first, chunk.from, false))
    }
    for (const lane of others) this.#llama.copyLane(first, lane)
    const left = this.#llama.info.laneTokens - company.tokens
    for (const lane of [first, ...others]) this.#company.push({ lane, position: company.tokens, left })
  }

  #companyRows(): Row[] {
    return this.#company.filter((member) => member.left > 0).map((member) => {
      member.left--
      const position = member.position++
      return { token: position % this.#llama.info.vocabSize, position, lane: member.lane, logits: true }
    })
  }

  #feed(rows: readonly Row[]): Promise<void> {
    return this.#llama.decode(rows)
  }

  /** Our rows come first in every batch; those before `asked` have no logits. */
  #read(count: number, asked = 0): void {
    for (let row = 0; row < count; row++) this.rows.push(row < asked ? NOT_ASKED : this.#llama.logits(row))
  }
}

function rowsAt(tokens: readonly number[], lane: number, from: number, logits: boolean): Row[] {
  return tokens.map((token, index) => ({ token, position: from + index, lane, logits }))
}

interface Piece { readonly tokens: readonly number[]; readonly from: number }

function cutBy(tokens: readonly number[], sizes: readonly number[]): Piece[] {
  let from = 0
  return sizes.map((size) => {
    const piece = { tokens: tokens.slice(from, from + size), from }
    from += size
    return piece
  })
}

function likeliest(logits: Float32Array | undefined): number {
  if (logits === undefined) throw new Error('nothing was fed before the first decode')
  let best = 0
  for (let token = 1; token < logits.length; token++) if ((logits[token] ?? 0) > (logits[best] ?? 0)) best = token
  return best
}
