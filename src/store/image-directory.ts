/**
 * Owns where images of KV lie: in a folder of our own, open to us alone, in memory-backed storage where there is one
 * large enough, else below the data directory. Its name comes from the data directory, so a restart finds it and two
 * data directories never share one.
 */
import { createHash } from 'node:crypto'
import { accessSync, chmodSync, constants, lstatSync, mkdirSync, realpathSync, statfsSync } from 'node:fs'
import { join } from 'node:path'
import type { Bytes } from '../core/units.ts'
import { reason, StoreError } from './store-error.ts'

const MEMORY_MOUNT = '/dev/shm'
/** What statfs calls a tmpfs. */
const TMPFS_TYPE = 0x0102_1994

/** `configured` wins. `bytesWanted` is the whole host budget: /dev/shm of a container often has no more than 64 MB. */
export function imageDirectory(dataDir: string, configured: string | null, bytesWanted: Bytes): string {
  const name = `entracte-${createHash('sha256').update(realpathSync(dataDir)).digest('hex').slice(0, 16)}`
  if (configured !== null) return ownFolder(join(configured, name))
  if (isMemory(MEMORY_MOUNT, bytesWanted)) {
    try {
      return ownFolder(join(MEMORY_MOUNT, name))
    } catch (thrown) {
      // Somebody else's folder has our name there; the data directory is ours for certain.
      if (!(thrown instanceof StoreError)) throw thrown
    }
  }
  return ownFolder(join(dataDir, 'kv'))
}

/** Bytes that may still be written there. */
export function freeBytes(directory: string): Bytes {
  const { bavail, bsize } = statfsSync(directory)
  return bavail * bsize
}

function isMemory(mount: string, bytesWanted: Bytes): boolean {
  if (process.platform !== 'linux') return false
  try {
    const { type, blocks, bsize } = statfsSync(mount)
    accessSync(mount, constants.W_OK)
    return type === TMPFS_TYPE && blocks * bsize >= bytesWanted
  } catch {
    return false
  }
}

/** Creates it; refuses a link, or a folder of another user. */
function ownFolder(path: string): string {
  try {
    mkdirSync(path, { recursive: true, mode: 0o700 })
    const found = lstatSync(path)
    const isOurs = process.getuid === undefined || found.uid === process.getuid()
    if (!found.isDirectory() || !isOurs) throw new Error('it is not a folder of this user')
    chmodSync(path, 0o700)
    return path
  } catch (thrown) {
    throw new StoreError('data_dir_unusable', `Images of KV cannot be kept in ${path}: ${reason(thrown)}.`,
      'set imagesDir to a folder you may write to.', thrown)
  }
}
