/**
 * Owns which build of the library computes: the package of this platform for the CPU, for CUDA, for Vulkan or for Metal,
 * and the file in it that knows the device. Every package holds the CPU's kernels too, so what has no device computes on
 * the CPU with the library it has.
 */
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { LlamaError } from './error.ts'

export const BUILDS = ['auto', 'cpu', 'cuda', 'vulkan', 'metal'] as const
export type Build = (typeof BUILDS)[number]
type Gpu = Exclude<Build, 'auto' | 'cpu'>

/** The best first. */
const GPUS: readonly Gpu[] = ['cuda', 'vulkan', 'metal']

type Packages = { readonly [B in 'cpu' | Gpu]?: string }

const PACKAGES: Readonly<Record<string, Packages>> = {
  'linux-x64': { cpu: 'linux-x64', cuda: 'linux-x64-cuda', vulkan: 'linux-x64-vulkan' },
  'linux-arm64': { cpu: 'linux-arm64' },
  'darwin-arm64': { cpu: 'mac-arm64-metal', metal: 'mac-arm64-metal' },
  'darwin-x64': { cpu: 'mac-x64' },
  'win32-x64': { cpu: 'win-x64', cuda: 'win-x64-cuda', vulkan: 'win-x64-vulkan' },
  'win32-arm64': { cpu: 'win-arm64' },
}

export interface Choice {
  readonly dir: string
  /** What is tried, the best first. */
  readonly gpus: readonly Gpu[]
  /** Why it is not the build that was asked for; null where it is. */
  readonly fallback: string | null
}

/** `dir` null: the npm package. Throws where not even the CPU's is there. */
export function chooseBuild(dir: string | null, build: Build): Choice {
  const wanted = build === 'cpu' ? [] : build === 'auto' ? GPUS : [build]
  if (dir !== null) return { dir, gpus: wanted, fallback: null }
  const platform = `${process.platform}-${process.arch}`
  const packages = PACKAGES[platform]
  if (packages?.cpu === undefined) {
    throw new LlamaError('library', `there is no prebuilt llama library for ${process.platform} on ${process.arch}. `
      + 'Build llama.cpp of the release named in the docs and give its directory as the library directory.')
  }
  for (const gpu of wanted) {
    const name = packages[gpu]
    const found = name === undefined ? null : placeOf(name)
    if (typeof found === 'string') return { dir: found, gpus: [gpu], fallback: null }
  }
  return { dir: cpuDir(packages.cpu), gpus: [], fallback: build === 'auto' || build === 'cpu' ? null : missing(build, packages[build], platform) }
}

function missing(build: Build, name: string | undefined, platform: string): string {
  const why = name === undefined ? `there is none for ${platform}` : `the package @node-llama-cpp/${name} is not installed`
  return `no ${build} build of the llama library is here (${why}): the CPU computes`
}

function cpuDir(name: string): string {
  const found = placeOf(name)
  if (typeof found === 'string') return found
  throw new LlamaError('library', `the package @node-llama-cpp/${name}, which carries the llama library, is not installed `
    + `(${found instanceof Error ? found.message.split('\n')[0] : String(found)}). It is an optional dependency: `
    + 'install again without leaving those out, or give a library directory.')
}

/** Its folder of libraries, or why there is none. */
function placeOf(name: string): unknown {
  try {
    const entry = createRequire(import.meta.url).resolve(`@node-llama-cpp/${name}`)
    return join(dirname(dirname(entry)), 'bins', name)
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error))
  }
}

/** The file that knows such a device; undefined where this build has none. */
export const gpuFile = (files: readonly string[], gpu: Gpu): string | undefined =>
  files.find((file) => new RegExp(`^(lib)?ggml-${gpu}(\\.[\\w.]+)?\\.(so|dylib|dll)$`).test(file))
