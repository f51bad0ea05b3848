/**
 * Owns the translation between the engine process's words and the driver's: its command line, what it can do, its
 * reports.
 */
import type { AttemptReport } from '../core/input.ts'
import type { Capabilities } from '../core/state.ts'
import type { Tokens } from '../core/units.ts'
import type { WireEngine, WireReport } from '../protocol/engine.ts'

/** What the process is started with. */
export interface EngineSettings {
  readonly modelPath: string
  readonly lanes: number
  readonly laneTokens: Tokens
  readonly threads: number
  readonly chunkTokens: Tokens
  /** Of copies of States between two batches; left out: 20. */
  readonly copiesMsMax?: number
  readonly flashAttention: boolean | 'exact'
  /** Weights repacked for the CPU at load; faster, and for some quantisations not exact. */
  readonly extraBuffers: boolean
  /** Rows of a lane in a batch: as they come (1, and where left out), at least two, or a multiple of four. */
  readonly rowUnit?: 1 | 2 | 4
  /** How weights come into memory; left out: as the library chooses. */
  readonly load?: 'auto' | 'map' | 'lock' | 'read'
  /** How K and V are kept; left out: in f16. */
  readonly kvTypeK?: string
  readonly kvTypeV?: string
  /** Which build of the library; left out: the CPU's. */
  readonly build?: string
  /** Null or left out: all, where the build finds a GPU. */
  readonly gpuLayers?: number | null
  /** System texts whose beginning of a prompt tenants may share; left out: none. */
  readonly publicPrefixes?: readonly string[]
  /** Null: the libraries that were installed with us. */
  readonly libraryDir: string | null
  /** Where the probe's answer is kept; null: asked at every start. */
  readonly probeCachePath: string | null
  /** False: it is not asked whether it is exact. */
  readonly probe?: boolean
}

export function argsOf(options: EngineSettings): string[] {
  const { modelPath, lanes, laneTokens, threads, chunkTokens, copiesMsMax } = options
  const { flashAttention, extraBuffers, rowUnit = 1, load = 'auto', libraryDir, probeCachePath, probe = true } = options
  const { kvTypeK = 'f16', kvTypeV = 'f16', build = 'cpu', gpuLayers = null, publicPrefixes = [] } = options
  return [
    '--model', modelPath,
    '--lanes', String(lanes), '--lane-tokens', String(laneTokens),
    '--threads', String(threads), '--chunk-tokens', String(chunkTokens),
    ...(copiesMsMax === undefined ? [] : ['--copies-ms', String(copiesMsMax)]),
    ...(flashAttention === 'exact' ? ['--exact-attention'] : flashAttention ? ['--flash-attention'] : []),
    ...(extraBuffers ? [] : ['--no-extra-buffers']),
    ...(rowUnit === 1 ? [] : ['--row-unit', String(rowUnit)]),
    ...(load === 'auto' ? [] : ['--load', load]),
    ...(kvTypeK === 'f16' ? [] : ['--kv-type-k', kvTypeK]),
    ...(kvTypeV === 'f16' ? [] : ['--kv-type-v', kvTypeV]),
    ...(build === 'cpu' ? [] : ['--build', build]),
    ...(gpuLayers === null ? [] : ['--gpu-layers', String(gpuLayers)]),
    // In one word: a text may begin with a hyphen.
    ...publicPrefixes.map((text) => `--public-prefix=${text}`),
    ...(libraryDir === null ? [] : ['--library', libraryDir]),
    ...(probeCachePath === null ? [] : ['--probe-cache', probeCachePath]),
    ...(probe ? [] : ['--no-probe']),
  ]
}

export const reportOf = (report: WireReport): AttemptReport => ({
  service: {
    useful: { residentUs: report.usefulResidentUs, workUs: report.usefulWorkUs },
    retried: { residentUs: 0, workUs: 0 },
    recomputed: { residentUs: report.recomputedResidentUs, workUs: report.recomputedWorkUs },
  },
  tailPrefilled: report.tailPrefilled,
  tailDecoded: report.tailDecoded,
  outputTokens: report.outputTokens,
  recomputedTokens: report.recomputedTokens,
})

export function capabilitiesOf(models: readonly string[], engine: WireEngine): Capabilities {
  const { lanes, laneTokens, kvBytesPerToken, contextTokens, imageKey, can, exact } = engine
  return {
    models,
    contextTokens,
    runningMax: lanes,
    tokenise: true,
    rank: true,
    preempt: true,
    cancel: true,
    memory: { cells: lanes * laneTokens, granule: laneTokens, sequences: lanes },
    kvBytesPerToken,
    sharesBytes: false,
    copy: can.copy,
    trim: can.trim,
    offload: can.image,
    onboard: can.image,
    discard: true,
    exact,
    replayByOrigin: true,
    imageKey: can.image ? imageKey : null,
    progress: true,
    inventory: false,
  }
}
