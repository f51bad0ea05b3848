/** What the exactness tests ask of an engine, be it in this process or in one of its own. */
import type { EngineEvent, EngineRequest } from '../../src/protocol/engine.ts'

export interface Heard { readonly event: EngineEvent; readonly bin: readonly Uint8Array[] }

type Unsigned<R> = R extends { reign: number } ? Omit<R, 'reign'> : never
export type Command = Unsigned<EngineRequest>

/** The engine was killed before it answered. */
export class Killed extends Error {}

export interface PlayedEngine {
  readonly heard: readonly Heard[]
  readonly lanes: number
  readonly imageKey: string
  /** A State of its model has an image. */
  readonly images: boolean
  /** Throws Killed where it is gone. */
  tell(command: Command, bin?: readonly Uint8Array[]): void
  /** The first event from now on that is wanted. Rejects with Killed. */
  next(wants: (event: EngineEvent) => boolean): Promise<Heard>
}

interface Waiter {
  readonly wants: (event: EngineEvent) => boolean
  readonly take: (heard: Heard) => void
  readonly fail: (why: Error) => void
}

/** What was heard of an engine, and who waits for more. */
export class Hearing {
  readonly heard: Heard[] = []
  readonly #waiting = new Set<Waiter>()
  #lost: Error | null = null

  get lost(): Error | null {
    return this.#lost
  }

  take(heard: Heard): void {
    this.heard.push(heard)
    for (const waiter of [...this.#waiting]) {
      if (!waiter.wants(heard.event)) continue
      this.#waiting.delete(waiter)
      waiter.take(heard)
    }
  }

  next(wants: (event: EngineEvent) => boolean): Promise<Heard> {
    return new Promise((resolve, reject) => {
      if (this.#lost !== null) return reject(this.#lost)
      this.#waiting.add({ wants, take: resolve, fail: reject })
    })
  }

  lose(why: Error): void {
    this.#lost ??= why
    for (const waiter of this.#waiting) waiter.fail(why)
    this.#waiting.clear()
  }
}
