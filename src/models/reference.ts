/**
 * Owns what a person may write for a model: `default`, `tiny`, the path of a GGUF file, `owner/repo[:file]` of the hub,
 * or the name of a file in the cache. Leaves to others whether there is such a model.
 */
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { DEFAULT_MODEL } from './default-model.ts'
import { TINY_MODEL } from './tiny-gguf.ts'

export type Reference =
  | { readonly kind: 'default' | 'tiny' }
  | { readonly kind: 'path'; readonly path: string }
  /** `file`: its path in the repository, or part of its name such as `Q4_K_M`; null: the only one. */
  | { readonly kind: 'hub'; readonly repository: string; readonly file: string | null }
  | { readonly kind: 'name'; readonly name: string }

const HUB = /^([\w-][\w.-]*\/[\w-][\w.-]*)(?::([\w-][\w ./-]*))?$/

/** A file that is there wins over the hub's repository of the same name. */
export function readReference(text: string): Reference {
  if (text === 'default' || text === DEFAULT_MODEL.name) return { kind: 'default' }
  if (text === 'tiny' || text === TINY_MODEL.name) return { kind: 'tiny' }
  const [, repository, file] = HUB.exec(text) ?? []
  const isHub = repository !== undefined && !(file ?? '').split('/').includes('..')
  const isPath = existsSync(text) || /^[.~/\\]|^[a-z]:/i.test(text) || (text.includes('/') && !isHub)
    || (text.endsWith('.gguf') && file === undefined)
  if (isPath) return { kind: 'path', path: resolve(text) }
  return isHub ? { kind: 'hub', repository, file: file ?? null } : { kind: 'name', name: text }
}

/** Whether the part of a name that was given means this file. */
export function means(given: string, file: string): boolean {
  if (given === file) return true
  const bare = file.replace(/\.gguf$/i, '').toLowerCase()
  const wanted = given.replace(/\.gguf$/i, '').toLowerCase()
  return bare === wanted || bare.endsWith(`/${wanted}`) || new RegExp(`(^|[./_-])${escaped(wanted)}$`).test(bare)
}

const escaped = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
