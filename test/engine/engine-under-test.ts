/** An engine in this process, on a real model file, with its events in hand: what the control plane would see. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Origin } from '../../src/engine/fed.ts'
import { Lanes } from '../../src/engine/lanes.ts'
import { EngineLoop } from '../../src/engine/loop.ts'
import type { EngineOptions } from '../../src/engine/loop.ts'
import { Llama } from '../../src/engine/llama/llama.ts'
import type { Row } from '../../src/engine/llama/llama.ts'
import { publicPrefix } from '../../src/engine/public-prefix.ts'
import { templateOf } from '../../src/engine/model-template.ts'
import { ENGINE_PROTOCOL, type EngineEvent } from '../../src/protocol/engine.ts'
import { Hearing, Killed } from './played-engine.ts'
import type { Command, Heard, PlayedEngine } from './played-engine.ts'

export interface EngineShape {
  readonly modelPath: string
  readonly lanes: number
  readonly laneTokens: number
  readonly chunkTokens: number
  readonly copiesMsMax?: number
  readonly threads: number
  readonly flashAttention: boolean
  /** Null: the probe runs. */
  readonly exact: EngineOptions['exact']
  /** System texts. */
  readonly publicPrefixes?: readonly string[]
}

export const PROVEN: EngineOptions['exact'] = { answer: 'yes', because: 'the test says so' }

/** The lane a State has, or had last; States of a test have names of their own. */
const laneOf = new Map<string, number>()
const take = Lanes.prototype.take
Lanes.prototype.take = function (state, tenant) {
  const lane = take.call(this, state, tenant)
  laneOf.set(state, lane.index)
  return lane
}
const { relocate } = Lanes.prototype
Lanes.prototype.relocate = function (lane, to) {
  relocate.call(this, lane, to)
  laneOf.set(lane.state, to)
}

/**
 * How each cell was really fed, seen from the library's side: alone, or in a run of two or more. Small models often
 * have the same logits both ways, so the tests look at the rows themselves. Null where a cell came in by an image.
 */
class Ledger {
  readonly #lanes = new Map<number, (Origin | null)[]>()
  readonly #trims: boolean

  constructor(llama: Llama) {
    const { decode, cut, loadState } = llama
    this.#trims = llama.info.trims
    llama.decode = async (rows) => {
      const perLane = grouped(rows)
      const counts = [...perLane.values()].map((of) => of.length)
      const isPure = counts.length === 1 || counts.every((count) => count === 1)
      assert.ok(isPure, 'a batch is of one lane, or of one row a lane')
      await decode.call(llama, rows)
      for (const [lane, of] of perLane) {
        this.#of(lane).push(...of.map((): Origin => of.length > 1 ? 'prefilled' : 'decoded'))
      }
    }
    llama.cut = (lane, from) => {
      const left = cut.call(llama, lane, from)
      this.#of(lane).length = Math.min(this.#of(lane).length, left)
      return left
    }
    llama.loadState = (lane, blob) => {
      const loaded = loadState.call(llama, lane, blob)
      this.#lanes.set(lane, Array<null>(llama.laneUsed(lane)).fill(null))
      return loaded
    }
  }

  /** The spans say how the tokens after `base` were fed. */
  check(lane: number, base: number, spans: readonly { readonly tokens: number; readonly origin: Origin }[]): void {
    const said = spans.flatMap(({ tokens, origin }) => Array<Origin>(tokens).fill(origin))
    const fed = this.#of(lane)
    // What could not be cut was emptied.
    if (!this.#trims && fed.length === 0) return
    assert.equal(fed.length, base + said.length, 'a lane holds what its spans say')
    said.forEach((origin, i) => {
      const was = fed[base + i] ?? origin
      assert.ok(was === origin, `position ${base + i} was not ${origin} but ${was}`)
    })
  }

  #of(lane: number): (Origin | null)[] {
    const cells = this.#lanes.get(lane) ?? []
    this.#lanes.set(lane, cells)
    return cells
  }
}

