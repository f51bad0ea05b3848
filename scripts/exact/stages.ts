/** Owns where exactness cases are played: alone in an engine of their own, or in company, with a second engine beside. */
import { mkdirSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { EngineSettings } from '../../src/engines/embedded-words.ts'
import type { ProgramPlot } from '../../test/engine/exact-plot.ts'
import type { Stage } from '../../test/engine/exact-program.ts'
import { EngineInHand } from './engine.ts'

/** Folders for images, one in memory where the machine has such. */
export interface Folders { readonly host: string; readonly disk: string }

export class AloneStage implements Stage {
  readonly calm = true
  readonly reign = 1
  readonly #engine: EngineInHand
  readonly #folder: string

  private constructor(engine: EngineInHand, folder: string) {
    this.#engine = engine
    this.#folder = folder
  }

  static async open(settings: EngineSettings, folders: Folders): Promise<AloneStage> {
    const folder = join(folders.host, 'alone')
    mkdirSync(folder, { recursive: true })
    return new AloneStage(await EngineInHand.start(settings, 1, folders.disk), folder)
  }

  engine(): EngineInHand {
    return this.#engine
  }

  directory(): string {
    return this.#folder
  }

  kill(): Promise<void> {
    throw new Error('nobody is disturbed here')
  }

  /** It is killed at its end only. */
  ready(): Promise<void> {
    return Promise.reject(new Error('the play is over'))
  }

  clear(): void {
    this.#engine.forget()
    empty(this.#folder)
  }

  async close(): Promise<void> {
    await this.#engine.kill()
  }
}

export class CompanyStage implements Stage {
  readonly calm = false
  readonly #settings: EngineSettings
  readonly #folders: Folders
  readonly #engines: EngineInHand[]
  readonly #restarting: (Promise<void> | null)[] = [null, null]
  #reign = 1
  #isOver = false

  private constructor(settings: EngineSettings, folders: Folders, engines: EngineInHand[]) {
    this.#settings = settings
    this.#folders = folders
    this.#engines = engines
  }

  static async open(settings: EngineSettings, folders: Folders): Promise<CompanyStage> {
    for (const folder of Object.values(folders)) mkdirSync(folder, { recursive: true })
    const engines = [await EngineInHand.start(settings, 1, folders.disk), await EngineInHand.start(otherOf(settings, 1), 1, folders.disk)]
    return new CompanyStage(settings, folders, engines)
  }

  get reign(): number {
    return this.#reign
  }

  engine(place: number): EngineInHand {
    const engine = this.#engines[place]
    if (engine === undefined) throw new Error(`there is no engine ${place}`)
    return engine
  }

  directory(tier: ProgramPlot['tier']): string {
    return this.#folders[tier]
  }

  async kill(place: number): Promise<void> {
    this.#restarting[place] ??= this.#restart(place).finally(() => { this.#restarting[place] = null })
    await this.#restarting[place]
  }

  async ready(): Promise<void> {
    await Promise.all(this.#restarting)
    if (this.#isOver) throw new Error('the play is over')
  }

  /** Between two rounds: nobody runs. */
  clear(): void {
    for (const engine of this.#engines) engine.forget()
    for (const folder of Object.values(this.#folders)) empty(folder)
  }

  async close(): Promise<void> {
    this.#isOver = true
    await Promise.all(this.#engines.map((engine) => engine.kill()))
  }

  /** With chunks and lanes of other numbers. */
  async #restart(place: number): Promise<void> {
    await this.engine(place).kill()
    this.#engines[place] = await EngineInHand.start(otherOf(this.#settings, ++this.#reign), this.#reign, this.#folders.disk)
  }
}

/** Another engine of the same key. */
const otherOf = (settings: EngineSettings, number: number): EngineSettings =>
  ({ ...settings, lanes: settings.lanes + number % 3, chunkTokens: settings.chunkTokens + 13 * (number % 5) })

function empty(folder: string): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) if (entry.isFile()) rmSync(join(folder, entry.name))
}
