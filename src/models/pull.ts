/**
 * Owns getting a model into the cache because a person asked for it by name: from the hub, from a file of this machine,
 * or the default and tiny ones on their own ways. A model is whole and checked there, or not there; what a download
 * brought before it broke stays beside its place and the next one goes on with it.
 */
import { constants } from 'node:fs'
import { copyFile, link, mkdir, readdir, rm, stat } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { adopt, cacheDirectory, digestOf, ifPresent, noteDigest, openCache, publish, type Environment } from './cache.ts'
import { cachedModels, HUB_FOLDER, LOCAL_FOLDER, PART_ENDING, type CachedModel } from './cached.ts'
import { fetchHubFile, hubEndpoint, listHubFiles, nextAfter, type HubListing } from './hugging-face.ts'
import { ModelError, reason } from './model-error.ts'
import { oneFetcher } from './one-fetcher.ts'
import { means, readReference } from './reference.ts'
import { checkHead, resolveModel, type ModelProgress } from './resolve.ts'

interface PullOptions {
  readonly model: string
  /** Branch, tag or commit of the hub's repository. */
  readonly revision: string
  readonly env: Environment
  readonly onProgress?: (progress: ModelProgress) => void
  readonly signal?: AbortSignal
}

interface Pulled extends CachedModel {
  readonly digest: string
  /** It was there and whole already. */
  readonly wasThere: boolean
}

type Choice = HubListing['choices'][number]

export async function pullModel(options: PullOptions): Promise<Pulled> {
  const cache = cacheDirectory(options.env)
  const reference = readReference(options.model)
  await openCache(cache)
  switch (reference.kind) {
    case 'default':
    case 'tiny': {
      const { path, digest, source } = await resolveModel({ ...options, model: reference.kind })
      return found(cache, path, digest, source === 'cache')
    }
    case 'path': return addLocal(cache, reference.path)
    case 'hub': return fromHub(cache, reference.repository, reference.file, options)
    case 'name':
      throw new ModelError('model_not_found', `${options.model} names no file and no repository.`, [],
        'write owner/repo or owner/repo:file.gguf as on the model\'s page, or the path of a GGUF file.')
  }
}

async function found(cache: string, path: string, digest: string, wasThere: boolean): Promise<Pulled> {
  const model = (await cachedModels(cache)).find((one) => one.path === path)
  if (model === undefined) throw new ModelError('model_not_found', `${path} is gone from the cache.`, [], 'pull it again.')
  return { ...model, digest, wasThere }
}

// ---------------------------------------------------------------- a file of this machine

/** A hard link where the disk is the same, so that a large file is not held twice; else a copy. */
async function addLocal(cache: string, path: string): Promise<Pulled> {
  if (await ifPresent(stat(path)) === null) {
    throw new ModelError('model_not_found', `There is no model file ${path}.`, [], 'look whether the path is right.')
  }
  checkHead(path)
  const digest = await digestOf(cache, path)
  const target = join(cache, LOCAL_FOLDER, basename(path))
  await mkdir(dirname(target), { recursive: true })
  if (await ifPresent(stat(target)) !== null) {
    if (await digestOf(cache, target) === digest) return found(cache, target, digest, true)
    throw new ModelError('model_ambiguous', `Another model called ${basename(path)} is in the cache: ${target}.`, [],
      'remove that one with "entracte models rm", or give your file another name.')
  }
  await publish(target, null, (file) => linkOrCopy(path, file))
  await noteDigest(cache, target, digest)
  return found(cache, target, digest, false)
}

async function linkOrCopy(from: string, to: string): Promise<void> {
  try {
    await link(from, to)
  } catch (thrown) {
    const isOtherDisk = thrown instanceof Error && 'code' in thrown && ['EXDEV', 'EPERM', 'ENOTSUP', 'EMLINK'].includes(String(thrown.code))
    if (!isOtherDisk) throw thrown
    await copyFile(from, to, constants.COPYFILE_FICLONE)
  }
}

// ---------------------------------------------------------------- the hub

