/**
 * Owns the pid file of an engine process, and with it the law that an engine of an earlier control plane is gone before
 * a new one starts on its memory. An orphan ends by itself when its socket closes; one that does not is killed after
 * its lease. A pid is only taken for ours where the process's command line names our socket: pids are used again.
 */
import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

const LOOK_EVERY_MS = 50
/** Names the folder of a socket. */
export const SOCKET_DIR_PREFIX = 'entr-'
/** A killed process is gone in this time, or never. */
const KILLED_MS_MAX = 5_000

interface Mark { readonly pid: number; readonly socket: string }

export function markProcess(pidFile: string, mark: Mark): void {
  mkdirSync(dirname(pidFile), { recursive: true })
  writeFileSync(`${pidFile}.part`, JSON.stringify(mark), { mode: 0o600 })
  renameSync(`${pidFile}.part`, pidFile)
}

export function unmarkProcess(pidFile: string): void {
  rmSync(pidFile, { force: true })
}

/** Resolves once no process of an earlier control plane is left; with why not, where one cannot be ended. */
export async function awaitOrphan(pidFile: string, leaseMs: number): Promise<string | null> {
  const mark = readMark(pidFile)
  if (mark !== null && !(await isGone(mark, leaseMs))) {
    if (process.platform === 'win32') return `process ${mark.pid} may be an engine of an earlier control plane: end it`
    if (await isOurs(mark)) process.kill(mark.pid, 'SIGKILL')
    if (!(await isGone(mark, KILLED_MS_MAX))) {
      return `process ${mark.pid}, an engine of an earlier control plane, cannot be killed`
    }
  }
  unmarkProcess(pidFile)
  const dir = mark === null ? '' : dirname(mark.socket)
  if (basename(dir).startsWith(SOCKET_DIR_PREFIX)) rmSync(dir, { recursive: true, force: true })
  return null
}

function readMark(pidFile: string): Mark | null {
  try {
    const { pid, socket } = JSON.parse(readFileSync(pidFile, 'utf8')) as Partial<Mark>
    const isWhole = typeof pid === 'number' && Number.isSafeInteger(pid) && pid > 1 && typeof socket === 'string'
    return isWhole && socket !== '' ? { pid, socket } : null
  } catch (error) {
    // None was left, or its writer was killed half-way through another life: then it marks nothing.
    if (error instanceof SyntaxError || (error instanceof Error && 'code' in error && error.code === 'ENOENT')) {
      return null
    }
    throw error
  }
}

async function isGone(mark: Mark, withinMs: number): Promise<boolean> {
  const endMs = performance.now() + withinMs
  while (await isOurs(mark)) {
    if (performance.now() >= endMs) return false
    await sleep(LOOK_EVERY_MS)
  }
  return true
}

async function isOurs({ pid, socket }: Mark): Promise<boolean> {
  if (!isAlive(pid)) return false
  if (process.platform === 'win32') return true
  return (await commandLine(pid)).includes(socket)
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    // It exists and belongs to somebody else: never ours.
    if (error instanceof Error && 'code' in error && (error.code === 'ESRCH' || error.code === 'EPERM')) return false
    throw error
  }
}

/** Empty for a process that has ended and that nobody has waited for. */
function commandLine(pid: number): Promise<string> {
  if (process.platform === 'linux') return Promise.resolve(readCommandLine(pid))
  return new Promise((resolve) => {
    execFile('ps', ['-ww', '-o', 'command=', '-p', String(pid)], (error, stdout) => {
      resolve(error === null ? stdout : '')
    })
  })
}

function readCommandLine(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ESRCH')) return ''
    throw error
  }
}
