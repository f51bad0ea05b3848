/** Owns `entracte serve` as a process of its own, with folders that last as long as it does: what a bench of the door is measured on. */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { answerOf, freePort, startProcess } from './server-process.ts'

/** Memory-backed, so that a copy to host is one. */
const SHARED_MEMORY = '/dev/shm'
/** So that the collector has the same room as in every other bench. */
const NODE_FLAGS = ['--max-semi-space-size=64']
/** Between two looks whether a server that is timed is ready. */
const TIMED_POLL_MS = 10

export interface Served {
  /** Up to and without `/v1`. */
  readonly url: string
  readonly pid: number
  close(): Promise<void>
}

interface HowServed {
  /** A tenant's, where the configuration names some. */
  readonly key?: string
  /** As a user starts it, and resolved as soon as a call can be taken: its start is what is measured. */
  readonly timed?: boolean
}

interface Models {
  readonly data?: readonly { readonly entracte?: { readonly engines?: readonly { readonly exact?: { readonly answer?: string } }[] } }[]
}

/** `config`: as a file would say it, without folders and door. Resolves when its engine has joined and its probe answered. */
export async function serve(config: Readonly<Record<string, unknown>>, signal: AbortSignal, { key, timed = false }: HowServed = {}): Promise<Served> {
  const dataDir = mkdtempSync(join(tmpdir(), 'entracte-bench-'))
  const imagesDir = mkdtempSync(join(existsSync(SHARED_MEMORY) ? SHARED_MEMORY : tmpdir(), 'entracte-bench-'))
  const remove = (): void => { for (const folder of [dataDir, imagesDir]) rmSync(folder, { recursive: true, force: true }) }
  process.once('exit', remove)
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const file = join(dataDir, 'serve.yaml')
  writeFileSync(file, JSON.stringify({ dataDir, imagesDir, listen: { host: '127.0.0.1', port }, logLevel: 'silent', ...config }))
  const main = fileURLToPath(new URL('../src/cli/main.js', import.meta.url))
  const close = (): void => {
    process.off('exit', remove)
    remove()
  }
  try {
    const isReady = timed ? async () => await answerOf(`${url}/readyz`) !== null : () => isProven(url, key ?? null)
    const args = [...(timed ? [] : NODE_FLAGS), main, 'serve', '--config', file]
    const server = await startProcess(process.execPath, args, isReady, signal, timed ? TIMED_POLL_MS : undefined)
    return { url, pid: server.pid, close: () => server.close().finally(close) }
  } catch (error) {
    close()
    throw error
  }
}

/** Measured beside the probe of exactness, a server would look slow. */
async function isProven(url: string, key: string | null): Promise<boolean> {
  const models = await answerOf(`${url}/v1/models`, key) as Models | null
  const exact = models?.data?.[0]?.entracte?.engines?.[0]?.exact?.answer
  return exact !== undefined && exact !== 'unknown'
}
