/**
 * Owns the thread that a snapshot is made in: one a snapshot, with a connection to the database of its own, gone when the
 * snapshot is there. While it works it holds the state a second time; the serving thread does nothing for it but wait.
 */
import { join } from 'node:path'
import { parentPort, Worker, workerData } from 'node:worker_threads'
import { SnapshotFolder } from './snapshot-files.ts'
import { makeSnapshot, type Made, type NextSnapshot } from './snapshot-maker.ts'
import { SqliteDisk } from './sqlite-disk.ts'

export const SNAPSHOTS_FOLDER = 'snapshots'

/** `script` calls `serveThread`. Rejects with what went wrong there, and where it is stopped: a part of a file is removed by who opens the folder next. */
export function inThread(script: URL): (dataDir: string, stop: AbortSignal) => Promise<Made | null> {
  return (dataDir, stop) => new Promise((resolve, reject) => {
    const thread = new Worker(script, { workerData: dataDir })
    const end = (): void => void thread.terminate()
    stop.addEventListener('abort', end, { once: true })
    thread.once('message', (made: Made | null) => resolve(made))
    thread.once('error', reject)
    thread.once('exit', () => stop.removeEventListener('abort', end))
    thread.once('exit', (code) => reject(new Error(`its thread ended with code ${code}`)))
  })
}

/** In the thread. */
export async function serveThread(next: NextSnapshot): Promise<void> {
  const dataDir = workerData as string
  const disk = new SqliteDisk(dataDir)
  try {
    parentPort?.postMessage(await makeSnapshot(disk, new SnapshotFolder(join(dataDir, SNAPSHOTS_FOLDER)), next))
  } finally {
    disk.close()
  }
}
