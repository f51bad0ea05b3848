/**
 * Owns one life's way to one engine: the adapter behind the driver's engine port. It turns what the wire does into inputs:
 * an engine that is silent for its lease, or whose connection broke, is lost; it is greeted again until it joins. What an
 * engine of an older connection still says is passed on, late as it is: the core must know better.
 */
import type { CallId, EngineId } from '../core/ids.ts'
import type { Held } from '../core/input.ts'
import type { Us } from '../core/units.ts'
import type { EngineCommand, EnginePort, EngineSink, Measurement, MeasureRequest } from '../driver/ports.ts'
import type { Engine, Link } from './engine.ts'
import type { Events } from './events.ts'
import type { Wire } from './wire.ts'

/** An engine that was silent for so long is declared dead. */
const LEASE_US: Us = 3_000_000
const GREET_AGAIN_US: Us = 1_000_000

interface PortWorld {
  readonly events: Events
  /** Runs it when this life is awake, or never where it is over. */
  readonly receive: (run: () => void) => void
  /** A call of it is about to have an effect; false: the life ended here. */
  readonly mayAct: () => boolean
}

export class SimPort implements EnginePort {
  readonly id: EngineId
  readonly #engine: Engine
  readonly #world: PortWorld
  readonly wire: Wire
  #sink: EngineSink | null = null
  #reign = 0
  #link: Link | null = null
  #greetings = 0
  #joined = false
  #closed = false
  readonly #measuring = new Map<CallId, (measurement: Measurement) => void>()

  constructor(engine: Engine, world: PortWorld, wire: (broken: (why: string) => void) => Wire) {
    this.id = engine.id
    this.#engine = engine
    this.#world = world
    this.wire = wire((why) => world.events.after(LEASE_US / 4, () => world.receive(() => this.lost(why))))
  }

  open(reign: number, sink: EngineSink): void {
    this.#reign = reign
    this.#sink = sink
    this.#greet()
  }

  measure(request: MeasureRequest): Promise<Measurement> {
    return new Promise((resolve) => {
      if (!this.#joined) return resolve(unavailable(this.id))
      this.#measuring.set(request.call, resolve)
      this.wire.command(() => this.#engine.measure(request, (measurement) => this.#link?.say(request.call, true, () => {
        // The call may be measured again by now: then that one is still to be answered.
        if (this.#measuring.get(request.call) === resolve) this.#measuring.delete(request.call)
        resolve(measurement)
      })))
    })
  }

  perform(command: EngineCommand): void {
    if (!this.#world.mayAct()) return
    const link = this.#link
    if (this.#joined && link !== null) return this.wire.command(() => this.#engine.command(link, command))
    const why = `${this.id} is not joined`
    const from = { engine: this.id, reign: this.#reign }
    this.#world.events.after(1, () => this.#world.receive(() => {
      if (command.kind === 'start') {
        const { call, attempt, run, epoch } = command
        this.#sink?.input({ kind: 'attemptFailed', ...from, call, attempt, run, epoch, why, retryable: true })
      } else if ('move' in command) this.#sink?.input({ kind: 'moveFailed', ...from, move: command.move, why, sourceLost: false })
    }))
  }

  close(): Promise<void> {
    this.#closed = true
    this.#sink = null
    return Promise.resolve()
  }

  /** Nothing passes until then. */
  cut(untilUs: Us, drops: boolean): void {
    this.wire.cut(untilUs, drops)
    const leftUs = untilUs - this.#world.events.nowUs
    if (leftUs > LEASE_US || drops) {
      this.#world.events.after(Math.min(leftUs, LEASE_US), () => this.#world.receive(() => this.lost('it was silent for its lease')))
    }
  }

  /** The engine does nothing for so long. */
  silent(us: Us): void {
    if (us > LEASE_US) this.#world.events.after(LEASE_US, () => this.#world.receive(() => this.lost('it was silent for its lease')))
  }

  lost(why: string): void {
    if (!this.#joined || this.#closed) return
    this.#joined = false
    for (const resolve of this.#measuring.values()) resolve(unavailable(this.id))
    this.#measuring.clear()
    this.#sink?.input({ kind: 'engineLost', engine: this.id, reign: this.#reign, why })
    this.#greet()
  }

  #greet(): void {
    if (this.#joined || this.#closed) return
    this.#greetings += 1
    const link = this.#linkOf(this.#greetings)
    this.wire.renew()
    this.wire.command(() => this.#engine.hello(link))
    this.#world.events.after(GREET_AGAIN_US, () => this.#world.receive(() => {
      if (this.#greetings === link.number) this.#greet()
    }))
  }

  #linkOf(number: number): Link {
    const say = (subject: string, matters: boolean, run: () => void): void => this.wire.say(subject, matters, () => { if (!this.#closed) run() })
    const link: Link = {
      reign: this.#reign,
      number,
      say: (subject, matters, speak) => say(subject, matters, () => { if (this.#sink !== null) speak(this.#sink) }),
      joined: (held) => say('link', true, () => this.#accept(link, held)),
      refused: (why) => say('link', true, () => this.#sink?.input({ kind: 'engineLost', engine: this.id, reign: this.#reign, why })),
      died: (why) => say('link', true, () => { if (this.#link === link) this.lost(why) }),
    }
    return link
  }

  /** Of several greetings the last counts: the engine obeys that one. */
  #accept(link: Link, inventory: readonly Held[]): void {
    if (link.number !== this.#greetings || this.#joined) return
    this.#joined = true
    this.#link = link
    const { capabilities, speeds } = this.#engine.shape
    this.#sink?.input({ kind: 'engineJoined', engine: this.id, reign: this.#reign, capabilities, speeds, inventory })
  }
}

const unavailable = (id: EngineId): Measurement => ({ ok: false, code: 'engine_unavailable', why: `${id} is not joined` })
