/** Owns a server that a bench starts as a process of its own: until it serves, and its end, also where the bench ends first. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** A larger model is probed before it counts as ready, which on a busy machine takes minutes. */
const READY_MS_MAX = 900_000
const STOP_MS_MAX = 10_000
const POLL_MS = 100
const LAST_WORDS_CHARS = 2_000

export interface ServerProcess {
  readonly pid: number
  close(): Promise<void>
}

/** Resolves once `isReady` says so. Rejects with its last words where it ends before, or where `signal` calls it off. */
export async function startProcess(
  program: string, args: readonly string[], isReady: () => Promise<boolean>, signal: AbortSignal, pollMs = POLL_MS,
): Promise<ServerProcess> {
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] })
  let words = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => { words = (words + text).slice(-LAST_WORDS_CHARS) })
  const hasEnded = (): boolean => child.exitCode !== null || child.signalCode !== null
  const kill = (): void => void child.kill('SIGKILL')
  process.once('exit', kill)
  const close = async (): Promise<void> => {
    process.off('exit', kill)
    if (hasEnded()) return
    const gone = once(child, 'exit')
    child.kill('SIGTERM')
    const timer = setTimeout(kill, STOP_MS_MAX)
    await gone
    clearTimeout(timer)
  }
  try {
    const untilMs = performance.now() + READY_MS_MAX
    while (!await isReady()) {
      if (hasEnded()) throw new Error(`${program} ended before it served: ${words}`)
      if (performance.now() > untilMs) throw new Error(`${program} did not serve within ${READY_MS_MAX / 1_000} s: ${words}`)
      await sleep(pollMs, undefined, { signal })
    }
    return { pid: child.pid ?? 0, close }
  } catch (error) {
    await close()
    throw error
  }
}

/** What a server answers; null while it does not, or answers with an error. */
export async function answerOf(url: string, key: string | null = null): Promise<unknown> {
  try {
    const response = await fetch(url, { headers: key === null ? {} : { authorization: `Bearer ${key}` } })
    return response.ok ? await response.json() as unknown : null
  } catch {
    // Until it listens, connections are refused.
    return null
  }
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}
