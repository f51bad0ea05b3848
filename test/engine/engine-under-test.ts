/** An engine in this process, on a real model file, with its events in hand: what the control plane would see. */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { EngineLoop } from '../../src/engine/loop.ts'
import type { EngineOptions } from '../../src/engine/loop.ts'
import { Llama } from '../../src/engine/llama/llama.ts'
import { templateOf } from '../../src/engine/model-template.ts'
import type { EngineEvent, EngineRequest } from '../../src/protocol/engine.ts'

export interface EngineShape {
  readonly modelPath: string
  readonly lanes: number
  readonly laneTokens: number
  readonly chunkTokens: number
  readonly threads: number
  readonly flashAttention: boolean
  /** Null: the probe runs. */
  readonly exact: EngineOptions['exact']
}

export const PROVEN: EngineOptions['exact'] = { answer: 'yes', because: 'the test says so' }

export interface Heard { readonly event: EngineEvent; readonly bin: readonly Uint8Array[] }

type Unsigned<R> = R extends { reign: number } ? Omit<R, 'reign'> : never
export type Command = Unsigned<EngineRequest>

/** The engine was killed before it answered. */
export class Killed extends Error {}

const CALIBRATION = {
  prefillNsPerToken: 50_000, decodeOneNs: 300_000, decodeManyNs: 500_000, rows: 4, copyOutNsPerToken: 100, copyInNsPerToken: 100,
}

const digests = new Map<string, string>()

function digestOf(path: string): string {
  const known = digests.get(path) ?? createHash('sha256').update(readFileSync(path)).digest('hex')
  digests.set(path, known)
  return known
}

export class EngineUnderTest {
  readonly heard: Heard[] = []
  readonly loop: EngineLoop
  readonly llama: Llama
  readonly reign: number
  readonly modelDigest: string
  readonly #ended: Promise<unknown>
  readonly #waiting = new Set<{ readonly wants: (event: EngineEvent) => boolean; readonly take: (heard: Heard) => void; readonly fail: (why: Error) => void }>()
  #lost: Error | null = null

  constructor(shape: EngineShape, reign = 1) {
    this.reign = reign
    this.modelDigest = digestOf(shape.modelPath)
    this.llama = Llama.load({ ...shape, batchTokens: shape.chunkTokens, extraBuffers: true, libraryDir: null })
    this.loop = new EngineLoop({
      llama: this.llama, template: templateOf(this.llama), modelDigest: this.modelDigest, chunkTokens: shape.chunkTokens,
      calibration: CALIBRATION, exact: shape.exact, probed: () => undefined,
      emit: (event, bin = []) => this.#hear({ event, bin }),
      nowUs: () => Math.round(performance.now() * 1_000),
    })
    this.#ended = this.loop.run().catch((error: unknown) => this.#lose(error instanceof Error ? error : new Error(String(error))))
    this.tell({ kind: 'hello', protocol: 1, leaseMs: 10_000 })
  }

  tell(command: Command, bin: readonly Uint8Array[] = []): void {
    if (this.#lost !== null) throw this.#lost
    this.loop.receive({ ...command, reign: this.reign }, bin)
  }

  /** The first event from now on that is wanted. */
  next(wants: (event: EngineEvent) => boolean): Promise<Heard> {
    return new Promise((resolve, reject) => {
      if (this.#lost !== null) return reject(this.#lost)
      const waiter = { wants, take: resolve, fail: reject }
      this.#waiting.add(waiter)
    })
  }

  /** As if the process were killed: nothing is heard of it any more, its lanes are gone. */
  async kill(): Promise<void> {
    this.#lose(new Killed())
    this.loop.stop()
    await this.#ended
    this.llama.dispose()
  }

  of<K extends EngineEvent['kind']>(kind: K): Extract<EngineEvent, { kind: K }>[] {
    return this.heard.map(({ event }) => event).filter((event) => event.kind === kind) as Extract<EngineEvent, { kind: K }>[]
  }

  #hear(heard: Heard): void {
    if (this.#lost !== null) return
    this.heard.push(heard)
    for (const waiter of [...this.#waiting]) {
      if (!waiter.wants(heard.event)) continue
      this.#waiting.delete(waiter)
      waiter.take(heard)
    }
  }

  #lose(why: Error): void {
    this.#lost ??= why
    for (const waiter of this.#waiting) waiter.fail(why)
    this.#waiting.clear()
  }
}
