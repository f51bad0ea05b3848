/**
 * Owns one model and one context of the native library: lanes of cells, batches of rows, logits, sequence states,
 * tokens. Leaves the order of batches to the loop, what a lane holds to its owner, and images to `kv-image.ts`.
 *
 * N1 no argument reaches the library unchecked where the library would answer by ending the process.
 * N2 one decode at a time; while it runs, nothing touches the context.
 * N3 a lane holds positions 0 to n - 1 and no hole: rows continue it, cuts take from its end.
 * N4 a lane is a stream of its own (`kv_unified` off): what other lanes hold changes no logit of this one.
 */
import koffi from 'koffi'
import { hasLoneRow } from './attention.ts'
import type { FlashAttention } from './attention.ts'
import { formName } from './blob.ts'
import { DecodeThread } from './decode-thread.ts'
import { LlamaError } from './error.ts'
import type { Pointer } from './layout.ts'
import type { Done, Functions } from './functions.ts'
import { closeModel, kvTypesOf, modelMeta, openModel } from './open.ts'
import type { LlamaOptions, OpenModel } from './open.ts'
import { pad, spareTokens, type RowUnit } from './padding.ts'
import type { Row } from './rows.ts'

export { LlamaError } from './error.ts'
export type { LlamaOptions } from './open.ts'
export type { Row } from './rows.ts'

/** What a vocabulary says of a token. */
const TOKEN_EOG = 1
const TOKEN_CONTROL = 2

/** Of exact attention: with more threads a second row beside a lone one is faster than one thread. */
const LONE_THREADS_MAX = 2

/** A text of as many characters takes a few milliseconds. */
const ASIDE_CHARS = 2_000

/** Longest piece of one token, in bytes; the library says when it is longer. */
const PIECE_BYTES = 256

export interface LlamaInfo {
  readonly library: string
  readonly cpuKernel: string
  /** What computes beside the CPU and how many layers, such as `vulkan 24`; null: nothing. */
  readonly gpu: string | null
  /** Why the build is not the one that was asked for; null where it is. */
  readonly fallback: string | null
  /** Element types of K and V. */
  readonly kvTypes: string
  readonly lanes: number
  readonly laneTokens: number
  readonly batchTokens: number
  /** What was allowed at the load. */
  readonly threads: number
  readonly flashAttention: FlashAttention
  readonly extraBuffers: boolean
  readonly rowUnit: RowUnit
  /** Element types and sizes of K and V by layer, and how V lies: equal names, equal layouts. */
  readonly kvLayout: string
  readonly vocabSize: number
  readonly layers: number
  readonly kvBytesPerToken: number
  /** Of a State, whatever its length: a recurrent one's. */
  readonly stateBytes: number
  /** A lane can be cut at a token; else `cut` empties it. */
  readonly trims: boolean
  readonly copies: boolean
  /** A copy can be cut too: a window's has no more than the window before its end, and is emptied instead. */
  readonly cutsCopies: boolean
  /** A State can be taken apart by token range. */
  readonly images: boolean
  readonly trainedContext: number
  readonly bos: number
  readonly eos: number
  readonly chatTemplate: string | null
  readonly architecture: string
  readonly memory: 'attention' | 'window' | 'recurrent' | 'hybrid'
  readonly modelBytes: number
}

export class Llama {
  readonly info: LlamaInfo
  /** What ends a text, by the model's own word. */
  readonly eogTokens: readonly number[]
  readonly #fn: Functions
  readonly #opened: OpenModel
  readonly #vocab: Pointer
  readonly #context: Pointer
  readonly #memory: Pointer
  readonly #flags: Uint8Array
  readonly #piece = new Uint8Array(PIECE_BYTES)
  /** Of logits, by the library's address; read right after the library has named it, and at no other time. */
  readonly #views = new Map<Pointer, Float32Array>()
  readonly #thread: DecodeThread
  /** What the loop wants, and what the library was told last. */
  #threads: number
  #threadsSet: number
  /** How long each lane was when it was filled from a State, where a copy cannot be cut. */
  readonly #floors = new Map<number, number>()
  #decoded: readonly Row[] = []
  /** Where the rows of the last batch are among those that were fed with them; null: where they are. */
  #places: Int32Array | null = null
  /** Since when a decode runs. */
  #busySinceMs: number | null = null
  #alive = true

  static load(options: LlamaOptions): Llama {
    return new Llama(openModel(options), options)
  }

