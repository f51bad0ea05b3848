/** Owns a data directory that lasts for a bench: below the working directory, since that is where a server's lies. */
import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { openStore, type Store, type StoreOptions } from '../src/store/store.ts'

export interface Scratch {
  readonly folder: string
  /** `makeSnapshot`: as the store's option. */
  open(makeSnapshot?: StoreOptions['makeSnapshot']): Store
  remove(): void
}

export function scratch(): Scratch {
  const folder = mkdtempSync(resolve('.bench-'))
  return {
    folder,
    open: (makeSnapshot = null) => openStore(join(folder, 'data'), {
      onFailure: (error) => { throw error }, onLoss: ({ kind, id, why }) => { throw new Error(`${kind} ${id}: ${why}`) },
      digestFile: async (path) => createHash('sha256').update(path).digest('hex'), imagesDir: join(folder, 'images'), imageBytesMax: 1 << 30,
      bodyBytesMax: 2 ** 40, logRetentionUs: Number.MAX_SAFE_INTEGER, makeSnapshot,
    }),
    remove: () => rmSync(folder, { recursive: true, force: true }),
  }
}
