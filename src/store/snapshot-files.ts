/**
 * Owns the files that snapshots lie in: one file each in a folder of the data directory, named by the number of its last
 * fact. A file gets its name when it is whole and on disk, so a crash leaves the one before it, and a partial file that
 * the next start takes away. What is in it is for others.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { open, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { isFault } from './store-error.ts'

const NAME = /^(\d{1,16})\.snapshot$/
const PARTIAL = '.partial'

export interface SnapshotFiles {
  /** Newest first. */
  seqs(): readonly number[]
  /** Null where it cannot be read. */
  read(seq: number): Uint8Array | null
  /** There whole and durable when it resolves; rejects, and leaves nothing, where it could not be. */
  write(seq: number, pieces: Iterable<Uint8Array>): Promise<void>
  drop(seq: number): void
}

export class SnapshotFolder implements SnapshotFiles {
  readonly #folder: string

  constructor(folder: string) {
    this.#folder = folder
    mkdirSync(folder, { recursive: true, mode: 0o700 })
    for (const name of readdirSync(folder)) if (name.endsWith(PARTIAL)) rmSync(join(folder, name), { force: true })
  }

  seqs(): readonly number[] {
    return readdirSync(this.#folder).flatMap((name) => NAME.exec(name)?.[1] ?? []).map(Number).sort((a, b) => b - a)
  }

  read(seq: number): Uint8Array | null {
    try {
      return readFileSync(this.#path(seq))
    } catch (thrown) {
      if (isFault(thrown, 'ENOENT') || isFault(thrown, 'EIO')) return null
      throw thrown
    }
  }

  async write(seq: number, pieces: Iterable<Uint8Array>): Promise<void> {
    const path = this.#path(seq)
    const partial = `${path}${PARTIAL}`
    try {
      const file = await open(partial, 'w', 0o600)
      try {
        for (const piece of pieces) await file.writeFile(piece)
        await file.sync()
      } finally {
        await file.close()
      }
      await rename(partial, path)
    } catch (thrown) {
      rmSync(partial, { force: true })
      throw thrown
    }
    // The name is on disk too before the facts that it stands for may go.
    const folder = await open(this.#folder, 'r')
    try {
      await folder.sync()
    } finally {
      await folder.close()
    }
  }

  drop(seq: number): void {
    rmSync(this.#path(seq), { force: true })
  }

  #path(seq: number): string {
    return join(this.#folder, `${seq}.snapshot`)
  }
}
