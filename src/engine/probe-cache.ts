/**
 * Owns the file that remembers what probes found, by what they depend on: the model, the library, the CPU's kernel and
 * the settings; and how fast the settings were, where that was asked. A file that cannot be read is as good as none; one that cannot be written is said on stderr.
 */
import { readFileSync, renameSync, writeFileSync } from 'node:fs'
import type { WireWeight } from '../protocol/engine.ts'
import { attentionName } from './llama/attention.ts'
import type { Llama } from './llama/llama.ts'
import { spareTokens } from './llama/padding.ts'
import type { Exact } from './probe.ts'

/** Grows when the probe asks more. */
const PROBE_VERSION = 1
/** At it the oldest answer is dropped. */
const ANSWERS_MAX = 64

export class ProbeCache {
  readonly #path: string
  readonly #key: string

  constructor(path: string, info: Llama['info'], modelDigest: string, chunkTokens: number, threads: number) {
    this.#path = path
    this.#key = [
      `probe${PROBE_VERSION}`, modelDigest, info.library, info.cpuKernel, info.kvLayout,
      attentionName(info.flashAttention), info.extraBuffers ? 'repacked' : 'plain',
      info.lanes, info.laneTokens + spareTokens(info.flashAttention, info.rowUnit), chunkTokens, threads, info.kvTypes, info.gpu ?? 'cpu',
      ...(info.rowUnit === 1 ? [] : [`rows${info.rowUnit}`]),
    ].join('/')
  }

  read(): Exact | null {
    const found = this.#answers().find(([key]) => key === this.#key)?.[1]
    return found === undefined ? null : { answer: found.answer, because: found.because }
  }

  /** With speeds where the settings were weighed. */
  write(exact: Exact | WireWeight): void {
    const others = this.#answers().filter(([key]) => key !== this.#key)
    const answer = 'exact' in exact ? { ...exact.exact, prefillTokensPerS: exact.prefillTokensPerS, decodeTokensPerS: exact.decodeTokensPerS } : exact
    const answers = [...others, [this.#key, answer]].slice(-ANSWERS_MAX)
    const partial = `${this.#path}.${process.pid}.partial`
    try {
      writeFileSync(partial, `${JSON.stringify({ answers }, null, 2)}\n`)
      renameSync(partial, this.#path)
    } catch (error) {
      process.stderr.write(`the probe's answer is not kept: ${String(error)}\n`)
    }
  }

  #answers(): readonly (readonly [string, Exact])[] {
    try {
      const file: unknown = JSON.parse(readFileSync(this.#path, 'utf8'))
      return typeof file === 'object' && file !== null && 'answers' in file && Array.isArray(file.answers)
        ? file.answers.filter(isAnswer) : []
    } catch (error) {
      const absent = error instanceof Error && 'code' in error && error.code === 'ENOENT'
      if (!absent) process.stderr.write(`earlier probes' answers cannot be read; they are asked anew: ${String(error)}\n`)
      return []
    }
  }
}

function isAnswer(entry: unknown): entry is readonly [string, Exact] {
  if (!Array.isArray(entry) || typeof entry[0] !== 'string') return false
  const exact: unknown = entry[1]
  return typeof exact === 'object' && exact !== null && 'answer' in exact && 'because' in exact
    && typeof exact.because === 'string' && (exact.answer === 'yes' || exact.answer === 'no')
}
