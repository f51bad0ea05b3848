/**
 * Owns the table of KV images and their files' names and end. The engine writes and reads the files; what is in one,
 * and what its digest is of, is `digestFile`'s to know.
 */
import { existsSync, mkdirSync } from 'node:fs'
import { readdir, rm, rmdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { MoveId } from '../core/ids.ts'
import type { Bytes } from '../core/units.ts'
import type { KvImages } from '../driver/ports.ts'
import { PARTIAL_SUFFIX } from '../protocol/engine.ts'
import type { Loss } from './bodies.ts'
import type { Disk, Image } from './disk.ts'
import { freeBytes } from './image-directory.ts'
import { isFault, reason } from './store-error.ts'
import type { WriteBehind } from './write-behind.ts'

const SUFFIX = '.kv'

/** The digest of an image file's content; null where it is not a whole image. */
export type DigestFile = (path: string) => Promise<string | null>

export class ImageFiles implements KvImages {
  readonly directory: string
  readonly #behind: WriteBehind
  readonly #digestFile: DigestFile
  readonly #onLoss: (loss: Loss) => void
  readonly #images = new Map<MoveId, Image>()
  /** Files on their way out. */
  readonly #leaving = new Set<Promise<void>>()
  #bytes = 0

  constructor(
    disk: Disk, behind: WriteBehind, directory: string, digestFile: DigestFile, onLoss: (loss: Loss) => void,
  ) {
    this.directory = directory
    this.#behind = behind
    this.#digestFile = digestFile
    this.#onLoss = onLoss
    for (const { id, bytes, digest } of disk.images()) this.#note(id, { bytes, digest })
  }

  get count(): number {
    return this.#images.size
  }

  get bytes(): Bytes {
    return this.#bytes
  }

  /** Bytes that may still be written to where images lie. */
  freeBytes(): Bytes {
    return freeBytes(this.directory)
  }

  path(image: MoveId): string {
    if (!/^[A-Za-z0-9_-]{1,64}$/.test(image)) throw new RangeError(`${JSON.stringify(image)} cannot name a file`)
    // Somebody may have cleaned up under us: a copy that finds no folder would fail for ever.
    if (!existsSync(this.directory)) mkdirSync(this.directory, { recursive: true, mode: 0o700 })
    return join(this.directory, `${image}${SUFFIX}`)
  }

  keep(image: MoveId, bytes: Bytes, digest: string): void {
    this.#behind.setImage(image, { bytes, digest })
    this.#note(image, { bytes, digest })
  }

  /** Takes its folder away where nothing is kept in it; memory-backed storage would hold it until a reboot. */
  async close(): Promise<void> {
    await Promise.all(this.#leaving)
    if (existsSync(this.directory) && (await readdir(this.directory)).length === 0) await rmdir(this.directory)
  }

  /** Also of an image that was never kept: a move that failed leaves a file, or part of one. To free 94 MB takes 12 ms, so not here. */
  drop(image: MoveId): void {
    if (this.#images.has(image)) this.#behind.setImage(image, null)
    this.#forget(image)
    const path = this.path(image)
    const leaving: Promise<void> = Promise.all([path, `${path}${PARTIAL_SUFFIX}`].map((name) => rm(name, { force: true })))
      .then(() => undefined)
      .catch((thrown: unknown) => this.#onLoss({ kind: 'image', id: image, why: `its file stays: ${reason(thrown)}` }))
      .finally(() => this.#leaving.delete(leaving))
    this.#leaving.add(leaving)
  }

  async verify(): Promise<readonly string[]> {
    for (const [id, image] of [...this.#images]) {
      const why = await this.#fault(id, image)
      if (why === null) continue
      this.drop(id)
      this.#onLoss({ kind: 'image', id, why })
    }
    await Promise.all(this.#leaving)
    const kept = new Set([...this.#images.keys()].map((id) => `${id}${SUFFIX}`))
    for (const name of await readdir(this.directory)) {
      if (!kept.has(name)) await rm(join(this.directory, name), { recursive: true, force: true })
    }
    return [...this.#images.keys()]
  }

  async #fault(id: MoveId, image: Image): Promise<string | null> {
    const path = this.path(id)
    try {
      const { size } = await stat(path)
      if (size !== image.bytes) return `its file has ${size} bytes instead of ${image.bytes}`
    } catch (thrown) {
      if (isFault(thrown, 'ENOENT')) return 'its file is gone'
      throw thrown
    }
    const digest = await this.#digestFile(path)
    if (digest === null) return 'its file is not a whole image'
    return digest === image.digest ? null : `its file's digest is ${digest} instead of ${image.digest}`
  }

  #note(id: MoveId, image: Image): void {
    this.#forget(id)
    this.#images.set(id, image)
    this.#bytes += image.bytes
  }

  #forget(id: MoveId): void {
    this.#bytes -= this.#images.get(id)?.bytes ?? 0
    this.#images.delete(id)
  }
}
