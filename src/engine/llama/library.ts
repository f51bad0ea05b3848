/**
 * Owns the shared library: where it is found, which CPU kernel it loaded, and its name. Leaves its functions to
 * `functions.ts`, struct layouts to `layout.ts`, its log to `log.ts`.
 *
 * B1 one process loads one library: ggml's registry of backends is global to the process.
 */
import koffi from 'koffi'
import type { LibraryHandle } from 'koffi'
import { createRequire } from 'node:module'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { crc32 } from 'node:zlib'
import { LlamaError } from './error.ts'
import { declareFunctions } from './functions.ts'
import type { Functions } from './functions.ts'
import { checkLayout } from './layout.ts'
import { Log } from './log.ts'

/** The native side computes on koffi's own stacks; what a graph needs is far below this. */
const STACK_BYTES = 8 * 1024 * 1024

const PLATFORMS: Readonly<Record<string, string>> = {
  'linux-x64': 'linux-x64', 'linux-arm64': 'linux-arm64', 'darwin-arm64': 'mac-arm64-metal', 'darwin-x64': 'mac-x64',
  'win32-x64': 'win-x64', 'win32-arm64': 'win-arm64',
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

/** The stacks can be set until something is loaded. */
let configured = false
let opened: { readonly dir: string; readonly library: Library } | null = null

/** `dir` null: the npm package of this platform. */
export function openLibrary(dir: string | null): Library {
  const from = dir ?? packageDir()
  if (opened !== null) {
    if (opened.dir === from) return opened.library
    throw new LlamaError('library', `this process has loaded the llama library in ${opened.dir} and cannot load `
      + `another from ${from}. Run the second engine as a process of its own.`)
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
  const llamaFile = match(dir, files, /^(lib)?llama(\.[\w.]+)?\.(so|dylib|dll)$/)
  const ggmlFile = match(dir, files, /^(lib)?ggml(\.[\w.]+)?\.(so|dylib|dll)$/)
  if (!configured) koffi.config({ sync_stack_size: STACK_BYTES, async_stack_size: STACK_BYTES })
  configured = true
  const { ggml, fn, log } = attempt(dir, () => {
    const ggml = koffi.load(join(dir, ggmlFile))
    const llama = koffi.load(join(dir, llamaFile))
    return { ggml, fn: declareFunctions(llama), log: new Log(llama) }
  })
  const kernelFile = bestKernel(dir, files)
  const { result: devices, lines } = log.during(() => {
    if (kernelFile === null) ggml.func('ggml_backend_load_all_from_path', 'void', ['str'])(dir)
    else ggml.func('ggml_backend_load', 'void *', ['str'])(join(dir, kernelFile))
    return ggml.func('ggml_backend_dev_count', 'size_t', [])() as number
  })
  if (devices === 0) {
    throw new LlamaError('library', `the llama library in ${dir} has no kernel for this CPU. ${lines.join(' ')}`.trim())
  }
  checkLayout(fn.version(), fn.modelDefaults(), fn.contextDefaults())
  const base = files.filter((file) => /^(lib)?ggml-base/.test(file))
  const digest = [llamaFile, ...base, ...(kernelFile === null ? [] : [kernelFile])]
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
    library = koffi.load(path)
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
