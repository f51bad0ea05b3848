/**
 * Owns the one contact with `libsql`: statements, transactions, values in and out. Its oddities end here: blobs come
 * back as ArrayBuffer, a lone object is taken for named parameters, rows are untyped. What the tables mean is for
 * others.
 */
import Libsql from 'libsql'
import { reason, StoreError } from './store-error.ts'

type Value = string | number | null | Uint8Array

const BUSY_WAIT_MS = 5_000

export class Database {
  readonly path: string
  readonly #connection: Libsql.Database

  constructor(path: string, busyWaitMs = BUSY_WAIT_MS) {
    this.path = path
    this.#connection = attempt(path, () => new Libsql(path, { timeout: busyWaitMs }))
  }

  execute(sql: string): void {
    attempt(this.path, () => this.#connection.exec(sql))
  }

  prepare(sql: string): Statement {
    return new Statement(this.path, attempt(this.path, () => this.#connection.prepare(sql)))
  }

  /** All of it or nothing of it, on disk before this returns. */
  transaction(work: () => void): void {
    this.execute('BEGIN IMMEDIATE')
    try {
      work()
      this.execute('COMMIT')
    } catch (thrown) {
      // Where the disk failed, SQLite may have rolled back by itself; to do it again would hide the first error.
      if (this.#connection.inTransaction) this.execute('ROLLBACK')
      throw thrown
    }
  }

  close(): void {
    this.#connection.close()
  }
}

export class Statement {
  readonly #path: string
  readonly #statement: Libsql.Statement

  constructor(path: string, statement: Libsql.Statement) {
    this.#path = path
    this.#statement = statement
  }

  run(...values: Value[]): void {
    attempt(this.#path, () => this.#statement.run(values))
  }

  all(...values: Value[]): readonly Row[] {
    const rows = attempt(this.#path, () => this.#statement.all(values))
    return rows.map((row) => new Row(this.#path, row))
  }

  first(...values: Value[]): Row | null {
    return this.all(...values)[0] ?? null
  }
}

/** One row; a column of another type than asked for is damage, not a bug. */
class Row {
  readonly #path: string
  readonly #columns: Readonly<Record<string, unknown>>

  constructor(path: string, row: unknown) {
    this.#path = path
    this.#columns = row as Readonly<Record<string, unknown>>
  }

  text(column: string): string {
    const value = this.#columns[column]
    return typeof value === 'string' ? value : this.#damaged(column, 'text')
  }

  integer(column: string): number {
    const value = this.#columns[column]
    return typeof value === 'number' && Number.isSafeInteger(value) ? value : this.#damaged(column, 'an integer')
  }

  blob(column: string): Uint8Array {
    const value = this.#columns[column]
    return value instanceof ArrayBuffer ? new Uint8Array(value) : this.#damaged(column, 'bytes')
  }

  #damaged(column: string, wanted: string): never {
    throw corrupt(this.#path, `its column ${column} does not hold ${wanted}`)
  }
}

export function corrupt(path: string, why: string, cause?: unknown): StoreError {
  return new StoreError('store_corrupt', `The database ${path} is damaged: ${why}.`,
    'put back a copy of its folder, or move the folder away to begin anew.', cause)
}

/** True where another connection holds what was asked for. */
export const isBusy = (thrown: unknown): boolean =>
  thrown instanceof StoreError && sqliteCode(thrown.cause).startsWith('SQLITE_BUSY')

const sqliteCode = (thrown: unknown): string =>
  thrown instanceof Error && 'code' in thrown && typeof thrown.code === 'string' ? thrown.code : ''

function attempt<T>(path: string, work: () => T): T {
  try {
    return work()
  } catch (thrown) {
    const code = sqliteCode(thrown)
    if (/^SQLITE_(CORRUPT|NOTADB)/.test(code)) throw corrupt(path, reason(thrown), thrown)
    throw new StoreError('store_failed', `The database ${path} refused: ${reason(thrown)}.`,
      'see that its disk is there, writable and not full, and start again.', thrown)
  }
}
