/**
 * Owns the making of a snapshot from what is on disk: the newest whole one, the facts after it, the next one written and
 * read back. The log is the truth and whoever reads it gets the same state, so this needs nothing of the process that
 * serves: it runs in a thread of its own (`snapshot-thread.ts`), and no turn waits for it.
 */
import type { Logged } from '../core/fact.ts'
import type { Snapshot } from '../core/snapshot.ts'
import type { Us } from '../core/units.ts'
import type { Disk } from './disk.ts'
import { factsAfter } from './fact-pages.ts'
import type { SnapshotFiles } from './snapshot-files.ts'
import { parsed, piecesOf } from './snapshot-text.ts'

/** The snapshot after the last of these facts; null: there is none before them. Throws where one is missing among them. */
export type NextSnapshot = (base: Snapshot | null, facts: Iterable<Logged>) => Snapshot

/** Both that are named were read back whole. */
export interface Made {
  readonly seq: number
  readonly atUs: Us
  /** The one it was made from: to fall back on. */
  readonly fallback: number | null
  readonly damaged: readonly { readonly seq: number; readonly why: string }[]
}

/** Null where nothing has happened since the last. Rejects, and leaves nothing new, where it cannot be made or does not read back as it was written. */
export async function makeSnapshot(disk: Pick<Disk, 'facts'>, files: SnapshotFiles, next: NextSnapshot): Promise<Made | null> {
  const damaged: { seq: number; why: string }[] = []
  let base: Snapshot | null = null
  for (const seq of files.seqs()) {
    const found = parsed(seq, files.read(seq))
    if (typeof found !== 'string') {
      base = found
      break
    }
    damaged.push({ seq, why: found })
  }
  const snapshot = next(base, factsAfter(disk, base?.seq ?? -1))
  const { seq, atUs } = snapshot
  if (seq === base?.seq) return null
  await files.write(seq, piecesOf(snapshot))
  const again = parsed(seq, files.read(seq))
  if (typeof again === 'string') {
    files.drop(seq)
    throw new Error(`it was written, and then ${again}`)
  }
  return { seq, atUs, fallback: base?.seq ?? null, damaged }
}
