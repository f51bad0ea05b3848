/**
 * Owns the lives of the control plane: the production driver on simulated ports, started from what the disk holds, ended at
 * any point of a turn. A life that ended goes on computing what nobody sees: nothing it does has an effect, which is what a
 * crash at that point is. Two lives at once are two reigns: the older finds its log fenced and its engines taken.
 */
import { InvariantError } from '../core/assert.ts'
import type { CoreConfig } from '../core/config.ts'
import type { EngineId } from '../core/ids.ts'
import type { Us } from '../core/units.ts'
import { Driver } from '../driver/driver.ts'
import { recover } from '../driver/recover.ts'
import { Chance } from './chance.ts'
import { ControlClock } from './control-clock.ts'
import { Disk, Store, type Line, type StoreWorld } from './disk.ts'
import type { Engine } from './engine.ts'
import { SimPort } from './port.ts'
import { Wire } from './wire.ts'

interface ControlWorld extends StoreWorld {
  readonly config: CoreConfig
  readonly engines: readonly Engine[]
  readonly storeFailure: 'pass' | 'refuse'
  readonly snapshotEveryFacts: number
  readonly checkEveryTurns: number
  /** No life will begin from the log of another. */
  readonly forgets: boolean
  /** Facts were decided, in this order. */
  noted(facts: readonly Line[], life: Life): void
  /** Facts are durable, in this order, which is that of the log over all lives. */
  written(facts: readonly Line[]): void
  /** The connections of whoever spoke to this life are gone. */
  ended(life: Life): void
  failed(error: Error): void
}

export class Life {
  readonly number: number
  readonly driver: Driver
  readonly store: Store
  readonly clock: ControlClock
  readonly ports: ReadonlyMap<EngineId, SimPort>
  readonly #world: ControlWorld
  readonly #onEnd: (life: Life) => void
  #alive = true
  /** Effects it still has before it ends; null: no end is near. */
  #left: number | null = null

  constructor(number: number, world: ControlWorld, disk: Disk, onEnd: (life: Life) => void) {
    this.number = number
    this.#world = world
    this.#onEnd = onEnd
    const isAlive = (): boolean => this.#alive
    const mayAct = (): boolean => this.#mayAct()
    this.clock = new ControlClock(world.events, isAlive)
    this.store = new Store(world, disk, {
      clock: this.clock, mayAct, storeFailed: () => this.#storeFailed(),
      noted: (facts) => { if (this.#alive) world.noted(facts, this) },
    })
    const recovered = recover(world.config, this.store.log)
    this.clock.begin(recovered.core.nowUs)
    const chance = new Chance(world.seed, `ids of life ${number}`)
    let ids = 0
    this.ports = new Map(world.engines.map((engine) => [engine.id, new SimPort(engine,
      { events: world.events, receive: (run) => this.clock.receive(run), mayAct },
      (broken) => new Wire(world.events, world.faults, world.seed, `${engine.id}`, (run) => this.clock.receive(run), broken))]))
    this.driver = new Driver(
      {
        clock: this.clock, bodies: this.store.bodies, images: this.store.images, engines: [...this.ports.values()],
        log: this.store.log,
        ids: { fresh: () => `l${number}n${(ids += 1)}`, seed: () => chance.next() },
      },
      {
        checkEveryTurns: world.checkEveryTurns, storeFailure: world.storeFailure, snapshotEveryFacts: world.snapshotEveryFacts,
        onFatal: (error) => { if (this.#alive) world.failed(error) },
      },
      recovered,
    )
  }

  get isAlive(): boolean {
    return this.#alive
  }

  /** Ends when it has had so many more effects: in the middle of a turn, most likely. */
  endAfter(effects: number): void {
    this.#left = effects
  }

  end(): void {
    if (!this.#alive) return
    this.#alive = false
    this.store.crash()
    this.#onEnd(this)
  }

  #mayAct(): boolean {
    if (this.#left !== null) {
      if (this.#left <= 0) this.end()
      this.#left -= 1
    }
    return this.#alive
  }

  #storeFailed(): void {
    this.driver.storeFailed()
    // Somebody sees it, and starts it again.
    this.#world.events.after(STORE_REPAIRED_US, () => this.end())
  }
}

const STORE_REPAIRED_US: Us = 4_000_000
/** From the end of a life to the beginning of the next. */
const RESTART_US = { low: 200_000, high: 4_000_000 }

export class ControlPlane {
  readonly #world: ControlWorld
  readonly #disk: Disk
  readonly #chance: Chance
  #lives = 0
  #current: Life | null = null
  #older: Life[] = []

  constructor(world: ControlWorld) {
    this.#world = world
    this.#disk = new Disk(world.forgets, (facts) => world.written(facts))
    this.#chance = new Chance(world.seed, 'control plane')
  }

  /** The one that is meant to be spoken to. */
  get current(): Life | null {
    return this.#current
  }

  get lives(): readonly Life[] {
    return this.#current === null ? this.#older : [...this.#older, this.#current]
  }

  begin(): void {
    this.#lives += 1
    try {
      const life = new Life(this.#lives, this.#world, this.#disk, (ended) => this.#ended(ended))
      this.#current = life
      life.driver.start().catch((error: unknown) => this.#world.failed(error instanceof Error ? error : new Error(String(error))))
    } catch (error) {
      this.#world.failed(error instanceof Error ? error : new InvariantError(0, String(error)))
    }
  }

  /** Another begins beside the one that is there, which has lost its lease and does not know. */
  takeover(overlapUs: Us): void {
    const old = this.#current
    if (old === null) return
    old.store.fence()
    this.#older.push(old)
    this.#world.events.after(overlapUs, () => old.end())
    this.begin()
  }

  #ended(life: Life): void {
    this.#older = this.#older.filter((other) => other !== life)
    this.#world.ended(life)
    if (life !== this.#current) return
    this.#current = null
    this.#world.events.after(this.#chance.tail(RESTART_US.low, RESTART_US.high), () => this.begin())
  }
}
