/**
 * Owns how a model is opened: the options' bounds, what models can be served, the context's settings, and that nothing
 * is left behind where a step fails. Leaves what is done with it to `llama.ts`.
 */
import { existsSync, statSync } from 'node:fs'
import type { FlashAttention } from './attention.ts'
import type { Build } from './build.ts'
import { LlamaError } from './error.ts'
import { FIRST_ROWS, measureFamily } from './family.ts'
import type { Family } from './family.ts'
import type { Functions } from './functions.ts'
import { FLASH_ATTENTION_OFF, FLASH_ATTENTION_ON, LOAD_MODES } from './layout.ts'
import type { LoadMode, Pointer } from './layout.ts'
import { checkKvTypes, kvElementBytes, kvTypeId } from './kv-type.ts'
import type { KvType, KvTypes } from './kv-type.ts'
import { openLibrary } from './library.ts'
import type { Library } from './library.ts'
import { paddedCount, ROW_UNITS, type RowUnit } from './padding.ts'
import { Rows } from './rows.ts'
import type { ThreadPool } from './thread-pool.ts'

/** The library's own bound on sequences in a context. */
const LANES_MAX = 256
/** The library rounds the cells of a lane up to a multiple of this. */
const LANE_TOKENS_UNIT = 256
const LANE_TOKENS_MAX = 1 << 24
const BATCH_TOKENS_MAX = 1 << 16
const THREADS_MAX = 512
const META_BYTES = 4096
const GPU_LAYERS_MAX = 10_000
const ALL_LAYERS = -1

export interface LlamaOptions {
  readonly modelPath: string
  readonly lanes: number
  readonly laneTokens: number
  /** Max tokens in one batch. */
  readonly batchTokens: number
  readonly threads: number
  readonly flashAttention: FlashAttention
  /** Weight repacking. */
  readonly extraBuffers: boolean
  /** Rows of a lane in a batch; left out: as they come. */
  readonly rowUnit?: RowUnit
  /** Left out: as the library chooses. */
  readonly load?: LoadMode
  /** How K and V are kept; left out: in f16. */
  readonly kvTypeK?: KvType
  readonly kvTypeV?: KvType
  /** Left out: `cpu`. */
  readonly build?: Build
  /** Layers that a GPU computes, where the build finds one; null or left out: all. */
  readonly gpuLayers?: number | null
  /** Null: the npm package of this platform. */
  readonly libraryDir: string | null
}

export interface OpenModel {
  readonly library: Library
  readonly model: Pointer
  readonly context: Pointer
  readonly rows: Rows
  readonly family: Family
  readonly pool: ThreadPool | null
}

export function openModel(options: LlamaOptions): OpenModel {
  checkOptions(options)
  const library = openLibrary(options.libraryDir, options.gpuLayers === 0 ? 'cpu' : options.build)
  const model = loadModel(library, options)
  let context: Pointer | null = null
  let rows: Rows | null = null
  try {
    checkModel(library.fn, model, options.modelPath)
    checkKv(library.fn, model, options)
    context = openContext(library, model, options)
    rows = new Rows(library.fn.contextBatch(context))
    const family = measureFamily(library.fn, context, rows)
    checkRowUnit(options, family)
    const pool = library.pool(options.threads)
    if (pool !== null) library.fn.attachPool(context, pool.pointer, pool.pointer)
    return { library, model, context, rows, family, pool }
  } catch (error) {
    rows?.dispose()
    if (context !== null) library.fn.contextFree(context)
    library.fn.modelFree(model)
    throw error
  }
}

export function closeModel(open: OpenModel): void {
  open.library.fn.contextFree(open.context)
  open.pool?.free()
  open.library.fn.modelFree(open.model)
  open.rows.dispose()
}

export function modelMeta(fn: Functions, model: Pointer, key: string): string | null {
  const bytes = Buffer.alloc(META_BYTES)
  const length = fn.modelMeta(model, key, bytes, META_BYTES)
  return length < 0 ? null : bytes.toString('utf8', 0, Math.min(length, META_BYTES - 1))
}

function checkOptions(options: LlamaOptions): void {
  const bounds: readonly (readonly [string, number, number])[] = [
    ['lanes', options.lanes, LANES_MAX], ['laneTokens', options.laneTokens, LANE_TOKENS_MAX],
    ['batchTokens', options.batchTokens, BATCH_TOKENS_MAX], ['threads', options.threads, THREADS_MAX],
    ['gpuLayers', options.gpuLayers || 1, GPU_LAYERS_MAX],
  ]
  for (const [name, value, max] of bounds) {
    if (Number.isInteger(value) && value >= 1 && value <= max) continue
    throw new LlamaError('model', `${name} is ${value}; it must be a whole number from 1 to ${max}`)
  }
  if (!existsSync(options.modelPath)) {
    throw new LlamaError('model', `there is no model file at ${options.modelPath}. Check the path, or leave it out.`)
  }
}

