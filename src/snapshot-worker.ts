/** Owns the entry of the thread that makes snapshots: what `main.ts` is for the serving thread. */
import { nextSnapshot } from './driver/recover.ts'
import { serveThread } from './store/snapshot-thread.ts'

await serveThread(nextSnapshot)
