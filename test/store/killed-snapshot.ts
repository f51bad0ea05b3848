/** The thread in which the killed writer's snapshots are made, large enough that a kill finds them half written. */
import { serveThread } from '../../src/store/snapshot-thread.ts'
import { nextAfter, snapshotAfter } from './made-up-snapshot.ts'

await serveThread(nextAfter((seq) => snapshotAfter(seq)))
