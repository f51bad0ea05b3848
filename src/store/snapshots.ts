/**
 * Owns which snapshots are kept, and through them the log's retention, since a fact is needed as long as a kept snapshot
 * lacks it. A damaged snapshot is told, counted and passed over; the one before it, or the whole log, is as good and only
 * slower. How one is made is `snapshot-maker.ts`'s, what it looks like `snapshot-text.ts`'s.
 *
 * N1 A snapshot holds nothing that the log on disk does not: it is made from it, after what waits was written.
 * N2 A fact goes only when two snapshots that were read back whole hold it and it is older than the log's retention.
 */
import type { Snapshot } from '../core/snapshot.ts'
import type { Us } from '../core/units.ts'
import type { Loss } from './bodies.ts'
import type { Disk } from './disk.ts'
import type { SnapshotFiles } from './snapshot-files.ts'
import type { Made } from './snapshot-maker.ts'
import { parsed } from './snapshot-text.ts'
import { reason } from './store-error.ts'
import type { WriteBehind } from './write-behind.ts'

/** Facts deleted in one transaction, so that no commit waits long for it. */
const TRIM_FACTS = 2_000
/** Who stops a server waits no longer than this for a snapshot. */
const CLOSE_MS_MAX = 5_000

export class Snapshots {
  readonly #disk: Disk
  readonly #files: SnapshotFiles
  readonly #behind: WriteBehind
  readonly #logRetentionUs: Us
  readonly #make: ((stop: AbortSignal) => Promise<Made | null>) | null
  readonly #stop = new AbortController()
  #closed = false
  readonly #onLoss: (loss: Loss) => void
  #making: Promise<void> | null = null
  /** Snapshots that could not be read, and those that could not be made. */
  lost = 0

  /** `make`: makes the next one of what is in the log; null: none is made. */
  constructor(
    disk: Disk, files: SnapshotFiles, behind: WriteBehind, logRetentionUs: Us, make: ((stop: AbortSignal) => Promise<Made | null>) | null, onLoss: (loss: Loss) => void,
  ) {
    this.#disk = disk
    this.#files = files
    this.#behind = behind
    this.#logRetentionUs = logRetentionUs
    this.#make = make
    this.#onLoss = onLoss
  }

  get count(): number {
    return this.#files.seqs().length
  }

  /** Whole ones, newest first; each is read when it is asked for. */
  *whole(): Generator<Snapshot> {
    for (const seq of this.#files.seqs()) {
      const snapshot = parsed(seq, this.#files.read(seq))
      if (typeof snapshot !== 'string') {
        yield snapshot
        continue
      }
      this.#lose(String(seq), snapshot)
      // Kept, it would stand for one to fall back on.
      this.#files.drop(seq)
    }
  }

  /** Begins to make one of what is in the log by now, unless one is being made: then a later one will do. */
  take(): void {
    if (this.#making !== null || this.#closed || this.#make === null || !this.#behind.tryFlush()) return
    this.#making = this.#taken(this.#make).finally(() => { this.#making = null })
  }

  /** Resolves when nothing is being made; what takes longer than `CLOSE_MS_MAX` is given up: the log has all of it. */
  async close(): Promise<void> {
    this.#closed = true
    const late = setTimeout(() => this.#stop.abort(), CLOSE_MS_MAX)
    await this.#making
    clearTimeout(late)
  }

  async #taken(make: (stop: AbortSignal) => Promise<Made | null>): Promise<void> {
    try {
      const made = await make(this.#stop.signal)
      if (made === null) return
      const { seq, atUs, fallback, damaged } = made
      for (const one of damaged) this.#lose(String(one.seq), one.why)
      // The damaged too, unless the new one has taken its place.
      for (const kept of this.#files.seqs()) if (kept !== seq && kept !== fallback) this.#files.drop(kept)
      if (fallback !== null) await this.#trim(fallback, atUs - this.#logRetentionUs)
    } catch (thrown) {
      if (!this.#stop.signal.aborted) this.#lose('next', `it could not be made: ${reason(thrown)}`)
    }
  }

  async #trim(upToSeq: number, beforeUs: Us): Promise<void> {
    while (this.#disk.trim(upToSeq, beforeUs, TRIM_FACTS) === TRIM_FACTS && !this.#closed) await this.#behind.soon()
  }

  #lose(id: string, why: string): void {
    this.lost += 1
    this.#onLoss({ kind: 'snapshot', id, why })
  }
}
