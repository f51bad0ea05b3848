/**
 * Owns what an agent asks of its program as a whole: declare, report, commit, cancel, finish. An errand is run again where
 * the process that was asked is gone before it answered, as a client does that had no reply.
 */
import type { ProgramReply } from '../driver/gateway.ts'
import type { Chance } from './chance.ts'
import type { Life } from './control.ts'
import type { TalkWorld } from './talk.ts'

interface Errand {
  readonly run: (life: Life) => Promise<ProgramReply>
  readonly then: (reply: ProgramReply) => void
  life: Life | null
}

export class Errands {
  readonly #world: TalkWorld
  readonly #agent: string
  readonly #chance: Chance
  readonly #open = new Set<Errand>()

  constructor(world: TalkWorld, agent: string, chance: Chance) {
    this.#world = world
    this.#agent = agent
    this.#chance = chance
  }

  get count(): number {
    return this.#open.size
  }

  do(run: Errand['run'], then: Errand['then']): void {
    const errand: Errand = { run, then, life: null }
    this.#open.add(errand)
    this.#go(errand)
  }

  /** No answer is waited for. */
  stop(): void {
    this.#open.clear()
  }

  disconnected(life: Life): void {
    for (const errand of this.#open) if (errand.life === life) this.#later(errand)
  }

  #later(errand: Errand): void {
    errand.life = null
    this.#world.events.after(this.#chance.tail(100_000, 4_000_000), () => this.#go(errand))
  }

  #go(errand: Errand): void {
    if (!this.#open.has(errand) || errand.life !== null) return
    const life = this.#world.current()
    if (life === null) return this.#later(errand)
    errand.life = life
    errand.run(life).then((reply) => {
      if (errand.life !== life || !life.isAlive || !this.#open.delete(errand)) return
      errand.then(reply)
    }, (error: unknown) => this.#world.wrong(0, `${this.#agent}: ${String(error)}`))
    if (!life.isAlive) this.#later(errand)
  }
}
