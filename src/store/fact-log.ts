/** Owns the driver's log over a disk: what waits is written before anything is read. */
import type { FactLog } from '../driver/ports.ts'
import type { Disk } from './disk.ts'
import { factsAfter } from './fact-pages.ts'
import type { Snapshots } from './snapshots.ts'
import type { WriteBehind } from './write-behind.ts'

export function factLog(disk: Disk, behind: WriteBehind, snapshots: Snapshots): FactLog {
  return {
    append: (facts, barrier, durable) => behind.append(facts, barrier, durable),
    read: (afterSeq = -1) => {
      behind.flush()
      return factsAfter(disk, afterSeq)
    },
    snapshots: () => snapshots.whole(),
    snapshot: () => snapshots.take(),
    nextReign: () => {
      behind.flush()
      return disk.nextReign()
    },
  }
}
