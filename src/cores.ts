/**
 * Owns how many cores we may compute on, which is how many threads an embedded engine takes where the configuration says
 * nothing, as llama.cpp's own server does: the second of two processors that share a core adds little, and is left to
 * everybody else.
 */
import { readFileSync } from 'node:fs'
import { availableParallelism, cpus } from 'node:os'

export const CORES = coresOf()

/** Where nobody says which processors share one, half of many do, as they mostly do. */
function coresOf(): number {
  const processors = availableParallelism()
  if (process.platform === 'darwin' || processors <= 4) return processors
  const siblings = new Set<string>()
  try {
    for (let processor = 0; processor < cpus().length; processor++) {
      siblings.add(readFileSync(`/sys/devices/system/cpu/cpu${processor}/topology/thread_siblings_list`, 'utf8'))
    }
  } catch {
    // Not Linux, or a container that does not show it.
    return processors >> 1
  }
  return Math.min(processors, siblings.size)
}
