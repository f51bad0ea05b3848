/**
 * Owns what the library says: silence, or lines captured around a synchronous call. A log line never reaches JavaScript
 * from another thread: while a decode runs, the library logs into a function that ignores its arguments.
 */
import koffi from 'koffi'
import type { LibraryHandle } from 'koffi'
import type { MaybePointer, Pointer } from './layout.ts'

/** Lines kept for an error message. */
const LINES_MAX = 8

/** ggml's levels: debug 1, info 2, warn 3, error 4, and 5 for more of the line before. */
const LEVEL_WARN = 3
const LEVEL_CONTINUED = 5

type SetLog = (callback: MaybePointer, userData: MaybePointer) => void

export class Log {
  readonly #set: SetLog
  readonly #silent: Pointer
  readonly #capture: Pointer
  #lines: string[] = []
  #keep = false

  constructor(llama: LibraryHandle) {
    this.#set = llama.func('llama_log_set', 'void', ['void *', 'void *']) as SetLog
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

  #line(level: number, text: string): void {
    if (level !== LEVEL_CONTINUED) this.#keep = level >= LEVEL_WARN
    if (!this.#keep || text.trim() === '') return
    this.#lines.push(text.trim())
    if (this.#lines.length > LINES_MAX) this.#lines.shift()
  }
}
