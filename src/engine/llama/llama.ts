/**
 * Owns one model and one context of the native library: lanes of cells, batches of rows, logits, sequence states,
 * tokens. Leaves the order of batches to the loop, what a lane holds to its owner, and images to `kv-image.ts`.
 *
 * N1 no argument reaches the library unchecked where the library would answer by ending the process.
 * N2 one decode at a time; while it runs, nothing touches the context.
 * N3 a lane is a stream of its own (`kv_unified` off): what other lanes hold changes no logit of this one.
 */
import koffi from 'koffi'
import { existsSync } from 'node:fs'
import { parseBlob } from './blob.ts'
import { LlamaError } from './error.ts'
import { Candidates, Grammar, TOKEN_CONTROL, TOKEN_EOG } from './grammar.ts'
import { FLASH_ATTENTION_OFF, FLASH_ATTENTION_ON } from './layout.ts'
import type { Batch, Pointer } from './layout.ts'
import { openLibrary } from './library.ts'
import type { Functions, Library } from './library.ts'

export { LlamaError } from './error.ts'
export type { Grammar } from './grammar.ts'

/** The library's own bound on sequences in a context. */
export const LANES_MAX = 256
/** The library rounds the cells of a lane up to a multiple of this. */
const LANE_TOKENS_UNIT = 256
/** Longest piece of one token, in bytes; the library says when it is longer. */
const PIECE_BYTES = 256
const META_BYTES = 4096
/** Rotary positions with more than one number a token: their cells carry more than an image keeps. */
const ROPE_MULTI = [8, 24, 40]

export interface LlamaOptions {
  readonly modelPath: string
  readonly lanes: number
  readonly laneTokens: number
  /** Max tokens in one batch. */
  readonly batchTokens: number
  readonly threads: number
  readonly flashAttention: boolean
  /** Weight repacking. */
  readonly extraBuffers: boolean
  readonly libraryDir: string | null
}

export interface LlamaInfo {
  readonly library: string
  readonly cpuKernel: string
  readonly lanes: number
  readonly laneTokens: number
  readonly batchTokens: number
  readonly flashAttention: boolean
  readonly vocabSize: number
  readonly layers: number
  readonly kvBytesPerToken: number
  readonly trainedContext: number
  readonly bos: number
  readonly eos: number
  readonly chatTemplate: string | null
  readonly architecture: string
  readonly modelBytes: number
}

export interface Row {
  readonly token: number
  readonly position: number
  readonly lane: number
  readonly logits: boolean
}

export class Llama {
  readonly info: LlamaInfo
  readonly #fn: Functions
  readonly #library: Library
  readonly #model: Pointer
  readonly #vocab: Pointer
  readonly #context: Pointer
  readonly #memory: Pointer
  readonly #rows: Rows
  readonly #candidates: Candidates
  readonly #flags: Uint8Array
  readonly #piece = new Uint8Array(PIECE_BYTES)
  #decoded: readonly Row[] = []
  #busy = false
  #alive = true

  static load(options: LlamaOptions): Llama {
    checkOptions(options)
    const library = openLibrary(options.libraryDir)
    const model = loadModel(library, options)
    try {
      checkModel(library.fn, model, options)
      const context = openContext(library, model, options)
      try {
        return new Llama(library, model, context, options)
      } catch (error) {
        library.fn.contextFree(context)
        throw error
      }
    } catch (error) {
      library.fn.modelFree(model)
      throw error
    }
  }

