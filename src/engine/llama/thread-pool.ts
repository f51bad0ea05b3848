/**
 * Owns the library's threads that compute beside the one that calls it. They stay from batch to batch and look for the
 * next one a while before they sleep; without a pool the library starts them anew for every batch, and a token that takes
 * 7 ms takes 14 to 18.
 */
import type { LibraryHandle } from 'koffi'
import type { MaybePointer, Pointer } from './layout.ts'

/** `ggml_threadpool_params` takes 528: a mask of 512 processors, then numbers. Only the library reads and writes it. */
const PARAMS_BYTES = 1_024

export interface ThreadPool {
  readonly pointer: Pointer
  /** Not while a context that has it is in use. */
  free(): void
}

/** So many threads, the caller's among them. Null: this build has no such thing, and starts them for each batch. */
export function threadPool(base: LibraryHandle, kernel: LibraryHandle, threads: number): ThreadPool | null {
  const functions = declared(base, kernel)
  if (functions === null || threads < 2) return null
  const params = new Uint8Array(PARAMS_BYTES)
  functions.init(params, threads)
  const pointer = functions.make(params)
  return pointer === null ? null : { pointer, free: () => functions.free(pointer) }
}

interface PoolFunctions {
  readonly init: (params: Uint8Array, threads: number) => void
  readonly make: (params: Uint8Array) => MaybePointer
  readonly free: (pool: Pointer) => void
}

function declared(base: LibraryHandle, kernel: LibraryHandle): PoolFunctions | null {
  try {
    return {
      init: base.func('ggml_threadpool_params_init', 'void', ['void *', 'int']),
      make: kernel.func('ggml_threadpool_new', 'void *', ['void *']),
      free: kernel.func('ggml_threadpool_free', 'void', ['void *']),
    }
  } catch {
    // A build whose kernels are within another library does not show them.
    return null
  }
}
