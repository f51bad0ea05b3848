/**
 * Owns which snapshots are kept and what a kept one must show before it is believed: its head, and the checksum of all of
 * it but its last line, which is the checksum. A damaged one is told, counted and passed over; the one before it, or the whole log, is
 * as good and only slower. Also owns the log's retention, since a fact is needed as long as a kept snapshot lacks it.
 *
 * N1 A snapshot holds nothing that the log on disk does not: what waits is written first.
 * N2 A fact goes only when every kept snapshot holds it and it is older than the log's retention.
 */
import { crc32 } from 'node:zlib'
import type { Snapshot } from '../core/snapshot.ts'
import type { Us } from '../core/units.ts'
import type { Loss } from './bodies.ts'
import type { Disk } from './disk.ts'
import type { SnapshotFiles } from './snapshot-files.ts'
import { reason } from './store-error.ts'
import type { WriteBehind } from './write-behind.ts'

/** The newest, and the one to fall back on. */
const SNAPSHOTS_KEPT = 2
/** Facts deleted in one transaction, so that no commit waits long for it. */
const TRIM_FACTS = 2_000
const NEWLINE = 0x0a

interface Head { readonly version: number; readonly seq: number; readonly atUs: Us }
interface Foot { readonly crc32: number }

export class Snapshots {
  readonly #disk: Disk
  readonly #files: SnapshotFiles
  readonly #behind: WriteBehind
  readonly #logRetentionUs: Us
  readonly #onLoss: (loss: Loss) => void
  #writing: Promise<void> | null = null
  #closed = false
  /** Snapshots that could not be read, and those that could not be written. */
  lost = 0

  constructor(disk: Disk, files: SnapshotFiles, behind: WriteBehind, logRetentionUs: Us, onLoss: (loss: Loss) => void) {
    this.#disk = disk
    this.#files = files
    this.#behind = behind
    this.#logRetentionUs = logRetentionUs
    this.#onLoss = onLoss
  }

  get count(): number {
    return this.#files.seqs().length
  }

  /** Whole ones, newest first; each is read when it is asked for. */
  *whole(): Generator<Snapshot> {
    for (const seq of this.#files.seqs()) {
      const snapshot = parsed(seq, this.#files.read(seq))
      if (typeof snapshot !== 'string') {
        yield snapshot
        continue
      }
      this.#lose(seq, snapshot)
      // Kept, it would stand for one to fall back on.
      this.#files.drop(seq)
    }
  }

  /** Begins to write it, unless the one before is still being written: then a later one will do. */
  take(make: () => Snapshot): void {
    if (this.#writing !== null || this.#closed) return
    if (!this.#behind.tryFlush()) return
    const snapshot = make()
    this.#writing = this.#write(snapshot).finally(() => { this.#writing = null })
  }

  /** Resolves when nothing is being written. */
  async close(): Promise<void> {
    this.#closed = true
    await this.#writing
  }

  async #write(snapshot: Snapshot): Promise<void> {
    try {
      await this.#files.write(snapshot.seq, piecesOf(snapshot))
      const [, ...older] = this.#files.seqs().filter((seq) => seq <= snapshot.seq)
      for (const seq of older.slice(SNAPSHOTS_KEPT - 1)) this.#files.drop(seq)
      await this.#trim(snapshot.atUs - this.#logRetentionUs)
    } catch (thrown) {
      this.#lose(snapshot.seq, `it could not be written: ${reason(thrown)}`)
    }
  }

  async #trim(beforeUs: Us): Promise<void> {
    const oldest = this.#files.seqs()[SNAPSHOTS_KEPT - 1]
    if (oldest === undefined) return
    while (this.#disk.trim(oldest, beforeUs, TRIM_FACTS) === TRIM_FACTS && !this.#closed) await this.#behind.soon()
  }

  #lose(seq: number, why: string): void {
    this.lost += 1
    this.#onLoss({ kind: 'snapshot', id: String(seq), why })
  }
}

/** A line of head, a line a text, a line of foot. JSON has no line breaks of its own. */
function* piecesOf({ version, seq, atUs, texts }: Snapshot): Generator<Uint8Array> {
  let crc = 0
  const line = (text: string): Uint8Array => {
    const bytes = Buffer.from(`${text}\n`)
    crc = crc32(bytes, crc)
    return bytes
  }
  const head: Head = { version, seq, atUs }
  yield line(JSON.stringify(head))
  for (const text of texts) yield line(text)
  const foot: Foot = { crc32: crc }
  yield Buffer.from(`${JSON.stringify(foot)}\n`)
}

/** What is wrong with it, or the snapshot. */
function parsed(seq: number, file: Uint8Array | null): Snapshot | string {
  if (file === null) return 'its file cannot be read'
  const bytes = Buffer.from(file.buffer, file.byteOffset, file.byteLength)
  const footAt = bytes.lastIndexOf(NEWLINE, bytes.length - 2) + 1
  const foot = record(bytes.toString('utf8', footAt))
  if (footAt === 0 || foot === null) return 'its end is missing'
  if (crc32(bytes.subarray(0, footAt)) !== foot['crc32']) return 'its bytes are not those that were written'
  const headEnd = bytes.indexOf(NEWLINE)
  const { version, atUs, ...rest } = record(bytes.toString('utf8', 0, headEnd)) ?? {}
  if (rest['seq'] !== seq) return 'it is not what its name says'
  if (typeof version !== 'number' || typeof atUs !== 'number') return 'its head is not whole'
  return { version, seq, atUs, texts: { [Symbol.iterator]: () => lines(bytes.subarray(headEnd + 1, footAt)) } }
}

/** One at a time: all of them at once would be as large as the file again. */
function* lines(bytes: Buffer): Generator<string> {
  for (let from = 0; from < bytes.length;) {
    const to = bytes.indexOf(NEWLINE, from)
    yield bytes.toString('utf8', from, to)
    from = to + 1
  }
}

function record(text: string): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? value as Readonly<Record<string, unknown>> : null
  } catch (thrown) {
    if (thrown instanceof SyntaxError) return null
    throw thrown
  }
}