  private constructor(library: Library, model: Pointer, context: Pointer, options: LlamaOptions) {
    const fn = library.fn
    this.#library = library
    this.#fn = fn
    this.#model = model
    this.#context = context
    this.#vocab = fn.modelVocab(model)
    this.#memory = fn.memory(context)
    const vocabSize = fn.vocabTokens(this.#vocab)
    const batchTokens = fn.contextBatch(context)
    this.#rows = new Rows(batchTokens)
    this.#candidates = new Candidates(vocabSize)
    this.#flags = tokenFlags(fn, this.#vocab, vocabSize)
    this.info = {
      library: library.name,
      cpuKernel: library.cpuKernel,
      lanes: fn.contextLanes(context),
      laneTokens: fn.contextLaneTokens(context),
      batchTokens,
      flashAttention: options.flashAttention,
      vocabSize,
      layers: fn.modelLayers(model),
      kvBytesPerToken: this.#measureToken(),
      trainedContext: fn.modelContext(model),
      bos: fn.vocabBos(this.#vocab),
      eos: fn.vocabEos(this.#vocab),
      chatTemplate: fn.modelTemplate(model, null),
      architecture: meta(fn, model, 'general.architecture') ?? 'unknown',
      modelBytes: Number(fn.modelBytes(model)),
    }
  }

  isEog(token: number): boolean {
    return ((this.#flags[token] ?? 0) & TOKEN_EOG) !== 0
  }

  isControl(token: number): boolean {
    return ((this.#flags[token] ?? 0) & TOKEN_CONTROL) !== 0
  }

  /** Never adds a beginning or an end by itself. */
  tokenize(text: string, parseSpecial: boolean): Int32Array {
    this.#use()
    if (text === '') return new Int32Array(0)
    const bytes = Buffer.from(text, 'utf8')
    let tokens = new Int32Array(bytes.length + 16)
    let count = this.#fn.tokenize(this.#vocab, bytes, bytes.length, tokens, tokens.length, false, parseSpecial)
    if (count < 0) {
      tokens = new Int32Array(-count)
      count = this.#fn.tokenize(this.#vocab, bytes, bytes.length, tokens, tokens.length, false, parseSpecial)
    }
    if (count < 0) throw new LlamaError('decode', `a text of ${bytes.length} bytes could not be tokenised`)
    return tokens.slice(0, count)
  }

  /** The bytes of one token; without `special`, control tokens give none. */
  piece(token: number, special: boolean): Uint8Array {
    this.#use()
    this.#checkToken(token)
    const count = this.#fn.piece(this.#vocab, token, this.#piece, this.#piece.length, 0, special)
    if (count >= 0) return this.#piece.slice(0, count)
    const longer = new Uint8Array(-count)
    return longer.slice(0, this.#fn.piece(this.#vocab, token, longer, longer.length, 0, special))
  }

  /** Feeds the rows on a thread of its own. Where it throws, cut the lanes concerned before they are read. */
  async decode(rows: readonly Row[]): Promise<void> {
    this.#idle('decode')
    this.#checkRows(rows)
    this.#decoded = []
    const batch = this.#rows.fill(rows)
    this.#busy = true
    try {
      const code = await new Promise<number>((resolve, reject) => {
        this.#fn.decode.async(this.#context, batch, (error, result) => {
          if (error === null || error === undefined) resolve(result)
          else reject(error instanceof Error ? error : new Error(String(error)))
        })
      })
      if (code !== 0) throw new LlamaError('decode', decodeFailure(code, rows))
      this.#decoded = rows
    } finally {
      this.#busy = false
    }
  }

  /** A copy of one row's logits; the index is the row's place in the last decode. */
  logits(rowIndex: number): Float32Array {
    this.#idle('logits')
    if (this.#decoded[rowIndex]?.logits !== true) {
      throw new LlamaError('decode', `row ${rowIndex} of the last batch has no logits: it did not ask for them`)
    }
    const at = this.#fn.logitsAt(this.#context, rowIndex)
    if (at === null) throw new LlamaError('decode', `the library kept no logits of row ${rowIndex}`)
    return new Float32Array(koffi.view(at, this.info.vocabSize * 4)).slice()
  }

  /** Forgets what a lane holds from a position on. */
  cut(lane: number, fromPosition: number): boolean {
    this.#idle('cut')
    this.#checkLane(lane)
    return this.#fn.memoryRemove(this.#memory, lane, fromPosition, -1)
  }

  /** How many tokens a lane holds. */
  laneUsed(lane: number): number {
    this.#idle('read')
    this.#checkLane(lane)
    return this.#fn.memoryLast(this.#memory, lane) + 1
  }

  /**
   * Copies all that a lane holds; the target is overwritten. By the state rather than by `llama_memory_seq_cp`, which
   * copies between streams only at the next decode, by then perhaps from a lane that holds something else.
   */
  copyLane(from: number, to: number): void {
    this.#checkLane(to)
    if (from === to) return
    const blob = this.stateBytes(from)
    if (!this.loadState(to, blob)) throw new LlamaError('state', `lane ${from} could not be copied to lane ${to}`)
  }

  /** The library's blob of one sequence. */
  stateBytes(lane: number): Uint8Array {
    this.#idle('read')
    this.#checkLane(lane)
    const size = Number(this.#fn.stateSize(this.#context, lane))
    const blob = Buffer.allocUnsafeSlow(size)
    const written = Number(this.#fn.stateGet(this.#context, blob, size, lane))
    if (size === 0 || written !== size) {
      throw new LlamaError('state', `the library wrote ${written} of the ${size} bytes of lane ${lane}`)
    }
    return blob
  }

  /** Fills a lane from a blob of `stateBytes`; false, and the lane empty, where the library refuses it. */
  loadState(lane: number, blob: Uint8Array): boolean {
    this.#idle('load')
    this.#checkLane(lane)
    return Number(this.#fn.stateSet(this.#context, blob, blob.length, lane)) === blob.length
  }

  /** A grammar in GBNF. */
  grammar(gbnf: string, root: string): Grammar {
    this.#use()
    const { result, lines } = this.#library.logged(() => this.#fn.grammarInit(this.#vocab, gbnf, root))
    if (result === null) {
      throw new LlamaError('decode', `the grammar with root "${root}" is not valid. ${lines.join(' ')}`.trim())
    }
    return new Grammar(
      { fn: this.#fn, candidates: this.#candidates, flags: this.#flags, alive: () => this.#alive }, result)
  }

  dispose(): void {
    if (!this.#alive) return
    this.#idle('dispose')
    this.#alive = false
    this.#fn.contextFree(this.#context)
    this.#fn.modelFree(this.#model)
    this.#rows.dispose()
    this.#candidates.dispose()
  }

  /** Feeds two tokens and reads their State: warms the weights, and shows that blobs are laid out as `blob.ts` says. */
  #measureToken(): number {
    const code = this.#fn.decode(this.#context, this.#rows.fill([0, 1].map((position) => (
      { token: 0, position, lane: 0, logits: position === 1 }))))
    if (code !== 0) throw new LlamaError('decode', `the first batch failed with code ${code}`)
    const bytes = parseBlob(this.#firstBlob()).bytesPerToken
    this.#fn.memoryRemove(this.#memory, 0, -1, -1)
    return bytes
  }

  #firstBlob(): Uint8Array {
    const size = Number(this.#fn.stateSize(this.#context, 0))
    const blob = Buffer.alloc(size)
    this.#fn.stateGet(this.#context, blob, size, 0)
    return blob
  }

  #use(): void {
    if (!this.#alive) throw new LlamaError('decode', 'the model was used after it was disposed of')
  }

  #idle(what: string): void {
    this.#use()
    if (this.#busy) throw new LlamaError('decode', `${what} while a decode runs: await it first`)
  }

  #checkLane(lane: number): void {
    if (Number.isInteger(lane) && lane >= 0 && lane < this.info.lanes) return
    throw new LlamaError('decode', `there is no lane ${lane}: this engine has ${this.info.lanes}`)
  }

  #checkToken(token: number): void {
    if (Number.isInteger(token) && token >= 0 && token < this.info.vocabSize) return
    throw new LlamaError('decode', `there is no token ${token}: the vocabulary has ${this.info.vocabSize}`)
  }

  #checkRows(rows: readonly Row[]): void {
    if (rows.length === 0 || rows.length > this.info.batchTokens) {
      throw new LlamaError('decode', `a batch of ${rows.length} rows: it holds 1 to ${this.info.batchTokens}`)
    }
    for (const row of rows) {
      this.#checkLane(row.lane)
      this.#checkToken(row.token)
      if (!Number.isInteger(row.position) || row.position < 0 || row.position >= this.info.laneTokens) {
        throw new LlamaError('decode', `position ${row.position} is outside a lane of ${this.info.laneTokens} tokens`)
      }
    }
  }
}

/** The arrays of one `llama_batch`, made once. */
class Rows {
  readonly #memory: Pointer
  readonly #tokens: Int32Array
  readonly #positions: Int32Array
  readonly #lanes: Int32Array
  readonly #logits: Int8Array
  readonly #batch: Batch

  constructor(capacity: number) {
    // Eight bytes of pointer, then four arrays of four bytes and one of one.
    const bytes = capacity * (8 + 16 + 1)
    this.#memory = koffi.alloc('uint8_t', bytes) as Pointer
    const view = koffi.view(this.#memory, bytes)
    const at = (index: number): number => capacity * index
    const pointers = new BigUint64Array(view, 0, capacity)
    this.#tokens = new Int32Array(view, at(8), capacity)
    this.#positions = new Int32Array(view, at(12), capacity)
    this.#lanes = new Int32Array(view, at(16), capacity)
    new Int32Array(view, at(20), capacity).fill(1)
    this.#logits = new Int8Array(view, at(24), capacity)
    const address = (offset: number): Pointer => this.#memory + BigInt(offset)
    for (let row = 0; row < capacity; row++) pointers[row] = address(at(16) + row * 4)
    this.#batch = {
      n_tokens: 0, token: address(at(8)), embd: null, pos: address(at(12)), n_seq_id: address(at(20)),
      seq_id: address(0), logits: address(at(24)),
    }
  }

  fill(rows: readonly Row[]): Batch {
    let index = 0
    for (const row of rows) {
      this.#tokens[index] = row.token
      this.#positions[index] = row.position
      this.#lanes[index] = row.lane
      this.#logits[index] = row.logits ? 1 : 0
      index++
    }
    return { ...this.#batch, n_tokens: rows.length }
  }

  dispose(): void {
    koffi.free(this.#memory)
  }
}

function checkOptions(options: LlamaOptions): void {
  const whole: readonly [string, number, number][] = [
    ['lanes', options.lanes, LANES_MAX], ['laneTokens', options.laneTokens, 1 << 24],
    ['batchTokens', options.batchTokens, 1 << 16], ['threads', options.threads, 512],
  ]
  for (const [name, value, max] of whole) {
    if (Number.isInteger(value) && value >= 1 && value <= max) continue
    throw new LlamaError('model', `${name} is ${value}; it must be a whole number from 1 to ${max}`)
  }
  if (!existsSync(options.modelPath)) {
    throw new LlamaError('model', `there is no model file at ${options.modelPath}. Check the path, or leave it out.`)
  }
}

function loadModel(library: Library, options: LlamaOptions): Pointer {
  const params = library.fn.modelDefaults()
  params.n_gpu_layers = 0
  params.use_extra_bufts = options.extraBuffers
  const { result, lines } = library.logged(() => library.fn.modelLoad(options.modelPath, params))
  if (result !== null) return result
  throw new LlamaError('model', `the model file ${options.modelPath} does not load: ${lines.join(' ') || 'no reason given'}. `
    + 'It must be a whole GGUF file; fetch it again, or name another.')
}

function checkModel(fn: Functions, model: Pointer, options: LlamaOptions): void {
  const why = fn.modelHasEncoder(model) || !fn.modelHasDecoder(model) ? 'is not a decoder-only text model'
    : fn.modelIsRecurrent(model) || fn.modelIsHybrid(model) ? 'keeps a recurrent state, which cannot be cut at a token'
      : fn.modelWindow(model) > 0 ? 'uses sliding-window attention, whose KV is two caches'
        : ROPE_MULTI.includes(fn.modelRope(model)) ? 'has positions of more than one number a token' : null
  if (why === null) return
  throw new LlamaError('model', `the model ${options.modelPath} ${why}; its State could not be kept and moved exactly. `
    + 'Use a plain decoder-only model with full attention.')
}

function openContext(library: Library, model: Pointer, options: LlamaOptions): Pointer {
  const laneTokens = Math.ceil(options.laneTokens / LANE_TOKENS_UNIT) * LANE_TOKENS_UNIT
  const params = library.fn.contextDefaults()
  params.n_ctx = laneTokens * options.lanes
  params.n_seq_max = options.lanes
  params.n_batch = Math.max(options.batchTokens, options.lanes)
  params.n_ubatch = params.n_batch
  params.n_threads = options.threads
  params.n_threads_batch = options.threads
  params.flash_attn_type = options.flashAttention ? FLASH_ATTENTION_ON : FLASH_ATTENTION_OFF
  params.offload_kqv = false
  params.op_offload = false
  params.no_perf = true
  params.kv_unified = false
  const { result, lines } = library.logged(() => library.fn.contextInit(model, params))
  if (result !== null) return result
  throw new LlamaError('memory', `no context of ${options.lanes} lanes of ${laneTokens} tokens could be made: `
    + `${lines.join(' ') || 'no reason given'}. Take fewer lanes or shorter ones.`)
}

function tokenFlags(fn: Functions, vocab: Pointer, vocabSize: number): Uint8Array {
  return Uint8Array.from({ length: vocabSize }, (_, token) => (
    (fn.vocabIsEog(vocab, token) ? TOKEN_EOG : 0) | (fn.vocabIsControl(vocab, token) ? TOKEN_CONTROL : 0)))
}

function meta(fn: Functions, model: Pointer, key: string): string | null {
  const bytes = Buffer.alloc(META_BYTES)
  const length = fn.modelMeta(model, key, bytes, META_BYTES)
  return length < 0 ? null : bytes.toString('utf8', 0, Math.min(length, META_BYTES - 1))
}

function decodeFailure(code: number, rows: readonly Row[]): string {
  const size = `a batch of ${rows.length} rows`
  if (code === 1) return `${size} found no free cells in its lane; nothing of it was fed`
  if (code === 2) return `${size} was aborted; part of it may have been fed`
  if (code === -1) return `${size} was refused: its positions do not continue their lanes; nothing of it was fed`
  return `${size} failed in the library with code ${code}; part of it may have been fed`
}
