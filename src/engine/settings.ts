/** Owns the engine process's command line. A wrong one is said and ends the process before anything is loaded. */
import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import { LOAD_MODES } from './llama/layout.ts'
import type { LoadMode } from './llama/layout.ts'
import { CHUNK_TOKENS_MIN } from './plan.ts'

export interface Settings {
  readonly socketPath: string
  readonly modelPath: string
  /** Null: the SHA-256 of the file, computed at the start. */
  readonly modelDigest: string | null
  readonly lanes: number
  readonly laneTokens: number
  readonly threads: number
  readonly chunkTokens: number
  readonly flashAttention: boolean
  readonly extraBuffers: boolean
  readonly load: LoadMode
  readonly libraryDir: string | null
  /** Where the answers of probes are kept; null: asked anew at every start. */
  readonly probeCachePath: string | null
  readonly probe: boolean
  /** Says what the model is on stdout and ends. */
  readonly describe: boolean
}

export class SettingsError extends Error {}

const TEXT = { type: 'string' } as const
const FLAG = { type: 'boolean', default: false } as const
/** The library's own bound on sequences. */
const LANES_MAX = 256
const LANE_TOKENS_MAX = 1 << 24
const CHUNK_TOKENS_MAX = 4_096
const THREADS_MAX = 512

type Whole = 'lanes' | 'lane-tokens' | 'threads' | 'chunk-tokens'

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
  return {
    socketPath: given.describe ? '' : need('socket'),
    modelPath: need('model'),
    modelDigest: given['model-digest'] ?? null,
    lanes: whole('lanes', 8, 1, LANES_MAX),
    laneTokens: whole('lane-tokens', 2_048, 256, LANE_TOKENS_MAX),
    threads: whole('threads', Math.min(Math.max(1, availableParallelism() - 1), THREADS_MAX), 1, THREADS_MAX),
    chunkTokens: whole('chunk-tokens', 128, CHUNK_TOKENS_MIN, CHUNK_TOKENS_MAX),
    flashAttention: given['flash-attention'],
    extraBuffers: !given['no-extra-buffers'],
    load: loadMode(given.load ?? 'auto'),
    libraryDir: given.library ?? null,
    probeCachePath: given['probe-cache'] ?? null,
    probe: !given['no-probe'],
    describe: given.describe,
  }
}

function loadMode(name: string): LoadMode {
  const found = (Object.keys(LOAD_MODES) as LoadMode[]).find((one) => one === name)
  if (found !== undefined) return found
  throw new SettingsError(`--load is ${name}; it must be one of ${Object.keys(LOAD_MODES).join(', ')}`)
}

function parse(argv: readonly string[]) {
  try {
    return parseArgs({
      args: [...argv],
      options: {
        'socket': TEXT, 'model': TEXT, 'model-digest': TEXT, 'lanes': TEXT, 'lane-tokens': TEXT, 'threads': TEXT,
        'chunk-tokens': TEXT, 'library': TEXT, 'load': TEXT, 'probe-cache': TEXT,
        'flash-attention': FLAG, 'no-extra-buffers': FLAG, 'no-probe': FLAG, 'describe': FLAG,
      },
    }).values
  } catch (error) {
    throw new SettingsError(error instanceof Error ? error.message : String(error), { cause: error })
  }
}
