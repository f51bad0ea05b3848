/**
 * Owns the folder that model files wait in: where it is, how a file gets into it whole or not at all, and the digests
 * of files already read. What the files are is for others to know.
 *
 * A file is made in a scratch folder of its own beside its place, checked, synced and renamed, so two processes that
 * make the same file at once cannot harm each other: the last rename wins and both files are whole.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import {
  access, constants, mkdir, mkdtemp, open, readFile, readdir, rename, rm, stat, writeFile,
} from 'node:fs/promises'
import { homedir } from 'node:os'
import { basename, join, resolve } from 'node:path'
import { ModelError, reason } from './model-error.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** A scratch folder older than this belongs to a process that died. */
const SCRATCH_AGE_MAX_MS = 24 * 3_600_000
const SCRATCH_PREFIX = '.partial-'
const DIGEST_NOTE = 'digest'
/** Digests that are kept, of files anywhere; at it the one noted longest ago goes, and its file is read once more. */
export const DIGESTS_MAX = 64

/** What probes of exactness answered, beside the models they were asked of: one answer serves every data directory. */
export const PROBES_FILE = 'probes.json'

/** The digest a file must have and its exact size; null where any will do. */
interface Expected {
  readonly bytes: number
  readonly digest: string
}

export function cacheDirectory(env: Environment): string {
  if (env['ENTRACTE_CACHE']) return resolve(env['ENTRACTE_CACHE'])
  if (env['XDG_CACHE_HOME']) return join(resolve(env['XDG_CACHE_HOME']), 'entracte')
  return join(homedir(), '.cache', 'entracte')
}

/** Creates the folder and clears what dead processes left in it. */
export async function openCache(directory: string): Promise<void> {
  try {
    await mkdir(directory, { recursive: true })
    await access(directory, constants.W_OK)
  } catch (thrown) {
    throw new ModelError('cache_unwritable', `The model cache ${directory} cannot be written: ${reason(thrown)}`, [],
      'set ENTRACTE_CACHE to a folder you may write to.')
  }
  for (const name of await readdir(directory)) {
    if (!name.startsWith(SCRATCH_PREFIX)) continue
    const path = join(directory, name)
    const found = await ifPresent(stat(path))
    const isLeft = found !== null && Date.now() - found.mtimeMs > SCRATCH_AGE_MAX_MS
    if (isLeft) await rm(path, { recursive: true, force: true })
  }
}

/** Has `make` write a file in a scratch folder, checks it and puts it at `target`. */
export async function publish(
  target: string,
  expected: Expected | null,
  make: (file: string, scratch: string) => Promise<void>,
): Promise<void> {
  const scratch = await mkdtemp(join(target, '..', SCRATCH_PREFIX))
  try {
    const file = join(scratch, basename(target))
    await make(file, scratch)
    await adopt(file, target, expected)
  } finally {
    await rm(scratch, { recursive: true, force: true })
  }
}

/** Puts a file of the same disk at `target`, whole and checked; where it is not what was expected it stays. */
export async function adopt(file: string, target: string, expected: Expected | null): Promise<void> {
  if (expected !== null) await check(file, expected)
  const handle = await open(file, 'r+')
  await handle.sync()
  await handle.close()
  await rename(file, target)
}

async function check(file: string, expected: Expected): Promise<void> {
  const { size } = await stat(file)
  if (size !== expected.bytes) throw new Error(`the file has ${size} bytes instead of ${expected.bytes}`)
  const digest = await sha256(file)
  if (digest !== expected.digest) throw new Error(`the file's SHA-256 is ${digest} instead of ${expected.digest}`)
}

/**
 * The file's SHA-256. A large model takes many seconds to read, so the answer is kept in the cache beside the file's
 * size, inode and time, and read again only where one of them changed.
 */
export async function digestOf(directory: string, path: string): Promise<string> {
  const [digest, ...known] = (await ifPresent(readFile(digestNote(directory, path), 'utf8')) ?? '').split('\n')
  if (digest !== undefined && known.join('\n') === await markOf(path)) return digest
  const fresh = await sha256(path)
  await noteDigest(directory, path, fresh)
  return fresh
}

/** For a file whose digest is known already. */
export async function noteDigest(directory: string, path: string, digest: string): Promise<void> {
  const mark = await markOf(path)
  await publish(digestNote(directory, path), null, (file) => writeFile(file, `${digest}\n${mark}`))
  const notes = (await readdir(directory)).filter((name) => name.startsWith(`${DIGEST_NOTE}-`)).map((name) => join(directory, name))
  if (notes.length > DIGESTS_MAX) await forgetOldest(notes, notes.length - DIGESTS_MAX)
}

/** Another process may forget the same. */
async function forgetOldest(files: readonly string[], count: number): Promise<void> {
  const aged = await Promise.all(files.map(async (file) => ({ file, atMs: (await ifPresent(stat(file)))?.mtimeMs ?? 0 })))
  const oldest = aged.sort((a, b) => a.atMs - b.atMs).slice(0, count)
  await Promise.all(oldest.map(({ file }) => rm(file, { force: true })))
}

export async function forgetDigest(directory: string, path: string): Promise<void> {
  await rm(digestNote(directory, path), { force: true })
}

/** Names a file of the cache that says something of the file at `path`. */
export const noteName = (kind: string, path: string): string =>
  `${kind}-${createHash('sha256').update(path).digest('hex').slice(0, 24)}`

const digestNote = (directory: string, path: string): string => join(directory, noteName(DIGEST_NOTE, path))

async function markOf(path: string): Promise<string> {
  const { size, mtimeMs, ino } = await stat(path)
  return `${path}\n${size} ${mtimeMs} ${ino}`
}

/** Null where there is no such file; every other fault stays one. */
export async function ifPresent<T>(asked: Promise<T>): Promise<T | null> {
  try {
    return await asked
  } catch (thrown) {
    if (thrown instanceof Error && 'code' in thrown && thrown.code === 'ENOENT') return null
    throw thrown
  }
}

async function sha256(path: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer)
  return hash.digest('hex')
}