async function fromHub(cache: string, repository: string, file: string | null, options: PullOptions): Promise<Pulled> {
  const { env, revision, signal, onProgress } = options
  const offline = ['ENTRACTE_OFFLINE', 'HF_HUB_OFFLINE'].find((name) => env[name] === '1')
  if (offline !== undefined) {
    throw new ModelError('model_unavailable', `${repository} is not asked for, because ${offline}=1.`, [], `unset ${offline}.`)
  }
  const listing = await told(`${repository} could not be listed`, env, () => listHubFiles(repository, revision, env, signal))
  const choice = chosen(repository, file, listing)
  const parts = /-\d{5}-of-(\d{5})\.gguf$/i.exec(choice.file)?.[1]
  if (parts !== undefined && Number(parts) > 1) {
    throw new ModelError('model_unreadable', `${repository}:${choice.file} is one of ${Number(parts)} parts; models in one file are read.`, [],
      'take a smaller quantisation, or fetch the parts, join them with llama.cpp\'s "llama-gguf-split --merge" and pull the path.')
  }
  const { digest, bytes } = choice
  if (digest === null) {
    throw new ModelError('model_unavailable', `${hubEndpoint(env)} gives no SHA-256 for ${repository}:${choice.file}.`, [],
      'fetch the file yourself and pull it by its path.')
  }
  const target = join(cache, HUB_FOLDER, repository, choice.file)
  await mkdir(dirname(target), { recursive: true })
  const there = async (): Promise<Pulled | null> => {
    const isThere = await ifPresent(stat(target)) !== null && await digestOf(cache, target) === digest
    return isThere ? found(cache, target, digest, true) : null
  }
  return await there() ?? oneFetcher(`${target}.lock`, signal, there, async () => {
    const part = `${target}.${digest.slice(0, 16)}${PART_ENDING}`
    await told(`${repository}:${choice.file} could not be fetched`, env, async () => {
      await fetchHubFile({ repository, revision: listing.revision, file: choice.file, bytes }, part, env, signal,
        (done, totalBytes) => onProgress?.({ step: 'hugging-face', bytes: done, totalBytes }))
      await adoptOrDrop(part, target, { bytes, digest })
    })
    await noteDigest(cache, target, digest)
    await dropOtherParts(target)
    return found(cache, target, digest, false)
  })
}

/** Bytes that are all there and wrong would be wrong at the next try as well. */
async function adoptOrDrop(part: string, target: string, expected: { readonly bytes: number; readonly digest: string }): Promise<void> {
  try {
    await adopt(part, target, expected)
  } catch (thrown) {
    await rm(part, { force: true })
    throw thrown
  }
}

/** What was begun of another revision of the file. */
async function dropOtherParts(target: string): Promise<void> {
  for (const name of await readdir(dirname(target))) {
    const isPart = name.startsWith(`${basename(target)}.`) && name.endsWith(PART_ENDING)
    if (isPart) await rm(join(dirname(target), name), { force: true })
  }
}

function chosen(repository: string, file: string | null, { choices }: HubListing): Choice {
  const ways = (list: readonly Choice[]) => list.map((one) => ({ way: `${repository}:${one.file}`, why: `${Math.ceil(one.bytes / 1e6)} MB` }))
  // A projector is part of a model that also sees, and no model.
  const models = choices.filter((one) => !/(^|\/)mmproj/i.test(one.file))
  if (models.length === 0) {
    throw new ModelError('model_not_found', `The repository ${repository} has no GGUF file.`, [],
      'look for a repository of the same model that has; their names often end in -GGUF.')
  }
  const exact = choices.filter((one) => one.file === file)
  const fitting = exact.length > 0 ? exact : models.filter((one) => file === null || means(file, one.file))
  const [only] = fitting
  if (only !== undefined && fitting.length === 1) return only
  if (fitting.length === 0) {
    throw new ModelError('model_not_found', `The repository ${repository} has no file ${file}. It has:`, ways(models), 'name one of them.')
  }
  throw new ModelError('model_ambiguous', `The repository ${repository} has several files:`, ways(fitting),
    'name one of them: entracte models pull owner/repo:file.gguf')
}

/** Runs `call` and tells what went wrong as a person reads it. */
async function told<T>(what: string, env: Environment, call: () => Promise<T>): Promise<T> {
  try {
    return await call()
  } catch (thrown) {
    if (thrown instanceof ModelError || (thrown instanceof Error && thrown.name === 'AbortError')) throw thrown
    const isFull = thrown instanceof Error && 'code' in thrown && thrown.code === 'ENOSPC'
    const next = nextAfter(thrown, env)
      ?? (isFull ? 'free some disk, or set ENTRACTE_CACHE to a larger one; what has come is kept.'
        : 'the same command again goes on from where it ended.')
    throw new ModelError('model_unavailable', `${what}: ${reason(thrown)}.`, [], next)
  }
}