function grouped(rows: readonly Row[]): Map<number, Row[]> {
  const perLane = new Map<number, Row[]>()
  for (const row of rows) perLane.set(row.lane, [...perLane.get(row.lane) ?? [], row])
  return perLane
}

const CALIBRATION = {
  prefillNsPerToken: 50_000, decodeOneNs: 300_000, decodeManyNs: 500_000, rows: 4, copyOutNsPerToken: 100,
  copyInNsPerToken: 100,
}

const digests = new Map<string, string>()

function digestOf(path: string): string {
  const known = digests.get(path) ?? createHash('sha256').update(readFileSync(path)).digest('hex')
  digests.set(path, known)
  return known
}

export class EngineUnderTest implements PlayedEngine {
  readonly loop: EngineLoop
  readonly llama: Llama
  readonly reign: number
  readonly modelDigest: string
  readonly #ended: Promise<unknown>
  readonly #hearing = new Hearing()
  readonly #ledger: Ledger
  readonly #starts = new Map<string, Extract<Command, { kind: 'start' }>>()

  constructor(shape: EngineShape, reign = 1) {
    this.reign = reign
    this.modelDigest = digestOf(shape.modelPath)
    this.llama = Llama.load({ ...shape, batchTokens: shape.chunkTokens, extraBuffers: true, libraryDir: null })
    this.#ledger = new Ledger(this.llama)
    this.loop = new EngineLoop({
      llama: this.llama, template: templateOf(this.llama), modelDigest: this.modelDigest,
      chunkTokens: shape.chunkTokens, copiesMsMax: shape.copiesMsMax ?? 20,
      publicPrefixes: (shape.publicPrefixes ?? []).map((text) => publicPrefix(this.llama, templateOf(this.llama), text, shape.laneTokens)),
      calibration: CALIBRATION, exact: shape.exact, probed: () => undefined,
      emit: (event, bin = []) => this.#hear({ event, bin }),
      nowUs: () => Math.round(performance.now() * 1_000),
    })
    this.#ended = this.loop.run().catch((error: unknown) => {
      this.#hearing.lose(error instanceof Error ? error : new Error(String(error)))
    })
    this.tell({ kind: 'hello', protocol: ENGINE_PROTOCOL, leaseMs: 10_000 })
  }

  get heard(): Heard[] {
    return this.#hearing.heard
  }

  get lanes(): number {
    return this.llama.info.lanes
  }

  get images(): boolean {
    return this.llama.info.images
  }

  get imageKey(): string {
    return this.loop.describe().imageKey
  }

  tell(command: Command, bin: readonly Uint8Array[] = []): void {
    if (this.#hearing.lost !== null) throw this.#hearing.lost
    if (command.kind === 'start') this.#starts.set(command.call, command)
    this.loop.receive({ ...command, reign: this.reign }, bin)
  }

  next(wants: (event: EngineEvent) => boolean): Promise<Heard> {
    return this.#hearing.next(wants)
  }

  /** As if the process were killed: nothing is heard of it any more, its lanes are gone. */
  async kill(): Promise<void> {
    this.#hearing.lose(new Killed())
    this.loop.stop()
    await this.#ended
    this.llama.dispose()
  }

  of<K extends EngineEvent['kind']>(kind: K): Extract<EngineEvent, { kind: K }>[] {
    const events = this.heard.map(({ event }) => event)
    return events.filter((event) => event.kind === kind) as Extract<EngineEvent, { kind: K }>[]
  }

  #hear(heard: Heard): void {
    if (this.#hearing.lost !== null) return
    this.#check(heard.event)
    this.#hearing.take(heard)
  }

  #check(event: EngineEvent): void {
    const start = event.kind === 'finished' ? this.#starts.get(event.call) : undefined
    if (event.kind !== 'finished' || start === undefined || start.replay === 'plain') return
    this.#ledger.check(laneOf.get(start.state) ?? -1, start.baseTokens, event.spans)
  }
}
