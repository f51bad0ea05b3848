/** Owns where things are in a checkout: the build these scripts were emitted into, and the sources it came from. */
import { existsSync, readdirSync, rmSync } from 'node:fs'
import { join, relative } from 'node:path'

/** The build: scripts run from `<build>/scripts/`. */
export const buildFolder = join(import.meta.dirname, '..')
const sourceFolder = join(buildFolder, '..')

const BUILT = ['src', 'test', 'bench', 'scripts', 'examples']

function filesBelow(folder: string, ending: string): string[] {
  if (!existsSync(folder)) return []
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(ending))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
}

/** Removes what was built of sources that are gone: the compiler leaves it, and a stale test would run for ever. */
export function removeStale(): string[] {
  if (!existsSync(join(sourceFolder, 'tsconfig.json'))) return []
  const stale = BUILT.flatMap((folder) => filesBelow(join(buildFolder, folder), '.js'))
    .filter((built) => !existsSync(join(sourceFolder, relative(buildFolder, built)).replace(/\.js$/, '.ts')))
  for (const built of stale) rmSync(built)
  return stale
}

export const testFiles = (): string[] => filesBelow(join(buildFolder, 'test'), '.test.js')
