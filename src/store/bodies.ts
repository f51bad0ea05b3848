/**
 * Owns the working bodies' budget and what `get` answers. Bodies are kept by when they were last put; at the budget
 * the longest unwritten go first, because what they serve (a session that has been quiet longest) can be had again by
 * plain recompute, while refusing the newest would stop a call. A body larger than the whole budget is not kept.
 * Each loss is told and counted: `get` answers null, never something else.
 */
import type { BodyId, TenantId } from '../core/ids.ts'
import type { Bytes } from '../core/units.ts'
import type { Bodies } from '../driver/ports.ts'
import type { Disk } from './disk.ts'
import type { WriteBehind } from './write-behind.ts'

/** Something kept that cannot be had any more, with the reason. */
export interface Loss {
  readonly kind: 'body' | 'image' | 'snapshot'
  readonly id: string
  readonly why: string
}

export class StoredBodies implements Bodies {
  readonly #disk: Disk
  readonly #behind: WriteBehind
  readonly #bytesMax: Bytes
  readonly #onLoss: (loss: Loss) => void
  /** Oldest put first. */
  readonly #sizes = new Map<BodyId, Bytes>()
  #bytes = 0

  constructor(disk: Disk, behind: WriteBehind, bytesMax: Bytes, onLoss: (loss: Loss) => void) {
    this.#disk = disk
    this.#behind = behind
    this.#bytesMax = bytesMax
    this.#onLoss = onLoss
    for (const { id, bytes } of disk.bodySizes()) this.#note(id, bytes)
    this.#makeRoom()
  }

  get count(): number {
    return this.#sizes.size
  }

  get bytes(): Bytes {
    return this.#bytes
  }

  put(id: BodyId, tenant: TenantId, bytes: Uint8Array): void {
    if (bytes.length > this.#bytesMax) {
      return this.#lose(id, `it has ${bytes.length} bytes and all bodies together may have ${this.#bytesMax}`)
    }
    this.#behind.setBody(id, { tenant, bytes: new Uint8Array(bytes) })
    this.#note(id, bytes.length)
    this.#makeRoom()
  }

  get(id: BodyId): Uint8Array | null {
    if (!this.#sizes.has(id)) return null
    const waiting = this.#behind.waitingBody(id)
    if (waiting !== undefined) return waiting?.bytes ?? null
    const found = this.#disk.body(id)
    if (found?.kind === 'whole') return found.bytes
    this.#lose(id, found === null ? 'it is not in the database' : found.why)
    return null
  }

  drop(id: BodyId): void {
    if (!this.#sizes.has(id)) return
    this.#behind.setBody(id, null)
    this.#forget(id)
  }

  keepOnly(isNeeded: (id: BodyId) => boolean): void {
    for (const id of [...this.#sizes.keys()]) if (!isNeeded(id)) this.drop(id)
  }

  #note(id: BodyId, bytes: Bytes): void {
    this.#forget(id)
    this.#sizes.set(id, bytes)
    this.#bytes += bytes
  }

  #forget(id: BodyId): void {
    this.#bytes -= this.#sizes.get(id) ?? 0
    this.#sizes.delete(id)
  }

  #lose(id: BodyId, why: string): void {
    this.drop(id)
    this.#onLoss({ kind: 'body', id, why })
  }

  #makeRoom(): void {
    for (const id of this.#sizes.keys()) {
      if (this.#bytes <= this.#bytesMax) return
      this.#lose(id, `all bodies together may have ${this.#bytesMax} bytes, and this one was written longest ago`)
    }
  }
}
