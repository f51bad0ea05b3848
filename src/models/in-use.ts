/**
 * Owns who of this machine serves a model file now: a note in the cache for each process and file. A note whose process
 * is gone says nothing and is cleared by whoever reads it. Processes of other containers are not seen.
 */
import { readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { noteName } from './cache.ts'
import { isAlive } from './one-fetcher.ts'

const noteOf = (directory: string, path: string, pid: number): string =>
  join(directory, `${noteName('use', path)}-${pid}`)

/** Until the function given back is called, or the process ends. Notes of others that were killed are cleared. */
export function markInUse(directory: string, path: string): () => void {
  usersOf(directory, path)
  const note = noteOf(directory, path, process.pid)
  writeFileSync(note, path)
  return () => rmSync(note, { force: true })
}

/** Process numbers. */
export function usersOf(directory: string, path: string): readonly number[] {
  const prefix = `${noteName('use', path)}-`
  return readdirSync(directory).filter((name) => name.startsWith(prefix)).flatMap((name) => {
    const pid = Number(name.slice(prefix.length))
    if (isAlive(pid)) return [pid]
    rmSync(join(directory, name), { force: true })
    return []
  })
}
