/**
 * Owns that one process at a time uses a data directory. The lock is one that the system holds for the process (a
 * SQLite lock on an empty file), so `kill -9` gives it back and no process number can be mistaken for another, also
 * between containers. A note beside it says who holds it, for the message only.
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { Database, isBusy } from './database.ts'
import { isFault, reason, StoreError } from './store-error.ts'

const LOCK_FILE = 'lock.db'
const NOTE_FILE = 'lock.json'

export class DataLock {
  readonly #database: Database
  readonly #note: string

  /** Throws `data_dir_in_use` where another process, or another store of this one, has it. */
  constructor(dataDir: string) {
    this.#note = join(dataDir, NOTE_FILE)
    this.#database = new Database(join(dataDir, LOCK_FILE), 0)
    try {
      this.#database.execute('BEGIN EXCLUSIVE')
    } catch (thrown) {
      this.#database.close()
      if (!isBusy(thrown)) throw thrown
      throw new StoreError('data_dir_in_use', `The data directory ${dataDir} is in use by ${holder(this.#note)}.`,
        'stop that process, or give this one another data directory.', thrown)
    }
    try {
      writeFileSync(this.#note, JSON.stringify({ pid: process.pid, host: hostname(), since: new Date().toISOString() }))
    } catch (thrown) {
      this.release()
      throw new StoreError('data_dir_unusable', `The data directory ${dataDir} cannot be written: ${reason(thrown)}.`,
        'give another data directory, or the rights and the space to write there.', thrown)
    }
  }

  release(): void {
    rmSync(this.#note, { force: true })
    this.#database.execute('ROLLBACK')
    this.#database.close()
  }
}

function holder(note: string): string {
  try {
    const { pid, host, since } = JSON.parse(readFileSync(note, 'utf8')) as Readonly<Record<string, unknown>>
    return `process ${String(pid)} on ${String(host)} since ${String(since)}`
  } catch (thrown) {
    // It holds the lock and has not written its note yet, or not whole.
    if (thrown instanceof SyntaxError || isFault(thrown, 'ENOENT')) return 'another process'
    throw thrown
  }
}
