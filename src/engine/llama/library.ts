/**
 * Owns the shared library: where it is found, which CPU kernel it loaded, its functions with their types, and its log.
 * Leaves the struct layouts to `layout.ts` and what is done with the functions to `llama.ts` and `grammar.ts`.
 *
 * B1 one process loads one library: ggml's registry of backends is global to the process.
 * B2 the log never reaches JavaScript from another thread: while a decode runs, the library logs into a function that
 *    ignores its arguments; lines are captured only around synchronous calls.
 */
import koffi from 'koffi'
import type { LibraryHandle, TypeObject } from 'koffi'
import { createRequire } from 'node:module'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { crc32 } from 'node:zlib'
import { LlamaError } from './error.ts'
import { batch, checkLayout, contextParams, modelParams } from './layout.ts'
import type { Batch, ContextParams, MaybePointer, ModelParams, Pointer } from './layout.ts'

/** Lines of the library's log kept for an error message. */
const LOG_LINES_MAX = 8

/** The native side computes on koffi's own stacks; what a graph needs is far below this. */
const STACK_BYTES = 8 * 1024 * 1024

const PLATFORMS: Readonly<Record<string, string>> = {
  'linux-x64': 'linux-x64', 'linux-arm64': 'linux-arm64', 'darwin-arm64': 'mac-arm64-metal', 'darwin-x64': 'mac-x64',
  'win32-x64': 'win-x64', 'win32-arm64': 'win-arm64',
}

type Fn<A extends readonly unknown[], R> = (...args: A) => R

export interface Functions {
  readonly version: Fn<[], string>
  readonly modelDefaults: Fn<[], ModelParams>
  readonly contextDefaults: Fn<[], ContextParams>
  readonly modelLoad: Fn<[string, ModelParams], MaybePointer>
  readonly modelFree: Fn<[Pointer], void>
  readonly modelVocab: Fn<[Pointer], Pointer>
  readonly modelLayers: Fn<[Pointer], number>
  readonly modelHeads: Fn<[Pointer], number>
  readonly modelHeadsKv: Fn<[Pointer], number>
  readonly modelWidth: Fn<[Pointer], number>
  readonly modelContext: Fn<[Pointer], number>
  readonly modelWindow: Fn<[Pointer], number>
  readonly modelRope: Fn<[Pointer], number>
  readonly modelBytes: Fn<[Pointer], number | bigint>
  readonly modelTemplate: Fn<[Pointer, string | null], string | null>
  readonly modelMeta: Fn<[Pointer, string, Uint8Array, number], number>
  readonly modelHasDecoder: Fn<[Pointer], boolean>
  readonly modelHasEncoder: Fn<[Pointer], boolean>
  readonly modelIsRecurrent: Fn<[Pointer], boolean>
  readonly modelIsHybrid: Fn<[Pointer], boolean>
  readonly vocabTokens: Fn<[Pointer], number>
  readonly vocabBos: Fn<[Pointer], number>
  readonly vocabEos: Fn<[Pointer], number>
  readonly vocabIsEog: Fn<[Pointer, number], boolean>
  readonly vocabIsControl: Fn<[Pointer, number], boolean>
  readonly tokenize: Fn<[Pointer, Uint8Array, number, Int32Array, number, boolean, boolean], number>
  readonly piece: Fn<[Pointer, number, Uint8Array, number, number, boolean], number>
  readonly contextInit: Fn<[Pointer, ContextParams], MaybePointer>
  readonly contextFree: Fn<[Pointer], void>
  readonly contextLaneTokens: Fn<[Pointer], number>
  readonly contextLanes: Fn<[Pointer], number>
  readonly contextBatch: Fn<[Pointer], number>
  readonly memory: Fn<[Pointer], Pointer>
  readonly memoryRemove: Fn<[Pointer, number, number, number], boolean>
  readonly memoryLast: Fn<[Pointer, number], number>
  readonly decode: Fn<[Pointer, Batch], number> & {
    readonly async: (context: Pointer, batch: Batch, done: (error: unknown, result: number) => void) => void
  }
  readonly logitsAt: Fn<[Pointer, number], MaybePointer>
  readonly stateSize: Fn<[Pointer, number], number | bigint>
  readonly stateGet: Fn<[Pointer, Uint8Array, number, number], number | bigint>
  readonly stateSet: Fn<[Pointer, Uint8Array, number, number], number | bigint>
  readonly grammarInit: Fn<[Pointer, string, string], MaybePointer>
  readonly samplerApply: Fn<[Pointer, Pointer], void>
  readonly samplerAccept: Fn<[Pointer, number], void>
  readonly samplerClone: Fn<[Pointer], MaybePointer>
  readonly samplerFree: Fn<[Pointer], void>
}

