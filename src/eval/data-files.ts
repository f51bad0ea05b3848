/** Owns where the package's `data/` is, from a checkout, from `dist/` and from an installed tarball alike. */
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

/** Reads JSON below `data/`. What is in it is ours and tested, so its shape is trusted. */
export function readData<T>(...path: readonly string[]): T {
  return JSON.parse(readFileSync(join(packageRoot(), 'data', ...path), 'utf8')) as T
}

/** Reads a file below `data/` that holds one JSON value a line; for what has a shape to be checked. */
export const readDataLines = (...path: readonly string[]): readonly unknown[] =>
  readFileSync(join(packageRoot(), 'data', ...path), 'utf8').split('\n').filter((line) => line !== '').map((line) => JSON.parse(line) as unknown)

function packageRoot(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    if (isOurs(join(folder, 'package.json'))) return folder
    if (folder === dirname(folder)) throw new Error('the entracte package that this file belongs to was not found')
  }
}

function isOurs(path: string): boolean {
  if (!existsSync(path)) return false
  const content: unknown = JSON.parse(readFileSync(path, 'utf8'))
  return typeof content === 'object' && content !== null && 'name' in content && content.name === 'entracte'
}
