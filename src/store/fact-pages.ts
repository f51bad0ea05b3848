/** Owns the reading of what is in the log on disk, oldest first; pages keep memory small. */
import type { Logged } from '../core/fact.ts'
import type { Disk } from './disk.ts'

/** Facts read at a time; the log itself is never in memory as a whole. */
const PAGE_FACTS = 256

export function* factsAfter(disk: Pick<Disk, 'facts'>, afterSeq: number): Generator<Logged> {
  for (let last = afterSeq; ;) {
    const page = disk.facts(last, PAGE_FACTS)
    yield* page
    const end = page.at(-1)
    if (end === undefined) return
    last = end.seq
  }
}
