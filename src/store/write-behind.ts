/**
 * Owns what waits for the next commit and when that is. Barrier facts ask for one as soon as the present turn is over,
 * so the appends of a turn share it; all else waits for a barrier, at most FLOW_COMMIT_MS.
 *
 * S1 a `durable` is called once, after its facts and all before them are on disk, in order, never from inside a call
 *    into the store.
 * S2 what is put together in one turn is committed together.
 * S3 after the first failed commit nothing is written any more, and `onFailure` has been told once. What is put from
 *    then on is in memory only: facts are let go, bodies are still to be had, so that calls can go on without a disk.
 */
import type { Logged } from '../core/fact.ts'
import type { BodyId, MoveId } from '../core/ids.ts'
import type { Batch, Body, Disk, Image } from './disk.ts'
import { reason, StoreError } from './store-error.ts'

/** How long a flow fact or a body may wait: what a crash can lose. */
export const FLOW_COMMIT_MS = 50

/** At either, the commit happens inside the call that reached it: who writes faster than the disk, waits for it. */
const WAITING_FACTS_MAX = 10_000
const WAITING_BODY_BYTES_MAX = 64 * 1024 * 1024

/** Time as the store needs it; the simulator brings its own. */
export interface Schedule {
  /** Calls soon, after what is running now. */
  soon(call: () => void): void
  /** Calls once after the time; returns what cancels it. */
  after(waitMs: number, call: () => void): () => void
}

export const REAL_SCHEDULE: Schedule = {
  soon: (call) => { setImmediate(call) },
  after: (waitMs, call) => {
    const timer = setTimeout(call, waitMs)
    return () => clearTimeout(timer)
  },
}

export class WriteBehind {
  readonly #disk: Disk
  readonly #schedule: Schedule
  readonly #onFailure: (error: StoreError) => void
  #facts: Logged[] = []
  #bodies = new Map<BodyId, Body | null>()
  #images = new Map<MoveId, Image | null>()
  #bodyBytes = 0
  /** Of the facts that wait. */
  #durables: (() => void)[] = []
  /** Of facts that are on disk, not yet called. */
  #settled: (() => void)[] = []
  #isDue = false
  #cancelTimer: (() => void) | null = null
  #state: 'open' | 'failed' | 'closed' = 'open'

  constructor(disk: Disk, schedule: Schedule, onFailure: (error: StoreError) => void) {
    this.#disk = disk
    this.#schedule = schedule
    this.#onFailure = onFailure
  }

  append(facts: readonly Logged[], barrier: boolean, durable: () => void): void {
    if (this.#state === 'failed') return
    this.#mustBeOpen()
    this.#facts.push(...facts)
    this.#durables.push(durable)
    this.#waits(barrier)
  }

  /** Null drops it. */
  setBody(id: BodyId, body: Body | null): void {
    if (this.#state !== 'failed') this.#mustBeOpen()
    this.#bodyBytes += (body?.bytes.length ?? 0) - (this.#bodies.get(id)?.bytes.length ?? 0)
    this.#bodies.set(id, body)
    this.#waits(false)
  }

  setImage(id: MoveId, image: Image | null): void {
    if (this.#state === 'failed') return
    this.#mustBeOpen()
    this.#images.set(id, image)
    this.#waits(false)
  }

  /** A body that waits to be written; undefined where the disk knows better. */
  waitingBody(id: BodyId): Body | null | undefined {
    return this.#bodies.get(id)
  }

  /** Writes what waits at once; throws where that fails, or failed before. */
  flush(): void {
    this.#mustBeOpen()
    const error = this.#commit()
    if (error !== null) throw error
    if (this.#settled.length > 0) this.#comeSoon()
  }

  /** The same, where it can be: false where it cannot, and `onFailure` is told. */
  tryFlush(): boolean {
    if (this.#state !== 'open' || this.#commit() !== null) return false
    if (this.#settled.length > 0) this.#comeSoon()
    return true
  }

  /** Resolves soon, after what is running now. */
  soon(): Promise<void> {
    return new Promise((resolve) => this.#schedule.soon(resolve))
  }

  /** Writes what waits and lets everybody know before it returns. */
  close(): void {
    if (this.#state === 'closed') return
    try {
      if (this.#state === 'open') this.flush()
      this.#settle()
    } finally {
      this.abandon()
    }
  }

  /** As if the power had gone: what waits is lost. */
  abandon(): void {
    this.#state = 'closed'
    this.#forget()
    this.#settled = []
  }

  #waits(isUrgent: boolean): void {
    if (this.#state === 'failed') return
    const isFull = this.#facts.length >= WAITING_FACTS_MAX || this.#bodyBytes >= WAITING_BODY_BYTES_MAX
    if (isFull) this.#commit()
    if (isUrgent || isFull) return this.#comeSoon()
    this.#cancelTimer ??= this.#schedule.after(FLOW_COMMIT_MS, () => this.#tick())
  }

  #comeSoon(): void {
    if (this.#isDue) return
    this.#isDue = true
    this.#schedule.soon(() => this.#tick())
  }

  #tick(): void {
    this.#isDue = false
    if (this.#state === 'open') this.#commit()
    this.#settle()
  }

  #settle(): void {
    const settled = this.#settled
    this.#settled = []
    for (const durable of settled) durable()
  }

  /** The failure, after it was taken note of; null where all is on disk. */
  #commit(): StoreError | null {
    const batch: Batch = { facts: this.#facts, bodies: this.#bodies, images: this.#images }
    const durables = this.#durables
    const isEmpty = batch.facts.length === 0 && batch.bodies.size === 0 && batch.images.size === 0
    try {
      if (!isEmpty) this.#disk.commit(batch)
    } catch (thrown) {
      const error = thrown instanceof StoreError ? thrown : new StoreError('store_failed',
        `The store could not write: ${reason(thrown)}.`, 'see the cause and start again.', thrown)
      this.#state = 'failed'
      const [bodies, bodyBytes] = [this.#bodies, this.#bodyBytes]
      this.#forget()
      this.#bodies = bodies
      this.#bodyBytes = bodyBytes
      this.#schedule.soon(() => this.#onFailure(error))
      return error
    }
    this.#forget()
    for (const durable of durables) this.#settled.push(durable)
    return null
  }

  #forget(): void {
    this.#cancelTimer?.()
    this.#cancelTimer = null
    this.#facts = []
    this.#bodies = new Map()
    this.#images = new Map()
    this.#bodyBytes = 0
    this.#durables = []
  }

  #mustBeOpen(): void {
    if (this.#state === 'open') return
    throw new StoreError(this.#state === 'failed' ? 'store_failed' : 'store_closed',
      `The store ${this.#state === 'failed' ? 'failed earlier and writes nothing more' : 'is closed'}.`, 'start again.')
  }
}