/** What pads a lane is cut again. */
function checkRowUnit({ rowUnit = 1, flashAttention, modelPath }: LlamaOptions, { trims }: Family): void {
  if (!ROW_UNITS.includes(rowUnit)) throw new LlamaError('model', `rowUnit is ${rowUnit}; it must be one of ${ROW_UNITS.join(', ')}`)
  if (rowUnit === 1) return
  if (flashAttention === 'exact') throw new LlamaError('model', `rowUnit is ${rowUnit}, and flashAttention exact feeds rows as they come: leave rowUnit at 1.`)
  if (trims) return
  throw new LlamaError('model', `rows of the model ${modelPath} cannot be padded (rowUnit ${rowUnit}): a State of its family cannot be cut. `
    + 'Leave rowUnit at 1.')
}

function loadModel(library: Library, options: LlamaOptions): Pointer {
  checkFits(options)
  const params = library.fn.modelDefaults()
  params.n_gpu_layers = library.gpu === null ? 0 : options.gpuLayers ?? ALL_LAYERS
  params.use_extra_bufts = options.extraBuffers
  params.load_mode = LOAD_MODES[options.load ?? 'auto']
  const { result, lines } = library.logged(() => library.fn.modelLoad(options.modelPath, params))
  if (result !== null) return result
  const why = lines.join(' ') || 'no reason given'
  const isNew = /unknown model architecture/.test(why)
  throw new LlamaError('model', `the model file ${options.modelPath} does not load: ${why}. `
    + (isNew ? `${library.name} does not know such models; take one that it knows.`
      : 'It must be a whole GGUF file; fetch it again, or name another.'))
}

function checkModel(fn: Functions, model: Pointer, path: string): void {
  if (!fn.modelHasEncoder(model) && fn.modelHasDecoder(model)) return
  throw new LlamaError('model', `the model ${path} is not a decoder-only text model, so it cannot continue a text. `
    + 'Use one that can chat.')
}

/** Weights are read at every token: a file that does not fit would be read from disk for each. */
function checkFits({ modelPath }: LlamaOptions): void {
  const wanted = statSync(modelPath).size
  const available = process.availableMemory()
  if (wanted <= available) return
  throw new LlamaError('memory', `the model ${modelPath} has ${mb(wanted)} and the machine has ${mb(available)} left. `
    + 'Take a smaller model, or the same in a smaller quantisation.')
}

export const kvTypesOf = ({ kvTypeK = 'f16', kvTypeV = 'f16' }: LlamaOptions): KvTypes => ({ k: kvTypeK, v: kvTypeV })

/** Cells are touched when they are made, so too many of them would end the process and not fail. */
function checkKv(fn: Functions, model: Pointer, options: LlamaOptions): void {
  const width = (name: string): number => {
    const said = Number(modelMeta(fn, model, `${modelMeta(fn, model, 'general.architecture')}.attention.${name}`))
    return said > 0 ? said : fn.modelWidth(model) / Math.max(1, fn.modelHeads(model))
  }
  const types = kvTypesOf(options)
  const widths = { k: width('key_length'), v: width('value_length') }
  checkKvTypes(types, options.flashAttention !== false, widths)
  const perToken = fn.modelLayers(model) * fn.modelHeadsKv(model)
    * (widths.k * kvElementBytes(types.k) + widths.v * kvElementBytes(types.v))
  const cells = perToken * laneCells(options) * options.lanes
  const weights = Number(fn.modelBytes(model))
  const available = process.availableMemory()
  if (cells + weights <= available) return
  throw new LlamaError('memory', `${options.lanes} lanes of ${laneCells(options)} tokens need ${mb(cells)} beside the `
    + `model's ${mb(weights)}, and the machine has ${mb(available)} left. Take fewer lanes or shorter ones.`)
}

const mb = (bytes: number): string => `${Math.ceil(bytes / 1e6)} MB`

const laneCells = (options: LlamaOptions): number =>
  Math.ceil(options.laneTokens / LANE_TOKENS_UNIT) * LANE_TOKENS_UNIT

function openContext(library: Library, model: Pointer, options: LlamaOptions): Pointer {
  const params = library.fn.contextDefaults()
  params.n_ctx = laneCells(options) * options.lanes
  params.n_seq_max = options.lanes
  const unit = options.rowUnit ?? 1
  params.n_batch = Math.max(paddedCount(options.batchTokens, unit), options.lanes * unit, FIRST_ROWS)
  params.n_ubatch = params.n_batch
  params.n_threads = options.threads
  params.n_threads_batch = options.threads
  params.flash_attn_type = options.flashAttention ? FLASH_ATTENTION_ON : FLASH_ATTENTION_OFF
  const types = kvTypesOf(options)
  params.type_k = kvTypeId(types.k)
  params.type_v = kvTypeId(types.v)
  params.offload_kqv = library.gpu !== null
  params.op_offload = library.gpu !== null
  params.no_perf = true
  params.kv_unified = false
  const { result, lines } = library.logged(() => library.fn.contextInit(model, params))
  if (result !== null) return result
  throw new LlamaError('memory', `no context of ${options.lanes} lanes of ${laneCells(options)} tokens could be made: `
    + `${lines.join(' ') || 'no reason given'}. Take fewer lanes or shorter ones.`)
}
