/**
 * Owns the tables: facts, bodies, images and a few named values, in one SQLite file (WAL, synchronous FULL), so that
 * one transaction makes a turn durable. What is due when is `write-behind.ts`'s; what a fact means is the core's.
 */
import { closeSync, openSync } from 'node:fs'
import { join } from 'node:path'
import type { Fact, Logged } from '../core/fact.ts'
import { bodyId, moveId, type BodyId, type MoveId } from '../core/ids.ts'
import type { Bytes, Us } from '../core/units.ts'
import { BodyCipher, makeKey, readKey } from './body-cipher.ts'
import { corrupt, Database, type Statement } from './database.ts'
import type { Batch, Disk, FoundBody, Image } from './disk.ts'
import { StoreError } from './store-error.ts'

const DATABASE_FILE = 'entracte.db'
const KEY_FILE = 'bodies.key'
const SCHEMA_VERSION = 1

/** `program` is there for people who look with `sqlite3`; everything is in the payload. */
const SCHEMA = `
  CREATE TABLE facts (
    seq INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, version INTEGER NOT NULL, kind TEXT NOT NULL, program TEXT,
    payload TEXT NOT NULL
  ) STRICT;
  CREATE TABLE bodies (
    turn INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tenant TEXT NOT NULL, bytes INTEGER NOT NULL,
    sealed BLOB NOT NULL
  ) STRICT;
  CREATE TABLE images (id TEXT PRIMARY KEY, bytes INTEGER NOT NULL, digest TEXT NOT NULL, created TEXT NOT NULL) STRICT;
  CREATE TABLE named (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
  PRAGMA user_version = ${SCHEMA_VERSION};`

export class SqliteDisk implements Disk {
  readonly #database: Database
  readonly #sql: Statements
  readonly #cipher: BodyCipher

  constructor(dataDir: string) {
    this.#database = open(join(dataDir, DATABASE_FILE))
    try {
      this.#sql = statements(this.#database)
      this.#cipher = this.#openCipher(join(dataDir, KEY_FILE))
    } catch (thrown) {
      this.#database.close()
      throw thrown
    }
  }

  commit(batch: Batch): void {
    const { putFact, dropBody, putBody, dropImage, putImage } = this.#sql
    this.#database.transaction(() => {
      for (const { seq, atUs, version, fact } of batch.facts) {
        putFact.run(seq, atUs, version, fact.kind, programOf(fact), JSON.stringify(fact))
      }
      for (const [id, body] of batch.bodies) {
        dropBody.run(id)
        if (body === null) continue
        putBody.run(id, body.tenant, body.bytes.length, this.#cipher.seal(id, body.tenant, body.bytes))
      }
      for (const [id, image] of batch.images) {
        if (image === null) dropImage.run(id)
        else putImage.run(id, image.bytes, image.digest, new Date().toISOString())
      }
    })
  }

  facts(afterSeq: number, limit: number): readonly Logged[] {
    const page = this.#sql.factPage.first(afterSeq, limit)?.text('page') ?? '[]'
    try {
      return JSON.parse(page) as readonly Logged[]
    } catch (thrown) {
      throw this.#damagedFact(afterSeq, limit, thrown)
    }
  }

  body(id: BodyId): FoundBody | null {
    const row = this.#sql.body.first(id)
    if (row === null) return null
    const bytes = this.#cipher.open(id, row.text('tenant'), row.blob('sealed'))
    return bytes === null ? { kind: 'damaged', why: 'its bytes on disk were changed' } : { kind: 'whole', bytes }
  }

  bodySizes(): readonly { readonly id: BodyId; readonly bytes: Bytes }[] {
    const sizes = JSON.parse(this.#sql.bodySizes.first()?.text('sizes') ?? '[]') as readonly (readonly [string, Bytes])[]
    return sizes.map(([id, bytes]) => ({ id: bodyId(id), bytes }))
  }

  images(): readonly (Image & { readonly id: MoveId })[] {
    return this.#sql.images.all()
      .map((row) => ({ id: moveId(row.text('id')), bytes: row.integer('bytes'), digest: row.text('digest') }))
  }

  trim(upToSeq: number, beforeUs: Us, limit: number): number {
    const { oldFacts, dropFacts } = this.#sql
    const old = oldFacts.all(upToSeq, beforeUs, limit)
    const last = old.at(-1)?.integer('seq')
    if (last !== undefined) this.#database.transaction(() => dropFacts.run(last))
    return old.length
  }

  nextReign(): number {
    const reign = Number(this.#named('reign') ?? '0') + 1
    if (!Number.isSafeInteger(reign)) throw corrupt(this.#database.path, 'its reign is not a number')
    this.#name('reign', String(reign))
    return reign
  }

  close(): void {
    this.#database.close()
  }

  /** The page is not JSON: the first of its facts that is not is to blame. */
  #damagedFact(afterSeq: number, limit: number, cause: unknown): StoreError {
    const damaged = this.#sql.facts.all(afterSeq, limit).find((row) => !isJson(row.text('payload')))
    const which = damaged === undefined ? `a fact after ${afterSeq}` : `fact ${damaged.integer('seq')}`
    return corrupt(this.#database.path, `${which} cannot be read`, cause)
  }

  /** The key that the bodies were sealed with; a new one only where there is no body yet. */
  #openCipher(path: string): BodyCipher {
    const known = this.#named('body_key')
    const there = readKey(path)
    const isLost = known !== null && (there === null || new BodyCipher(there).mark !== known)
    if (isLost && this.bodySizes().length > 0) {
      throw new StoreError('body_key_lost',
        `The bodies in ${this.#database.path} were sealed with a key that is not in ${path}.`,
        'put the right key file back, or move the whole folder away to begin anew.')
    }
    const cipher = new BodyCipher(there ?? makeKey(path))
    if (cipher.mark !== known) this.#name('body_key', cipher.mark)
    return cipher
  }

  #named(name: string): string | null {
    return this.#sql.named.first(name)?.text('value') ?? null
  }

  #name(name: string, value: string): void {
    this.#database.transaction(() => this.#sql.name.run(name, value))
  }
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text)
    return true
  } catch (thrown) {
    if (thrown instanceof SyntaxError) return false
    throw thrown
  }
}

