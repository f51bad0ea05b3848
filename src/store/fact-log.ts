/** Owns the driver's log over a disk: what waits is written before anything is read, and pages keep memory small. */
import type { Logged } from '../core/fact.ts'
import type { FactLog } from '../driver/ports.ts'
import type { Disk } from './disk.ts'
import type { WriteBehind } from './write-behind.ts'

/** Facts read at a time; the log itself is never in memory as a whole. */
const PAGE_FACTS = 1_000

export function factLog(disk: Disk, behind: WriteBehind): FactLog {
  return {
    append: (facts, barrier, durable) => behind.append(facts, barrier, durable),
    read: () => everyFact(disk, behind),
    nextReign: () => {
      behind.flush()
      return disk.nextReign()
    },
  }
}

function* everyFact(disk: Disk, behind: WriteBehind): Generator<Logged> {
  behind.flush()
  for (let last = -1; ;) {
    const page = disk.facts(last, PAGE_FACTS)
    yield* page
    const end = page.at(-1)
    if (end === undefined) return
    last = end.seq
  }
}
