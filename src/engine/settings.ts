/** Owns the engine process's command line. A wrong one is said and ends the process before anything is loaded. */
import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import { prefillRowsMin } from './llama/attention.ts'
import type { FlashAttention } from './llama/attention.ts'
import { BUILDS } from './llama/build.ts'
import type { Build } from './llama/build.ts'
import { KV_TYPES } from './llama/kv-type.ts'
import type { KvType } from './llama/kv-type.ts'
import { LOAD_MODES } from './llama/layout.ts'
import type { LoadMode } from './llama/layout.ts'
import { ROW_UNITS, type RowUnit } from './llama/padding.ts'
import { chunkTokensMin } from './plan.ts'

export interface Settings {
  /** Empty where it listens on the network. */
  readonly socketPath: string
  readonly listen: Listen | null
  readonly modelPath: string
  /** Null: the SHA-256 of the file, computed at the start. */
  readonly modelDigest: string | null
  readonly lanes: number
  readonly laneTokens: number
  readonly threads: number
  readonly chunkTokens: number
  /** Of copies of States, between two batches. */
  readonly copiesMsMax: number
  readonly flashAttention: FlashAttention
  readonly extraBuffers: boolean
  readonly rowUnit: RowUnit
  readonly load: LoadMode
  readonly kvTypeK: KvType
  readonly kvTypeV: KvType
  readonly build: Build
  /** Null: all, where a GPU is found. */
  readonly gpuLayers: number | null
  readonly libraryDir: string | null
  /** System texts whose beginning of a prompt tenants may share. */
  readonly publicPrefixes: readonly string[]
  /** Where the answers of probes are kept; null: asked anew at every start. */
  readonly probeCachePath: string | null
  readonly probe: boolean
  /** Says what the model is on stdout and ends. */
  readonly describe: boolean
  /** Says on stdout whether it is exact, and how fast, and ends. */
  readonly weigh: boolean
}

/** For a control plane on another machine; the secret's and the certificate's files, so that neither stands in a list of processes. */
interface Listen {
  readonly host: string
  readonly port: number
  readonly secretFile: string
  /** An empty folder for images on their way; it goes with the process. */
  readonly imagesDir: string
  readonly tls: { readonly certFile: string; readonly keyFile: string } | null
}

export class SettingsError extends Error {}

const TEXT = { type: 'string' } as const
const FLAG = { type: 'boolean', default: false } as const
/** The library's own bound on sequences. */
const LANES_MAX = 256
const LANE_TOKENS_MAX = 1 << 24
const CHUNK_TOKENS_MAX = 4_096
const THREADS_MAX = 512
const GPU_LAYERS_MAX = 10_000
const COPIES_MS_MAX = 60_000
const LOADS = Object.keys(LOAD_MODES) as LoadMode[]

type Whole = 'lanes' | 'lane-tokens' | 'threads' | 'chunk-tokens' | 'copies-ms' | 'gpu-layers'

