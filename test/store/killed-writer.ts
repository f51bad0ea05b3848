/**
 * The process that `kill.test.ts` kills: appends without end and prints each number it was told is durable, and `s` when
 * another snapshot of its own is whole.
 */
import { writeSync } from 'node:fs'
import { dirname } from 'node:path'
import { bodyId, tenantId } from '../../src/core/ids.ts'
import { openStore } from '../../src/store/store.ts'
import { inThread } from '../../src/store/snapshot-thread.ts'
import { logged } from './facts.ts'

const data = process.argv[2] ?? ''
const store = openStore(data, {
  onFailure: (error) => { throw error }, onLoss: () => undefined, digestFile: async () => null,
  imagesDir: dirname(data), imageBytesMax: 0, bodyBytesMax: 1_000_000, logRetentionUs: 0,
  makeSnapshot: inThread(new URL('./killed-snapshot.js', import.meta.url)),
})
store.log.nextReign()
let next = ([...store.log.read()].at(-1)?.seq ?? -1) + 1
const newest = (): number => [...store.log.snapshots()][0]?.seq ?? -1
let known = newest()
const append = (): void => {
  if (newest() > known) writeSync(1, 's\n')
  known = newest()
  const last = next + 2
  store.bodies.put(bodyId('last'), tenantId('t'), Buffer.from(String(last)))
  store.log.append([logged(next), logged(next + 1), logged(last)], last % 2 === 0, () => writeSync(1, `${last}\n`))
  next += 3
  // Large enough that a kill finds it half written.
  if (last % 4 === 0) store.log.snapshot()
  setTimeout(append, last % 3)
}
append()
