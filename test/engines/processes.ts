/** Whether a process of a test is still there. */
import { readFileSync } from 'node:fs'

export function isAlive(pid: number): boolean {
  try {
    // Killed and not yet waited for is dead.
    return process.kill(pid, 0) && (process.platform !== 'linux' || readFileSync(`/proc/${pid}/stat`, 'utf8').split(' ')[2] !== 'Z')
  } catch (error) {
    if (error instanceof Error && 'code' in error && (error.code === 'ESRCH' || error.code === 'ENOENT')) return false
    throw error
  }
}
