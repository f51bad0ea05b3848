/** Owns an engine in a process of its own, as the exactness cases have it in hand: started, heard, killed. */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { argsOf, type EngineSettings } from '../../src/engines/embedded-words.ts'
import { EngineProcess } from '../../src/engines/engine-process.ts'
import type { EngineEvent, WireEngine } from '../../src/protocol/engine.ts'
import { Hearing, Killed } from '../../test/engine/played-engine.ts'
import type { Command, Heard, PlayedEngine } from '../../test/engine/played-engine.ts'

const WORKER_PATH = fileURLToPath(new URL('../../src/engine/worker.js', import.meta.url))
/** On a busy machine an engine is silent for long. */
const LEASE_MS = 120_000
const START_MS_MAX = 600_000

export class EngineInHand implements PlayedEngine {
  readonly #hearing = new Hearing()
  readonly #process: EngineProcess
  readonly #reign: number
  #engine: WireEngine | null = null

  private constructor(settings: EngineSettings, reign: number, folder: string) {
    this.#reign = reign
    this.#process = new EngineProcess({
      workerPath: WORKER_PATH, args: argsOf(settings), leaseMs: LEASE_MS, startMsMax: START_MS_MAX, batchMsMax: LEASE_MS, memoryBytesMax: null, reign, pidFile: join(folder, `engine-${process.hrtime.bigint()}`),
    }, {
      event: (event, bin) => this.#hear({ event, bin }),
      lost: (why) => this.#hearing.lose(new Error(`an engine was lost: ${why}`)),
    })
  }

  static async start(settings: EngineSettings, reign: number, folder: string): Promise<EngineInHand> {
    const engine = new EngineInHand(settings, reign, folder)
    await engine.next(({ kind }) => kind === 'welcome')
    return engine
  }

  get heard(): readonly Heard[] {
    return this.#hearing.heard
  }

  get lanes(): number {
    return this.#known.lanes
  }

  get images(): boolean {
    return this.#known.can.image
  }

  get imageKey(): string {
    return this.#known.imageKey
  }

  get is(): WireEngine {
    return this.#known
  }

  /** What the probe has found out, once it has. */
  async probed(): Promise<WireEngine['exact']> {
    if (this.#known.exact.answer === 'unknown') await this.next(({ kind }) => kind === 'engine')
    return this.#known.exact
  }

  tell(command: Command, bin: readonly Uint8Array[] = []): void {
    if (this.#hearing.lost !== null) throw this.#hearing.lost
    this.#process.send({ ...command, reign: this.#reign }, bin)
  }

  next(wants: (event: EngineEvent) => boolean): Promise<Heard> {
    return this.#hearing.next(wants)
  }

  /** What was heard is of no use any more. */
  forget(): void {
    this.#hearing.heard.length = 0
  }

  /** SIGKILL. */
  async kill(): Promise<void> {
    this.#hearing.lose(new Killed())
    this.#process.condemn('it was killed', true)
    await this.#process.gone
  }

  get #known(): WireEngine {
    if (this.#engine === null) throw new Error('an engine was asked what it is before it said so')
    return this.#engine
  }

  #hear(heard: Heard): void {
    if (this.#hearing.lost !== null) return
    const { event } = heard
    if (event.kind === 'welcome' || event.kind === 'engine') this.#engine = event.engine
    if (event.kind === 'refused') return this.#hearing.lose(new Error(`an engine refused ${event.what}: ${event.why}`))
    this.#hearing.take(heard)
  }
}
