/**
 * Owns a store without a disk, for the simulator and the tests. It goes through the same write-behind as the real one,
 * so what a crash loses is the same; facts pass through their text, so what replay sees is the same.
 */
import type { Fact, Logged } from '../core/fact.ts'
import type { BodyId, MoveId } from '../core/ids.ts'
import type { Bytes, Us } from '../core/units.ts'
import type { KvImages } from '../driver/ports.ts'
import { StoredBodies, type Loss } from './bodies.ts'
import type { Batch, Body, Disk, FoundBody, Image } from './disk.ts'
import { factLog } from './fact-log.ts'
import type { SnapshotFiles } from './snapshot-files.ts'
import { makeSnapshot, type NextSnapshot } from './snapshot-maker.ts'
import { Snapshots } from './snapshots.ts'
import type { Store } from './store.ts'
import { StoreError } from './store-error.ts'
import { REAL_SCHEDULE, WriteBehind, type Schedule } from './write-behind.ts'

/** Snapshots without files; a write is whole at once. */
class SnapshotTable implements SnapshotFiles {
  readonly #files = new Map<number, Uint8Array>()

  seqs(): readonly number[] {
    return [...this.#files.keys()].sort((a, b) => b - a)
  }

  read(seq: number): Uint8Array | null {
    return this.#files.get(seq) ?? null
  }

  async write(seq: number, pieces: Iterable<Uint8Array>): Promise<void> {
    this.#files.set(seq, Buffer.concat([...pieces]))
  }

  drop(seq: number): void {
    this.#files.delete(seq)
  }
}

/** What outlives a crash. */
export class MemoryDisk implements Disk {
  readonly snapshotFiles: SnapshotFiles = new SnapshotTable()
  readonly #facts: (Omit<Logged, 'fact'> & { readonly payload: string })[] = []
  readonly #bodies = new Map<BodyId, Body>()
  readonly #images = new Map<MoveId, Image>()
  #reign = 0

  commit(batch: Batch): void {
    let last = this.#facts.at(-1)?.seq ?? -1
    for (const { seq } of batch.facts) {
      if (seq <= last) throw new StoreError('store_failed', `Fact ${seq} comes after fact ${last}.`, 'this is a bug.')
      last = seq
    }
    for (const { seq, atUs, version, fact } of batch.facts) {
      this.#facts.push({ seq, atUs, version, payload: JSON.stringify(fact) })
    }
    for (const [id, body] of batch.bodies) replace(this.#bodies, id, body)
    for (const [id, image] of batch.images) replace(this.#images, id, image)
  }

  facts(afterSeq: number, limit: number): readonly Logged[] {
    let from = 0
    for (let to = this.#facts.length; from < to;) {
      const middle = (from + to) >> 1
      if ((this.#facts[middle]?.seq ?? 0) > afterSeq) to = middle
      else from = middle + 1
    }
    return this.#facts.slice(from, from + limit)
      .map(({ payload, ...rest }) => ({ ...rest, fact: JSON.parse(payload) as Fact }))
  }

  body(id: BodyId): FoundBody | null {
    const body = this.#bodies.get(id)
    return body === undefined ? null : { kind: 'whole', bytes: body.bytes }
  }

  bodySizes(): readonly { readonly id: BodyId; readonly bytes: Bytes }[] {
    return [...this.#bodies].map(([id, { bytes }]) => ({ id, bytes: bytes.length }))
  }

  images(): readonly (Image & { readonly id: MoveId })[] {
    return [...this.#images].map(([id, image]) => ({ id, ...image }))
  }

  trim(upToSeq: number, beforeUs: Us, limit: number): number {
    const stays = this.#facts.findIndex(({ seq, atUs }) => seq > upToSeq || atUs >= beforeUs)
    const count = Math.min(limit, stays < 0 ? this.#facts.length : stays)
    this.#facts.splice(0, count)
    return count
  }

  nextReign(): number {
    return ++this.#reign
  }

  close(): void {
    // It stays as it is: it is the disk.
  }
}

/** Last put is last in order, as on disk. */
function replace<K, V>(map: Map<K, V>, key: K, value: V | null): void {
  map.delete(key)
  if (value !== null) map.set(key, value)
}

/** Images without files: what was kept verifies. */
class ImageTable implements KvImages {
  readonly directory = 'memory'
  readonly #behind: WriteBehind
  readonly #images: Map<MoveId, Image>

  constructor(disk: MemoryDisk, behind: WriteBehind) {
    this.#behind = behind
    this.#images = new Map(disk.images().map(({ id, bytes, digest }) => [id, { bytes, digest }]))
  }

  get count(): number {
    return this.#images.size
  }

  get bytes(): Bytes {
    return [...this.#images.values()].reduce((sum, { bytes }) => sum + bytes, 0)
  }

  freeBytes(): Bytes {
    return Number.MAX_SAFE_INTEGER
  }

  path(image: MoveId): string {
    return `${this.directory}/${image}`
  }

  keep(image: MoveId, bytes: Bytes, digest: string): void {
    this.#behind.setImage(image, { bytes, digest })
    this.#images.set(image, { bytes, digest })
  }

  drop(image: MoveId): void {
    if (this.#images.delete(image)) this.#behind.setImage(image, null)
  }

  async verify(): Promise<readonly string[]> {
    return [...this.#images.keys()]
  }
}

interface MemoryOptions {
  readonly disk?: MemoryDisk
  readonly schedule?: Schedule
  readonly bodyBytesMax?: Bytes
  readonly logRetentionUs?: Us
  /** Absent: no snapshot is made. */
  readonly nextSnapshot?: NextSnapshot
  readonly onFailure?: (error: StoreError) => void
  readonly onLoss?: (loss: Loss) => void
}

/** `crash` ends it as the power would; open another on the same disk. */
export function memoryStore(options: MemoryOptions = {}): Store & { crash(): void } {
  const disk = options.disk ?? new MemoryDisk()
  const onFailure = options.onFailure ?? ((error: StoreError) => { throw error })
  const behind = new WriteBehind(disk, options.schedule ?? REAL_SCHEDULE, onFailure)
  const onLoss = options.onLoss ?? (() => undefined)
  const next = options.nextSnapshot
  const make = next === undefined ? null : () => makeSnapshot(disk, disk.snapshotFiles, next)
  const snapshots = new Snapshots(disk, disk.snapshotFiles, behind, options.logRetentionUs ?? Number.MAX_SAFE_INTEGER, make, onLoss)
  return {
    log: factLog(disk, behind, snapshots),
    snapshots,
    bodies: new StoredBodies(disk, behind, options.bodyBytesMax ?? Number.MAX_SAFE_INTEGER, onLoss),
    images: new ImageTable(disk, behind),
    close: async () => {
      await snapshots.close()
      behind.close()
    },
    crash: () => behind.abandon(),
  }
}