export interface Library {
  /** Release and a digest of the files that compute. */
  readonly name: string
  /** The variant of ggml-cpu that the machine got, such as `haswell`. */
  readonly cpuKernel: string
  readonly fn: Functions
  /** Runs a synchronous call and gives back what the library logged meanwhile, warnings and errors only. */
  logged<T>(call: () => T): { readonly result: T; readonly lines: readonly string[] }
}

let opened: { readonly dir: string; readonly library: Library } | null = null

/** `dir` null: the npm package of this platform. */
export function openLibrary(dir: string | null): Library {
  const from = dir ?? packageDir()
  if (opened !== null) {
    if (opened.dir === from) return opened.library
    throw new LlamaError('library', `this process has loaded the llama library in ${opened.dir} and cannot load another `
      + `from ${from}. Run the second engine as a process of its own.`)
  }
  const library = load(from)
  opened = { dir: from, library }
  return library
}

function packageDir(): string {
  const platform = PLATFORMS[`${process.platform}-${process.arch}`]
  if (platform === undefined) {
    throw new LlamaError('library', `there is no prebuilt llama library for ${process.platform} on ${process.arch}. `
      + 'Build llama.cpp of the release named in the docs and give its directory as the library directory.')
  }
  const name = `@node-llama-cpp/${platform}`
  try {
    const entry = createRequire(import.meta.url).resolve(name)
    return join(dirname(dirname(entry)), 'bins', platform)
  } catch (error) {
    throw new LlamaError('library', `the package ${name}, which carries the llama library, is not installed `
      + `(${error instanceof Error ? error.message.split('\n')[0] : String(error)}). It is an optional dependency: `
      + 'install again without leaving those out, or give a library directory.')
  }
}

function load(dir: string): Library {
  const files = listed(dir)
  const llamaFile = match(dir, files, /^(lib)?llama(\.v?\d[\d.]*)?\.(so|dylib|dll)$/)
  const ggmlFile = match(dir, files, /^(lib)?ggml(\.v?\d[\d.]*)?\.(so|dylib|dll)$/)
  koffi.config({ sync_stack_size: STACK_BYTES, async_stack_size: STACK_BYTES })
  const { ggml, llama } = attempt(dir, () => ({
    ggml: koffi.load(join(dir, ggmlFile)), llama: koffi.load(join(dir, llamaFile)),
  }))
  const fn = attempt(dir, () => declare(llama))
  const log = new Log(llama)
  const { lines } = log.during(() => {
    ggml.func('ggml_backend_load_all_from_path', 'void', ['str'])(dir)
  })
  const devices = ggml.func('ggml_backend_dev_count', 'size_t', [])() as number
  if (devices === 0) {
    throw new LlamaError('library', `the llama library in ${dir} found no kernel for this CPU. ${lines.join(' ')}`)
  }
  checkLayout(fn.version(), fn.modelDefaults(), fn.contextDefaults())
  const kernelFile = kernelOf(dir, files)
  const digest = [llamaFile, ...files.filter((file) => /^(lib)?ggml-base/.test(file)), ...(kernelFile === null ? [] : [kernelFile])]
    .reduce((sum, file) => crc32(readFileSync(join(dir, file)), sum), 0)
  return {
    name: `llama.cpp-${fn.version()}-${digest.toString(16).padStart(8, '0')}`,
    cpuKernel: kernelFile === null ? 'builtin' : kernelName(kernelFile),
    fn,
    logged: (call) => log.during(call),
  }
}

