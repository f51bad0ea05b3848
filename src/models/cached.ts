/**
 * Owns which models lie in the cache, how each is called, and taking one out. The default and the tiny model lie at its
 * top, what came from the hub below `hub/owner/repo`, and what a person put there below `local`.
 */
import { readdir, rm, rmdir, stat } from 'node:fs/promises'
import { dirname, join, relative, sep } from 'node:path'
import { forgetDigest, ifPresent } from './cache.ts'
import { DEFAULT_MODEL } from './default-model.ts'
import { GgufFault, readGguf, type Gguf } from './gguf.ts'
import { usersOf } from './in-use.ts'
import { ModelError } from './model-error.ts'
import { means, type Reference } from './reference.ts'
import { TINY_MODEL } from './tiny-gguf.ts'

export const HUB_FOLDER = 'hub'
export const LOCAL_FOLDER = 'local'
/** The ending of a download that has not come to its end. */
export const PART_ENDING = '.part'

export interface CachedModel {
  /** What a person writes to mean it. */
  readonly model: string
  readonly path: string
  /** On disk. */
  readonly bytes: number
  readonly state: 'whole' | 'partial' | 'damaged'
  /** What its head says; null where it has none yet, or a damaged one. */
  readonly head: Gguf | null
}

/** By name. A cache that is not there holds nothing. */
export async function cachedModels(directory: string): Promise<readonly CachedModel[]> {
  const found: CachedModel[] = []
  for (const path of await filesBelow(directory)) {
    const model = nameOf(relative(directory, path).split(sep).join('/'))
    if (model !== null) found.push(await look(model, path))
  }
  return found.sort((a, b) => a.model < b.model ? -1 : a.model > b.model ? 1 : 0)
}

async function filesBelow(directory: string): Promise<readonly string[]> {
  const entries = await ifPresent(readdir(directory, { recursive: true, withFileTypes: true })) ?? []
  return entries.filter((entry) => entry.isFile() || entry.isSymbolicLink()).map((entry) => join(entry.parentPath, entry.name))
}

/** Null where the file is no model. */
function nameOf(below: string): string | null {
  const bare = below.replace(/\.[0-9a-f]{16}\.part$/, '').replace(/\.damaged$/, '')
  if (!/\.gguf$/i.test(bare)) return null
  if (bare === DEFAULT_MODEL.file) return 'default'
  if (bare.startsWith(`${TINY_MODEL.name}-`)) return 'tiny'
  const [top, owner, repository, ...file] = bare.split('/')
  if (top === HUB_FOLDER && file.length > 0) return `${owner}/${repository}:${file.join('/')}`
  if (top === LOCAL_FOLDER) return bare.slice(LOCAL_FOLDER.length + 1).replace(/\.gguf$/i, '')
  return bare.includes('/') ? null : bare.replace(/\.gguf$/i, '')
}

async function look(model: string, path: string): Promise<CachedModel> {
  const bytes = (await ifPresent(stat(path)))?.size ?? 0
  const isPart = path.endsWith(PART_ENDING)
  try {
    return { model, path, bytes, state: isPart ? 'partial' : path.endsWith('.damaged') ? 'damaged' : 'whole', head: readGguf(path) }
  } catch (thrown) {
    const isRead = thrown instanceof GgufFault || (thrown instanceof Error && 'code' in thrown && thrown.code === 'ENOENT')
    if (!isRead) throw thrown
    return { model, path, bytes, state: isPart ? 'partial' : 'damaged', head: null }
  }
}

/** The cached files that a reference means; a path means itself where it lies in the cache. */
function meant(models: readonly CachedModel[], reference: Reference): readonly CachedModel[] {
  switch (reference.kind) {
    case 'default':
    case 'tiny': return models.filter(({ model }) => model === reference.kind)
    case 'path': return models.filter(({ path }) => path === reference.path)
    case 'hub': {
      const prefix = `${reference.repository}:`
      const { file } = reference
      return models.filter(({ model }) => model.startsWith(prefix) && (file === null || means(file, model.slice(prefix.length))))
    }
    case 'name': {
      const exact = models.filter(({ model }) => model === reference.name)
      return exact.length > 0 ? exact : models.filter(({ model }) => means(reference.name, model.replace(/^.*:/, '')))
    }
  }
}

/** The one whole model that is meant; null where none is. Throws where several are. */
export async function findCached(directory: string, reference: Reference, given: string): Promise<CachedModel | null> {
  const found = meant(await cachedModels(directory), reference).filter(({ state }) => state === 'whole')
  if (found.length > 1) throw ambiguous(given, found)
  return found[0] ?? null
}

/** Removes a model with what is left of its downloads; gives what is gone. */
export async function removeCached(directory: string, reference: Reference, given: string): Promise<readonly CachedModel[]> {
  const found = meant(await cachedModels(directory), reference)
  if (found.length === 0) {
    throw new ModelError('model_not_found', `There is no model ${given} in ${directory}.`, [], '"entracte models ls" shows what there is.')
  }
  if (new Set(found.map(({ model }) => model)).size > 1) throw ambiguous(given, found)
  for (const { path } of found) {
    const users = usersOf(directory, path)
    if (users.length === 0) continue
    throw new ModelError('model_in_use', `The model ${given} is served by process ${users.join(', ')}.`, [], 'stop that server first.')
  }
  for (const { path } of found) {
    await rm(path, { force: true })
    await forgetDigest(directory, path)
    await removeEmpty(directory, dirname(path))
  }
  return found
}

const ambiguous = (given: string, found: readonly CachedModel[]): ModelError => new ModelError(
  'model_ambiguous', `${given} may mean any of these:`, [...new Set(found.map(({ model }) => model))].map((model) => ({ way: 'cached', why: model })),
  'name one of them in full.')

/** Folders that hold nothing any more, up to the cache itself. */
async function removeEmpty(directory: string, from: string): Promise<void> {
  for (let folder = from; folder !== directory && folder.startsWith(directory); folder = dirname(folder)) {
    if ((await ifPresent(readdir(folder)))?.length !== 0) return
    await rmdir(folder)
  }
}
