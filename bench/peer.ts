/**
 * Owns the peer that the engine is measured beside: llama.cpp's own server of the release whose libraries the engine
 * loads. ENTRACTE_PEER names its program, or the folder that it was built into; else it is where `npm run peer` puts it.
 */
import { existsSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { cacheDirectory } from '../src/models/cache.ts'
import { CannotRun } from './bench.ts'
import { answerOf, freePort, startProcess } from './server-process.ts'

/** The folder that the project's script builds into. */
export const peerFolder = (): string => join(cacheDirectory(process.env), 'peer')

/** Where the build of that folder puts it. */
export const programIn = (folder: string): string => join(folder, 'llama.cpp', 'build', 'bin', 'llama-server')

/** Throws CannotRun where there is none. */
export function peerProgram(): string {
  const named = process.env['ENTRACTE_PEER'] ?? ''
  const isFolder = named !== '' && statSync(named, { throwIfNoEntry: false })?.isDirectory() === true
  const path = named === '' ? programIn(peerFolder()) : isFolder ? programIn(resolve(named)) : resolve(named)
  if (existsSync(path)) return path
  throw new CannotRun(`there is no llama-server at ${path}: build it with "npm run peer" (20 to 30 minutes on 2 processors, once), `
    + 'or name one of the same release in ENTRACTE_PEER')
}

interface Peer {
  /** Up to and without `/v1`. */
  readonly url: string
  readonly pid: number
  close(): Promise<void>
}

/** Resolves when it has loaded its model; `pollMs`: between two looks whether it has. */
export async function startPeer(modelPath: string, flags: readonly string[], signal: AbortSignal, pollMs?: number): Promise<Peer> {
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const args = ['-m', modelPath, '--host', '127.0.0.1', '--port', String(port), '--no-webui', ...flags]
  const { close, pid } = await startProcess(peerProgram(), args, async () => await answerOf(`${url}/health`) !== null, signal, pollMs)
  return { url, pid, close }
}