function listed(dir: string): string[] {
  try {
    return readdirSync(dir).sort()
  } catch (error) {
    throw new LlamaError('library', `the llama library's directory ${dir} cannot be read `
      + `(${error instanceof Error ? error.message : String(error)}). Check the path, or leave it out.`)
  }
}

function match(dir: string, files: readonly string[], pattern: RegExp): string {
  const found = files.find((file) => pattern.test(file))
  if (found !== undefined) return found
  throw new LlamaError('library', `${dir} holds no file named like ${pattern.source}. `
    + 'Give the directory with the shared libraries of llama.cpp, or leave the setting out.')
}

function attempt<T>(dir: string, call: () => T): T {
  try {
    return call()
  } catch (error) {
    if (error instanceof LlamaError) throw error
    throw new LlamaError('library', `the llama library in ${dir} does not load `
      + `(${error instanceof Error ? error.message : String(error)}). `
      + 'It needs a glibc system of the same CPU type; reinstall its package or give another directory.')
  }
}

const KERNEL_FILE = /^(?:lib)?ggml-cpu-?(.*)\.(?:so|dylib|dll)$/

const kernelName = (file: string): string => {
  const variant = KERNEL_FILE.exec(file)?.[1]
  return variant === undefined || variant === '' ? 'cpu' : variant
}

/**
 * ggml loads the variant with the highest score. On Linux the process' own memory map says which one it is; elsewhere
 * the same question is put to the same files. Null where the kernels are part of another library.
 */
function kernelOf(dir: string, files: readonly string[]): string | null {
  const variants = files.filter((file) => KERNEL_FILE.test(file))
  if (process.platform === 'linux') {
    const maps = readFileSync('/proc/self/maps', 'utf8')
    const mapped = variants.filter((file) => maps.includes(join(dir, file)))
    if (mapped.length === 1) return mapped[0] ?? null
  }
  let best: { readonly file: string; readonly score: number } | null = null
  for (const file of variants) {
    const score = scoreOf(join(dir, file))
    if (score > (best?.score ?? 0)) best = { file, score }
  }
  return best?.file ?? null
}

function scoreOf(path: string): number {
  try {
    const library = koffi.load(path)
    const score = library.func('ggml_backend_score', 'int', [])() as number
    library.unload()
    return score
  } catch {
    // A variant that does not load here is none that ggml could have chosen.
    return 0
  }
}

/** The library's log: silent, or captured around a synchronous call (B2). */
class Log {
  readonly #set: Fn<[MaybePointer, MaybePointer], void>
  readonly #silent: Pointer
  readonly #capture: Pointer
  #lines: string[] = []
  #keep = false

  constructor(llama: LibraryHandle) {
    this.#set = llama.func('llama_log_set', 'void', ['void *', 'void *']) as Fn<[MaybePointer, MaybePointer], void>
    // A function without arguments and effects: called as a log callback it ignores what it is given.
    this.#silent = llama.symbol('llama_max_devices') as Pointer
    const callback = koffi.proto('void', ['int', 'str', 'void *'])
    this.#capture = koffi.register((level: number, text: string) => this.#line(level, text), koffi.pointer(callback))
    this.#set(this.#silent, null)
  }

