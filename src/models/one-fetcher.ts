/**
 * Owns that several processes which need the same file fetch it once. It saves work and nothing else: where the lock
 * fails them, both fetch, and publishing keeps both files whole.
 */
import { readFile, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { ifPresent } from './cache.ts'

const LOOK_AGAIN_MS = 250
/** A holder that shows no life for this long is not waited for. */
const HOLDER_AGE_MAX_MS = 15 * 60_000
const SIGN_OF_LIFE_MS = 60_000

/** Runs `fetch` alone; whoever had to wait first asks `found` whether there is anything left to do. */
export async function oneFetcher<T>(
  lock: string, signal: AbortSignal | undefined, found: () => Promise<T | null>, fetch: () => Promise<T>,
): Promise<T> {
  while (!await take(lock)) {
    await pause(LOOK_AGAIN_MS, undefined, signal === undefined ? {} : { signal })
    const there = await found()
    if (there !== null) return there
  }
  const life = setInterval(() => { void ifPresent(utimes(lock, new Date(), new Date())) }, SIGN_OF_LIFE_MS)
  try {
    return await found() ?? await fetch()
  } finally {
    clearInterval(life)
    await rm(lock, { force: true })
  }
}

async function take(lock: string): Promise<boolean> {
  try {
    await writeFile(lock, String(process.pid), { flag: 'wx' })
    return true
  } catch (thrown) {
    if (!(thrown instanceof Error && 'code' in thrown && thrown.code === 'EEXIST')) throw thrown
  }
  const held = await ifPresent(stat(lock))
  const holder = Number(await ifPresent(readFile(lock, 'utf8')) ?? '0')
  if (held === null) return false
  if ((holder > 0 && !isAlive(holder)) || Date.now() - held.mtimeMs > HOLDER_AGE_MAX_MS) await rm(lock, { force: true })
  return false
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (thrown) {
    return thrown instanceof Error && 'code' in thrown && thrown.code === 'EPERM'
  }
}
