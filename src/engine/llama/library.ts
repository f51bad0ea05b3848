/**
 * Owns the shared library: where it is found, which CPU kernel it loaded, and its name. Leaves its functions to
 * `functions.ts`, struct layouts to `layout.ts`, its log to `log.ts`.
 *
 * B1 one process loads one library: ggml's registry of backends is global to the process.
 */
import type { LibraryHandle } from 'koffi'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { chooseBuild, gpuFile } from './build.ts'
import type { Build, Choice } from './build.ts'
import { LlamaError } from './error.ts'
import { declareFunctions } from './functions.ts'
import type { Functions } from './functions.ts'
import { checkLayout } from './layout.ts'
import { Log } from './log.ts'
import { openNative } from './native.ts'
import { threadPool } from './thread-pool.ts'
import type { ThreadPool } from './thread-pool.ts'

export interface Library {
  /** Release and a digest of the files that compute. */
  readonly name: string
  /** The variant of ggml-cpu that the machine got, such as `haswell`. */
  readonly cpuKernel: string
  /** What computes beside the CPU; null: nothing. */
  readonly gpu: string | null
  /** Why it is not the build that was asked for; null where it is. */
  readonly fallback: string | null
  readonly fn: Functions
  /** Where `fn` is from. */
  readonly file: string
  /** Threads that compute, the caller's among them; null where the library starts its own for each batch. */
  pool(threads: number): ThreadPool | null
  /** Runs a synchronous call and gives back what the library logged meanwhile, warnings and errors only. */
  logged<T>(call: () => T): { readonly result: T; readonly lines: readonly string[] }
}

let opened: { readonly key: string; readonly library: Library } | null = null

/** `dir` null: the npm package of this platform. */
export function openLibrary(dir: string | null, build: Build = 'cpu'): Library {
  const choice = chooseBuild(dir, build)
  const key = [choice.dir, ...choice.gpus].join(' ')
  if (opened !== null) {
    if (opened.key === key) return opened.library
    throw new LlamaError('library', `this process has loaded the llama library in ${opened.key} and cannot load `
      + `another from ${key}. Run the second engine as a process of its own.`)
  }
  const library = load(choice)
  opened = { key, library }
  return library
}

function load(choice: Choice): Library {
  const { dir } = choice
  const files = listed(dir)
  const llamaFile = match(dir, files, /^(lib)?llama(\.[\w.]+)?\.(so|dylib|dll)$/)
  const ggmlFile = match(dir, files, /^(lib)?ggml(\.[\w.]+)?\.(so|dylib|dll)$/)
  const { ggml, fn, log } = attempt(dir, () => {
    const ggml = openNative(join(dir, ggmlFile))
    const llama = openNative(join(dir, llamaFile))
    return { ggml, fn: declareFunctions(llama), log: new Log(llama) }
  })
  const kernelFile = bestKernel(dir, files)
  const { result: devices, lines } = log.during(() => {
    if (kernelFile === null) ggml.func('ggml_backend_load_all_from_path', 'void', ['str'])(dir)
    else ggml.func('ggml_backend_load', 'void *', ['str'])(join(dir, kernelFile))
    return deviceCount(ggml)
  })
  if (devices === 0) {
    throw new LlamaError('library', `the llama library in ${dir} has no kernel for this CPU. ${lines.join(' ')}`.trim())
  }
  checkLayout(fn.version(), fn.modelDefaults(), fn.contextDefaults())
  const gpu = loadGpu(ggml, choice, files, log)
  const base = files.filter((file) => /^(lib)?ggml-base/.test(file))
  const digest = [llamaFile, ...base, ...(kernelFile === null ? [] : [kernelFile]), ...(gpu.file === null ? [] : [gpu.file])]
    .reduce((sum, file) => crc32(readFileSync(join(dir, file)), sum), 0)
  return {
    name: `llama.cpp-${fn.version()}-${digest.toString(16).padStart(8, '0')}`,
    cpuKernel: kernelFile === null ? 'builtin' : kernelName(kernelFile),
    gpu: gpu.name,
    fallback: choice.fallback ?? gpu.fallback,
    fn,
    file: join(dir, llamaFile),
    pool: (threads) => kernelFile === null || base[0] === undefined ? null
      : threadPool(openNative(join(dir, base[0])), openNative(join(dir, kernelFile)), threads),
    logged: (call) => log.during(call),
  }
}

const deviceCount = (ggml: LibraryHandle): number => ggml.func('ggml_backend_dev_count', 'size_t', [])() as number

interface LoadedGpu { readonly name: string | null; readonly file: string | null; readonly fallback: string | null }

/** The first that finds a device; without one the CPU computes, with this same library. */
function loadGpu(ggml: LibraryHandle, { dir, gpus }: Choice, files: readonly string[], log: Log): LoadedGpu {
  const whys: string[] = []
  for (const gpu of gpus) {
    const file = gpuFile(files, gpu)
    if (file === undefined) {
      // Of several that are welcome, what is not there was not asked for.
      if (gpus.length === 1) whys.push(`${dir} holds no ${gpu} library`)
      continue
    }
    const before = deviceCount(ggml)
    const { lines } = log.during(() => ggml.func('ggml_backend_load', 'void *', ['str'])(join(dir, file)))
    if (deviceCount(ggml) > before) return { name: gpu, file, fallback: null }
    whys.push(`${file} finds no device. ${lines.join(' ')}`.trim())
  }
  const fallback = whys.length === 0 ? null : `no GPU can be used (${whys.join('; ')}): the CPU computes`
  return { name: null, file: null, fallback }
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
 * The variant with the highest score of its own, which is also ggml's choice. It alone is loaded: a BLAS or a GPU
 * library beside it would take the larger batches and compute them otherwise (E1). Null where another file has them.
 */
function bestKernel(dir: string, files: readonly string[]): string | null {
  let best: { readonly file: string; readonly score: number } | null = null
  for (const file of files.filter((name) => KERNEL_FILE.test(name))) {
    const score = scoreOf(join(dir, file))
    if (score > (best?.score ?? 0)) best = { file, score }
  }
  return best?.file ?? null
}

/** 0 where the CPU lacks what the variant uses; a build that has but one variant may have no score. */
function scoreOf(path: string): number {
  let library: LibraryHandle
  try {
    library = openNative(path)
  } catch {
    // What does not load here cannot be chosen.
    return 0
  }
  try {
    return library.func('ggml_backend_score', 'int', [])() as number
  } catch {
    // Without a score it is the only one of its build.
    return 1
  } finally {
    library.unload()
  }
}