  during<T>(call: () => T): { result: T; lines: readonly string[] } {
    this.#lines = []
    this.#keep = false
    this.#set(this.#capture, null)
    try {
      return { result: call(), lines: this.#lines }
    } finally {
      this.#set(this.#silent, null)
      this.#lines = []
    }
  }

  /** Levels are debug 1, info 2, warn 3, error 4, and 5 to go on with the line before. */
  #line(level: number, text: string): void {
    if (level !== 5) this.#keep = level >= 3
    if (!this.#keep || text.trim() === '') return
    this.#lines.push(text.trim())
    if (this.#lines.length > LOG_LINES_MAX) this.#lines.shift()
  }
}

function declare(llama: LibraryHandle): Functions {
  const f = (name: string, result: TypeObject | string, args: (TypeObject | string)[]): unknown =>
    llama.func(name, result, args)
  const p = 'void *'
  return {
    version: f('llama_version', 'str', []),
    modelDefaults: f('llama_model_default_params', modelParams, []),
    contextDefaults: f('llama_context_default_params', contextParams, []),
    modelLoad: f('llama_model_load_from_file', p, ['str', modelParams]),
    modelFree: f('llama_model_free', 'void', [p]),
    modelVocab: f('llama_model_get_vocab', p, [p]),
    modelLayers: f('llama_model_n_layer', 'int32_t', [p]),
    modelHeads: f('llama_model_n_head', 'int32_t', [p]),
    modelHeadsKv: f('llama_model_n_head_kv', 'int32_t', [p]),
    modelWidth: f('llama_model_n_embd', 'int32_t', [p]),
    modelContext: f('llama_model_n_ctx_train', 'int32_t', [p]),
    modelWindow: f('llama_model_n_swa', 'int32_t', [p]),
    modelRope: f('llama_model_rope_type', 'int32_t', [p]),
    modelBytes: f('llama_model_size', 'uint64_t', [p]),
    modelTemplate: f('llama_model_chat_template', 'str', [p, 'str']),
    modelMeta: f('llama_model_meta_val_str', 'int32_t', [p, 'str', p, 'size_t']),
    modelHasDecoder: f('llama_model_has_decoder', 'bool', [p]),
    modelHasEncoder: f('llama_model_has_encoder', 'bool', [p]),
    modelIsRecurrent: f('llama_model_is_recurrent', 'bool', [p]),
    modelIsHybrid: f('llama_model_is_hybrid', 'bool', [p]),
    vocabTokens: f('llama_vocab_n_tokens', 'int32_t', [p]),
    vocabBos: f('llama_vocab_bos', 'int32_t', [p]),
    vocabEos: f('llama_vocab_eos', 'int32_t', [p]),
    vocabIsEog: f('llama_vocab_is_eog', 'bool', [p, 'int32_t']),
    vocabIsControl: f('llama_vocab_is_control', 'bool', [p, 'int32_t']),
    tokenize: f('llama_tokenize', 'int32_t', [p, p, 'int32_t', p, 'int32_t', 'bool', 'bool']),
    piece: f('llama_token_to_piece', 'int32_t', [p, 'int32_t', p, 'int32_t', 'int32_t', 'bool']),
    contextInit: f('llama_init_from_model', p, [p, contextParams]),
    contextFree: f('llama_free', 'void', [p]),
    contextLaneTokens: f('llama_n_ctx_seq', 'uint32_t', [p]),
    contextLanes: f('llama_n_seq_max', 'uint32_t', [p]),
    contextBatch: f('llama_n_batch', 'uint32_t', [p]),
    memory: f('llama_get_memory', p, [p]),
    memoryRemove: f('llama_memory_seq_rm', 'bool', [p, 'int32_t', 'int32_t', 'int32_t']),
    memoryLast: f('llama_memory_seq_pos_max', 'int32_t', [p, 'int32_t']),
    decode: f('llama_decode', 'int32_t', [p, batch]),
    logitsAt: f('llama_get_logits_ith', p, [p, 'int32_t']),
    stateSize: f('llama_state_seq_get_size', 'size_t', [p, 'int32_t']),
    stateGet: f('llama_state_seq_get_data', 'size_t', [p, p, 'size_t', 'int32_t']),
    stateSet: f('llama_state_seq_set_data', 'size_t', [p, p, 'size_t', 'int32_t']),
    grammarInit: f('llama_sampler_init_grammar', p, [p, 'str', 'str']),
    samplerApply: f('llama_sampler_apply', 'void', [p, p]),
    samplerAccept: f('llama_sampler_accept', 'void', [p, 'int32_t']),
    samplerClone: f('llama_sampler_clone', p, [p]),
    samplerFree: f('llama_sampler_free', 'void', [p]),
  } as Functions
}
