/** Where the package's own files lie, from the sources as from the build. */
import { existsSync } from 'node:fs'

export function packageRoot(): URL {
  for (let folder = new URL('.', import.meta.url); folder.pathname !== '/'; folder = new URL('..', folder)) {
    if (existsSync(new URL('tsconfig.json', folder))) return folder
  }
  throw new Error('no tsconfig.json above this file')
}