export function readSettings(argv: readonly string[]): Settings {
  const given = parse(argv)
  const need = (name: 'socket' | 'model'): string => {
    const value = given[name]
    if (value === undefined || value === '') throw new SettingsError(`--${name} is missing`)
    return value
  }
  const whole = (name: Whole, standard: number, min: number, max: number): number => {
    const value = given[name] === undefined ? standard : Number(given[name])
    if (Number.isInteger(value) && value >= min && value <= max) return value
    throw new SettingsError(`--${name} is ${given[name]}; it must be a whole number from ${min} to ${max}`)
  }
  const flashAttention = given['exact-attention'] ? 'exact' : given['flash-attention']
  return {
    socketPath: given.describe || given.weigh || given.listen !== undefined ? '' : need('socket'),
    listen: given.listen === undefined ? null : listenOf(given.listen, given),
    modelPath: need('model'),
    modelDigest: given['model-digest'] ?? null,
    lanes: whole('lanes', 8, 1, LANES_MAX),
    laneTokens: whole('lane-tokens', 2_048, 256, LANE_TOKENS_MAX),
    threads: whole('threads', Math.min(availableParallelism(), THREADS_MAX), 1, THREADS_MAX),
    chunkTokens: whole('chunk-tokens', 128, chunkTokensMin(prefillRowsMin(flashAttention)), CHUNK_TOKENS_MAX),
    copiesMsMax: whole('copies-ms', 20, 0, COPIES_MS_MAX),
    flashAttention,
    extraBuffers: !given['no-extra-buffers'],
    rowUnit: rowUnit(given['row-unit'] ?? '1'),
    load: oneOf('load', given.load, LOADS, 'auto'),
    kvTypeK: oneOf('kv-type-k', given['kv-type-k'], KV_TYPES, 'f16'),
    kvTypeV: oneOf('kv-type-v', given['kv-type-v'], KV_TYPES, 'f16'),
    build: oneOf('build', given.build, BUILDS, 'cpu'),
    gpuLayers: given['gpu-layers'] === undefined ? null : whole('gpu-layers', 0, 0, GPU_LAYERS_MAX),
    libraryDir: given.library ?? null,
    publicPrefixes: given['public-prefix'] ?? [],
    probeCachePath: given['probe-cache'] ?? null,
    probe: !given['no-probe'],
    describe: given.describe,
    weigh: given.weigh,
  }
}

function rowUnit(given: string): RowUnit {
  const found = ROW_UNITS.find((unit) => String(unit) === given)
  if (found !== undefined) return found
  throw new SettingsError(`--row-unit is ${given}; it must be one of ${ROW_UNITS.join(', ')}`)
}

function oneOf<T extends string>(name: string, given: string | undefined, choices: readonly T[], standard: T): T {
  const found = given === undefined ? standard : choices.find((one) => one === given)
  if (found !== undefined) return found
  throw new SettingsError(`--${name} is ${given}; it must be one of ${choices.join(', ')}`)
}

interface ListenFlags { readonly 'secret-file'?: string | undefined; readonly 'images'?: string | undefined; readonly 'tls-cert'?: string | undefined; readonly 'tls-key'?: string | undefined }

function listenOf(where: string, { 'secret-file': secretFile, images: imagesDir, 'tls-cert': certFile, 'tls-key': keyFile }: ListenFlags): Listen {
  const [, host, port] = /^\[?([^\]]+?)\]?:(\d{1,5})$/.exec(where) ?? []
  if (host === undefined || Number(port) > 65_535) throw new SettingsError(`--listen is ${where}; it must be HOST:PORT`)
  if (secretFile === undefined) throw new SettingsError('--secret-file is missing: who may use this engine shows that he knows what is in it')
  if (imagesDir === undefined) throw new SettingsError('--images is missing: a folder for images on their way')
  if ((certFile === undefined) !== (keyFile === undefined)) throw new SettingsError('--tls-cert and --tls-key go together')
  return { host, port: Number(port), secretFile, imagesDir, tls: certFile === undefined || keyFile === undefined ? null : { certFile, keyFile } }
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      options: {
        'listen': TEXT, 'secret-file': TEXT, 'images': TEXT, 'tls-cert': TEXT, 'tls-key': TEXT,
        'socket': TEXT, 'model': TEXT, 'model-digest': TEXT, 'lanes': TEXT, 'lane-tokens': TEXT, 'threads': TEXT,
        'chunk-tokens': TEXT, 'copies-ms': TEXT, 'library': TEXT, 'load': TEXT, 'row-unit': TEXT, 'probe-cache': TEXT,
        'kv-type-k': TEXT, 'kv-type-v': TEXT, 'build': TEXT, 'gpu-layers': TEXT, 'public-prefix': { type: 'string', multiple: true },
        'flash-attention': FLAG, 'exact-attention': FLAG, 'no-extra-buffers': FLAG, 'no-probe': FLAG, 'describe': FLAG, 'weigh': FLAG,
      },
    }).values
  } catch (error) {
    throw new SettingsError(error instanceof Error ? error.message : String(error), { cause: error })
  }
}
