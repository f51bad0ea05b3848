/** The thread in which the snapshots of `contract.ts` are made. */
import { serveThread } from '../../src/store/snapshot-thread.ts'
import { nextAfter, snapshotOf } from './made-up-snapshot.ts'

await serveThread(nextAfter(snapshotOf))
