/** Owns making files cold: what was written a moment ago is read from memory otherwise, wherever it lies. */
import { execFileSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** Why files of the temporary folder cannot be made cold here; null where they can. */
export function whyWarm(): string | null {
  if (process.platform !== 'linux') return 'only on Linux is a file told to leave memory'
  const kind = execFileSync('stat', ['-f', '-c', '%T', tmpdir()], { encoding: 'utf8' }).trim()
  return kind === 'tmpfs' ? `the temporary folder ${tmpdir()} lies in memory: set TMPDIR to one on a disk` : null
}

/** Writes every file of the folder to its disk and lets the kernel forget its pages. */
export function makeCold(folder: string): void {
  for (const entry of readdirSync(folder, { withFileTypes: true, recursive: true })) {
    if (!entry.isFile()) continue
    execFileSync('dd', [`of=${join(entry.parentPath, entry.name)}`, 'oflag=nocache', 'conv=notrunc,fdatasync', 'count=0'], { stdio: ['ignore', 'ignore', 'pipe'] })
  }
}
