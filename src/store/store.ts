/**
 * Owns the opening and closing of a store on disk: the lock, the database, the folder of images, and the three ports
 * of the driver over them. START HERE to read this folder; `write-behind.ts` says when things become durable.
 */
import { mkdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Bytes, Us } from '../core/units.ts'
import type { Bodies, FactLog, KvImages } from '../driver/ports.ts'
import { StoredBodies, type Loss } from './bodies.ts'
import { DataLock } from './data-lock.ts'
import { factLog } from './fact-log.ts'
import { imageDirectory } from './image-directory.ts'
import { ImageFiles, type DigestFile } from './images.ts'
import { SnapshotFolder } from './snapshot-files.ts'
import type { Made } from './snapshot-maker.ts'
import { SNAPSHOTS_FOLDER } from './snapshot-thread.ts'
import { Snapshots } from './snapshots.ts'
import { SqliteDisk } from './sqlite-disk.ts'
import { reason, StoreError } from './store-error.ts'
import { REAL_SCHEDULE, WriteBehind } from './write-behind.ts'

/** How much there is, for the metrics. */
interface Amount {
  readonly count: number
  readonly bytes: Bytes
}

export interface Store {
  readonly log: FactLog
  readonly bodies: Bodies & Amount
  readonly snapshots: { readonly count: number; readonly lost: number }
  readonly images: KvImages & Amount & { readonly directory: string; freeBytes(): Bytes }
  /** Writes what waits, and lets go of the data directory. */
  close(): Promise<void>
}

export interface StoreOptions {
  /** A write failed, and none will be tried again: called once. */
  readonly onFailure: (error: StoreError) => void
  /** A body or an image that was kept cannot be had any more. */
  readonly onLoss: (loss: Loss) => void
  readonly digestFile: DigestFile
  /** Images get a folder of their own below it; null: in memory-backed storage, else in the data directory. */
  readonly imagesDir: string | null
  readonly imageBytesMax: Bytes
  /** At it, the bodies written longest ago are dropped. */
  readonly bodyBytesMax: Bytes
  /** Facts that every kept snapshot holds stay this long all the same, for people to read. */
  readonly logRetentionUs: Us
  /** Makes the next snapshot of what is in that folder; null: none is made. */
  readonly makeSnapshot: ((dataDir: string, stop: AbortSignal) => Promise<Made | null>) | null
}

export function openStore(dataDir: string, options: StoreOptions): Store {
  const folder = resolve(dataDir)
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 })
  } catch (thrown) {
    throw new StoreError('data_dir_unusable', `The data directory ${folder} cannot be made: ${reason(thrown)}.`,
      'give another data directory, or the rights to write there.', thrown)
  }
  const lock = new DataLock(folder)
  try {
    const disk = new SqliteDisk(folder)
    const directory = imageDirectory(folder, options.imagesDir, options.imageBytesMax)
    const behind = new WriteBehind(disk, REAL_SCHEDULE, options.onFailure)
    const { makeSnapshot, logRetentionUs, onLoss } = options
    const files = new SnapshotFolder(join(folder, SNAPSHOTS_FOLDER))
    const snapshots = new Snapshots(disk, files, behind, logRetentionUs, makeSnapshot && ((stop) => makeSnapshot(folder, stop)), onLoss)
    const images = new ImageFiles(disk, behind, directory, options.digestFile, options.onLoss)
    let closing: Promise<void> | null = null
    const close = async (): Promise<void> => {
      try {
        await snapshots.close()
        behind.close()
        await images.close()
      } finally {
        disk.close()
        lock.release()
      }
    }
    return {
      log: factLog(disk, behind, snapshots),
      snapshots,
      bodies: new StoredBodies(disk, behind, options.bodyBytesMax, options.onLoss),
      images,
      close: () => (closing ??= close()),
    }
  } catch (thrown) {
    lock.release()
    throw thrown
  }
}
