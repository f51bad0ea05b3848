/**
 * Owns the moves of a State between its lane and an image. What touches the device runs between batches; files are
 * written, verified and read while the next batch runs. The lane an image came from stays until it is discarded, the
 * lane an image goes to is promised before the first byte is read.
 */
import { createHash } from 'node:crypto'
import type { EngineEvent, EngineRequest, WireSpan } from '../protocol/engine.ts'
import { ImageError, readImage, writeImage } from './kv-image.ts'
import type { ImageAbout } from './kv-image.ts'
import { heldTokens } from './lanes.ts'
import type { Lane, Lanes } from './lanes.ts'
import type { Llama } from './llama/llama.ts'
import { LlamaError } from './llama/llama.ts'
import type { Speeds } from './speeds.ts'

type Offload = Extract<EngineRequest, { kind: 'offload' }>
type Onboard = Extract<EngineRequest, { kind: 'onboard' }>

interface MovesHost {
  readonly llama: Llama
  readonly lanes: Lanes
  readonly speeds: Speeds
  readonly modelDigest: string
  readonly imageKey: string
  readonly emit: (event: EngineEvent) => void
  /** Runs it between two batches. */
  readonly between: (work: () => void) => void
  readonly nowUs: () => number
  readonly isRunning: (state: string) => boolean
}

/** What was copied out of a lane. */
interface Taken {
  readonly blob: Uint8Array
  readonly spans: readonly WireSpan[]
  readonly tokens: number
  readonly begunUs: number
}

/** What goes into a lane. */
interface Landing extends Omit<Taken, 'spans'> { readonly bytes: number }

export class Moves {
  readonly #host: MovesHost
  readonly #underWay = new Set<Promise<void>>()

  constructor(host: MovesHost) {
    this.#host = host
  }

  /** Called between batches. */
  offload(request: Offload): void {
    const { llama, lanes, isRunning, nowUs } = this.#host
    const begunUs = nowUs()
    const lane = lanes.find(request.state)
    const held = lane === null ? 0 : heldTokens(lane)
    if (!llama.info.images) return this.#failed(request.move, 'a State of this model has no image', false)
    if (lane === null || held === 0) return this.#failed(request.move, 'its State is not on this device', false)
    if (isRunning(request.state)) return this.#failed(request.move, 'its State is running', false)
    const spans = spansOf(request, lane)
    if (spans === null) return this.#failed(request.move, `the lane holds ${held} tokens, fewer than the spans`, false)
    this.#start(this.#write(request, { blob: llama.stateBytes(lane.index), spans, tokens: held, begunUs }))
  }

  /** Called between batches. */
  onboard(request: Onboard): void {
    const { llama, lanes, nowUs } = this.#host
    const { move, state } = request
    if (!llama.info.images) return this.#failed(move, 'a State of this model has no image', false)
    if (lanes.find(state) !== null) return this.#failed(move, 'its State is on this device already', false)
    if (!lanes.canTake(state)) return this.#failed(move, 'no lane is free', false)
    const lane = lanes.take(state, request.identity.tenant)
    lane.content = { kind: 'arriving' }
    this.#start(this.#read(request, lane, nowUs()))
  }

  /** Resolves when no file is being read or written. */
  async quiet(): Promise<void> {
    await Promise.all(this.#underWay)
  }

  #start(work: Promise<void>): void {
    this.#underWay.add(work)
    void work.finally(() => this.#underWay.delete(work))
  }

  async #write({ move, path, identity }: Offload, { blob, spans, tokens, begunUs }: Taken): Promise<void> {
    const { speeds, emit, nowUs } = this.#host
    try {
      const { bytes, digest } = await writeImage(path, blob, { ...this.#about(), identity, spans })
      const copyUs = nowUs() - begunUs
      speeds.copiedOut(tokens, copyUs * 1_000)
      emit({ kind: 'moved', move, bytes, digest, copyUs })
    } catch (error) {
      this.#failed(move, whyFailed(error), false)
    }
  }

  async #read(request: Onboard, lane: Lane, begunUs: number): Promise<void> {
    const { llama, imageKey, between } = this.#host
    try {
      const expected = { key: imageKey, digest: request.digest, identity: request.identity }
      const { blob, manifest } = await readImage(request.path, expected, llama.info.lanes)
      const bytes = manifest.chunks.reduce((sum, chunk) => sum + chunk.bytes, 0)
      between(() => this.#land(request, lane, { blob, tokens: manifest.tokens, bytes, begunUs }))
    } catch (error) {
      const why = whyFailed(error)
      between(() => {
        this.#giveBack(lane)
        this.#failed(request.move, why, error instanceof ImageError)
      })
    }
  }

  #land({ move, digest }: Onboard, lane: Lane, { blob, tokens, bytes, begunUs }: Landing): void {
    const { llama, lanes, speeds, emit, nowUs } = this.#host
    const { laneTokens } = llama.info
    if (lanes.find(lane.state) !== lane) return this.#failed(move, 'its State was discarded meanwhile', false)
    if (tokens > laneTokens) {
      this.#giveBack(lane)
      return this.#failed(move, `the image has ${tokens} tokens and a lane holds ${laneTokens}`, false)
    }
    if (!llama.loadState(lane.index, blob)) {
      this.#giveBack(lane)
      return this.#failed(move, 'the library refuses what the image holds', true)
    }
    lane.content = { kind: 'image', tokens }
    const copyUs = nowUs() - begunUs
    speeds.copiedIn(tokens, copyUs * 1_000)
    emit({ kind: 'moved', move, bytes, digest, copyUs })
  }

  #giveBack(lane: Lane): void {
    const { llama, lanes } = this.#host
    if (lanes.find(lane.state) !== lane) return
    llama.cut(lane.index, 0)
    lanes.release(lane)
  }

  #failed(move: string, why: string, sourceLost: boolean): void {
    this.#host.emit({ kind: 'moveFailed', move, why, sourceLost })
  }

  #about(): Omit<ImageAbout, 'identity' | 'spans'> {
    const { llama, imageKey, modelDigest } = this.#host
    const { library, cpuKernel, chatTemplate } = llama.info
    const template = createHash('sha256').update(chatTemplate ?? '').digest('hex')
    const model = { digest: modelDigest, tokenizer: modelDigest, template, adapter: '' }
    return { key: imageKey, library, cpuKernel, model }
  }
}

/**
 * The spans as ordered, and what the lane holds beyond them as a private tail by origin; null where the lane holds
 * less. An image has no more to say of a tail than its length, so its tail is one span.
 */
function spansOf({ spans, state }: Offload, lane: Lane): readonly WireSpan[] | null {
  const named = spans.reduce((sum, span) => sum + span.tokens, 0)
  const rest = heldTokens(lane) - named
  if (rest < 0) return null
  if (rest === 0) return spans
  if (lane.content.kind !== 'fed') return [...spans, { id: `${state}.tail`, tokens: rest, origin: 'prefilled' }]
  const tail = lane.content.fed.spans(named)
  return [...spans, ...tail.map(({ tokens, origin, digest }) => ({ id: `${state}.tail.${digest}`, tokens, origin }))]
}

/** A failed move is the world's doing where the file or the library says so; anything else is a bug and is thrown. */
function whyFailed(error: unknown): string {
  if (error instanceof ImageError || error instanceof LlamaError) return error.message
  throw error
}