  private constructor(opened: OpenModel, options: LlamaOptions) {
    const { library, model, context } = opened
    const fn = library.fn
    this.#opened = opened
    this.#fn = fn
    this.#context = context
    this.#threads = this.#threadsSet = options.threads
    this.#thread = new DecodeThread(library.file)
    this.#vocab = fn.modelVocab(model)
    this.#memory = fn.memory(context)
    const vocabSize = fn.vocabTokens(this.#vocab)
    this.#flags = tokenFlags(fn, this.#vocab, vocabSize)
    this.eogTokens = [...this.#flags.keys()].filter((token) => this.isEog(token))
    this.info = {
      library: library.name,
      cpuKernel: library.cpuKernel,
      gpu: library.gpu === null ? null : `${library.gpu} ${options.gpuLayers ?? 'all'}`,
      fallback: library.fallback,
      kvTypes: Object.values(kvTypesOf(options)).join(','),
      lanes: fn.contextLanes(context),
      laneTokens: fn.contextLaneTokens(context) - spareTokens(options.flashAttention, options.rowUnit ?? 1),
      batchTokens: fn.contextBatch(context),
      threads: options.threads,
      flashAttention: options.flashAttention,
      extraBuffers: options.extraBuffers,
      rowUnit: options.rowUnit ?? 1,
      kvLayout: opened.family.form === null ? 'opaque' : formName(opened.family.form),
      vocabSize,
      layers: fn.modelLayers(model),
      kvBytesPerToken: opened.family.kvBytesPerToken,
      stateBytes: opened.family.stateBytes,
      trims: opened.family.trims,
      copies: opened.family.copies,
      cutsCopies: opened.family.trims && fn.modelWindow(model) === 0,
      images: opened.family.form !== null && opened.family.copies,
      trainedContext: fn.modelContext(model),
      bos: fn.vocabBos(this.#vocab),
      eos: fn.vocabEos(this.#vocab),
      chatTemplate: fn.modelTemplate(model, null),
      architecture: modelMeta(fn, model, 'general.architecture') ?? 'unknown',
      memory: fn.modelIsHybrid(model) ? 'hybrid' : fn.modelIsRecurrent(model) ? 'recurrent' : fn.modelWindow(model) > 0 ? 'window' : 'attention',
      modelBytes: Number(fn.modelBytes(model)),
    }
  }

  /** How long the decode under way has taken; 0 where none is. */
  get busyMs(): number {
    return this.#busySinceMs === null ? 0 : Math.round(performance.now() - this.#busySinceMs)
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

  /** The same, a long text on a thread of its own; the model must not be disposed of meanwhile. */
  async tokenizeAside(text: string, parseSpecial: boolean): Promise<Int32Array> {
    if (text.length < ASIDE_CHARS) return this.tokenize(text, parseSpecial)
    this.#use()
    const bytes = Buffer.from(text, 'utf8')
    // No text has more tokens than bytes, but for a space that some vocabularies put before it.
    const tokens = new Int32Array(bytes.length + 16)
    const count = await onThread((done) =>
      this.#fn.tokenize.async(this.#vocab, bytes, bytes.length, tokens, tokens.length, false, parseSpecial, done))
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
    const isLone = this.info.flashAttention === 'exact' && hasLoneRow(rows)
    const isDoubled = isLone && rows.length === 1 && this.info.trims && this.#threads > LONE_THREADS_MAX
    const unit = isDoubled ? 2 : this.info.rowUnit
    const padded = unit === 1 ? null : pad(rows, unit)
    this.#checkRows(rows, padded?.rows.length ?? rows.length)
    this.#decoded = []
    this.#places = padded?.places ?? null
    const batch = this.#opened.rows.fill(padded?.rows ?? rows)
    this.#busySinceMs = performance.now()
    try {
      this.#setThreads(isLone && !isDoubled ? 1 : this.#threads)
      const code = await this.#thread.decode(this.#context, batch)
      if (code !== 0) throw new LlamaError('decode', decodeFailure(code, rows))
      for (const { lane, from } of padded?.cuts ?? []) this.#fn.memoryRemove(this.#memory, lane, from, -1)
      this.#decoded = rows
    } finally {
      this.#busySinceMs = null
    }
  }

  /** How many threads compute from the next decode on. */
  useThreads(count: number): void {
    this.#idle('threads')
    if (!Number.isInteger(count) || count < 1 || count > this.info.threads) {
      throw new LlamaError('decode', `${count} threads: it takes 1 to ${this.info.threads}`)
    }
    this.#threads = count
  }

  #setThreads(count: number): void {
    if (count !== this.#threadsSet) this.#fn.setThreads(this.#context, count, count)
    this.#threadsSet = count
  }

  /** One row's logits, copied into `into`; the index is the row's place in the last decode. */
  logits(rowIndex: number, into: Float32Array = new Float32Array(this.info.vocabSize)): Float32Array {
    this.#idle('logits')
    if (this.#decoded[rowIndex]?.logits !== true) {
      throw new LlamaError('decode', `row ${rowIndex} of the last batch has no logits: it did not ask for them`)
    }
    const at = this.#fn.logitsAt(this.#context, this.#places?.[rowIndex] ?? rowIndex)
    if (at === null) throw new LlamaError('decode', `the library kept no logits of row ${rowIndex}`)
    into.set(this.#viewOf(at))
    return into
  }

  /** The library gives a row the same place in every batch until it takes more room; a view costs more than a copy. */
  #viewOf(at: Pointer): Float32Array {
    const known = this.#views.get(at)
    if (known !== undefined) return known
    if (this.#views.size >= this.info.batchTokens) this.#views.clear()
    const view = new Float32Array(koffi.view(at, this.info.vocabSize * 4))
    this.#views.set(at, view)
    return view
  }

  /** Forgets what a lane holds from a position on, or all of it where this family cannot; how many tokens are left. */
  cut(lane: number, fromPosition: number): number {
    this.#idle('cut')
    this.#checkLane(lane)
    if (!Number.isInteger(fromPosition) || fromPosition < 0) {
      throw new LlamaError('decode', `a cut of lane ${lane} from position ${fromPosition}`)
    }
    if (fromPosition < (this.#floors.get(lane) ?? 0) || !this.#fn.memoryRemove(this.#memory, lane, fromPosition, -1)) {
      this.#floors.delete(lane)
      this.#fn.memoryRemove(this.#memory, lane, -1, -1)
    }
    return this.laneUsed(lane)
  }

  /** Whether a cut from a position on leaves what is before it; else it empties the lane. */
  cutsAt(lane: number, fromPosition: number): boolean {
    return this.info.trims && fromPosition >= (this.#floors.get(lane) ?? 0)
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
    const read = Number(this.#fn.stateSet(this.#context, blob, blob.length, lane))
    this.#floors.delete(lane)
    if (read > 0 && read === blob.length) {
      if (!this.info.cutsCopies) this.#floors.set(lane, this.laneUsed(lane))
      return true
    }
    this.#fn.memoryRemove(this.#memory, lane, -1, -1)
    return false
  }

  dispose(): void {
    if (!this.#alive) return
    this.#idle('dispose')
    this.#alive = false
    this.#thread.close()
    closeModel(this.#opened)
  }

  #use(): void {
    if (!this.#alive) throw new LlamaError('decode', 'the model was used after it was disposed of')
  }

  #idle(what: string): void {
    this.#use()
    if (this.#busySinceMs !== null) throw new LlamaError('decode', `${what} while a decode runs: await it first`)
  }

  #checkLane(lane: number): void {
    if (Number.isInteger(lane) && lane >= 0 && lane < this.info.lanes) return
    throw new LlamaError('decode', `there is no lane ${lane}: this engine has ${this.info.lanes}`)
  }

  #checkToken(token: number): void {
    if (Number.isInteger(token) && token >= 0 && token < this.info.vocabSize) return
    throw new LlamaError('decode', `there is no token ${token}: the vocabulary has ${this.info.vocabSize}`)
  }

  #checkRows(rows: readonly Row[], count: number): void {
    if (rows.length === 0 || count > this.info.batchTokens) {
      throw new LlamaError('decode', `a batch of ${count} rows: it holds 1 to ${this.info.batchTokens}`)
    }
    const next = new Map<number, number>()
    for (const row of rows) {
      this.#checkLane(row.lane)
      this.#checkToken(row.token)
      const want = next.get(row.lane) ?? this.laneUsed(row.lane)
      if (row.position !== want || want >= this.info.laneTokens) {
        throw new LlamaError('decode', `position ${row.position} in lane ${row.lane}, which goes on at ${want} `
          + `and ends at ${this.info.laneTokens}`)
      }
      next.set(row.lane, want + 1)
    }
  }
}

/** Waits for a call of the library that runs on a thread of its own. */
const onThread = (begin: (done: Done) => void): Promise<number> => new Promise((resolve, reject) => {
  begin((error, result) => {
    if (error === null || error === undefined) resolve(result)
    else reject(error instanceof Error ? error : new Error(String(error)))
  })
})

function tokenFlags(fn: Functions, vocab: Pointer, vocabSize: number): Uint8Array {
  return Uint8Array.from({ length: vocabSize }, (_, token) => (
    (fn.vocabIsEog(vocab, token) ? TOKEN_EOG : 0) | (fn.vocabIsControl(vocab, token) ? TOKEN_CONTROL : 0)))
}

function decodeFailure(code: number, rows: readonly Row[]): string {
  const size = `a batch of ${rows.length} rows`
  if (code === 1) return `${size} found no free cells in its lane; nothing of it was fed`
  if (code === 2) return `${size} was aborted; part of it may have been fed`
  if (code === -1) return `${size} was refused by the library; nothing of it was fed`
  return `${size} failed in the library with code ${code}; part of it may have been fed`
}
