/** Owns the driver's log over a disk: what waits is written before anything is read, and pages keep memory small. */
import type { Logged } from '../core/fact.ts'
import type { FactLog } from '../driver/ports.ts'
import type { Disk } from './disk.ts'
import type { Snapshots } from './snapshots.ts'
import type { WriteBehind } from './write-behind.ts'

/** Facts read at a time; the log itself is never in memory as a whole. */
const PAGE_FACTS = 256

export function factLog(disk: Disk, behind: WriteBehind, snapshots: Snapshots): FactLog {
  return {
    append: (facts, barrier, durable) => behind.append(facts, barrier, durable),
    read: (afterSeq = -1) => everyFact(disk, behind, afterSeq),
    snapshots: () => snapshots.whole(),
    snapshot: (take) => snapshots.take(take),
    nextReign: () => {
      behind.flush()
      return disk.nextReign()
    },
  }
}

function* everyFact(disk: Disk, behind: WriteBehind, afterSeq: number): Generator<Logged> {
  behind.flush()
  for (let last = afterSeq; ;) {
    const page = disk.facts(last, PAGE_FACTS)
    yield* page
    const end = page.at(-1)
    if (end === undefined) return
    last = end.seq
  }
}