/** One text for a page of facts: read so, a fact costs less than half of what it costs as a row and a text of its own. */
const FACT_PAGE = `
  SELECT '[' || coalesce(group_concat(
    '{"seq":' || seq || ',"atUs":' || at_us || ',"version":' || version || ',"fact":' || payload || '}'
  ), '') || ']' AS page
  FROM (SELECT seq, at_us, version, payload FROM facts WHERE seq > ? ORDER BY seq LIMIT ?)`

const programOf = (fact: Fact): string | null => ('program' in fact ? fact.program : null)

type Statements = ReturnType<typeof statements>

function statements(database: Database) {
  const prepare = (sql: string): Statement => database.prepare(sql)
  return {
    putFact: prepare('INSERT INTO facts (seq, at_us, version, kind, program, payload) VALUES (?, ?, ?, ?, ?, ?)'),
    factPage: prepare(FACT_PAGE),
    facts: prepare('SELECT seq, payload FROM facts WHERE seq > ? ORDER BY seq LIMIT ?'),
    oldFacts: prepare('SELECT seq FROM facts WHERE seq <= ? AND at_us < ? ORDER BY seq LIMIT ?'),
    dropFacts: prepare('DELETE FROM facts WHERE seq <= ?'),
    putBody: prepare('INSERT INTO bodies (id, tenant, bytes, sealed) VALUES (?, ?, ?, ?)'),
    dropBody: prepare('DELETE FROM bodies WHERE id = ?'),
    body: prepare('SELECT tenant, sealed FROM bodies WHERE id = ?'),
    bodySizes: prepare('SELECT json_group_array(json_array(id, bytes)) AS sizes FROM (SELECT id, bytes FROM bodies ORDER BY turn)'),
    putImage: prepare('INSERT OR REPLACE INTO images (id, bytes, digest, created) VALUES (?, ?, ?, ?)'),
    dropImage: prepare('DELETE FROM images WHERE id = ?'),
    images: prepare('SELECT id, bytes, digest FROM images ORDER BY id'),
    named: prepare('SELECT value FROM named WHERE name = ?'),
    name: prepare('INSERT OR REPLACE INTO named (name, value) VALUES (?, ?)'),
  }
}

function open(path: string): Database {
  // SQLite gives its other files the rights of this one.
  closeSync(openSync(path, 'a', 0o600))
  const database = new Database(path)
  try {
    database.execute('PRAGMA journal_mode = WAL')
    database.execute('PRAGMA synchronous = FULL')
    const version = database.prepare('PRAGMA user_version').first()?.integer('user_version') ?? 0
    if (version === 0) database.transaction(() => database.execute(SCHEMA))
    if (version > SCHEMA_VERSION) {
      throw new StoreError('store_newer',
        `${path} was written by a newer release (its tables are version ${version}, ours ${SCHEMA_VERSION}).`,
        'run that release or a newer one.')
    }
    return database
  } catch (thrown) {
    database.close()
    throw thrown
  }
}
