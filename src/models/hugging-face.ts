/**
 * Owns fetching one file of a repository on the Hugging Face hub, with the environment that its own tools read:
 * HF_ENDPOINT (a mirror), HF_TOKEN, HF_HUB_OFFLINE.
 */
import { createWriteStream } from 'node:fs'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Environment } from './cache.ts'

/** Until the answer's first line; a machine without a network learns it in this time. */
const ANSWER_MAX_MS = 5_000
/** Between two pieces of the file. */
const STALL_MAX_MS = 30_000

interface HubFile {
  readonly repository: string
  readonly revision: string
  readonly file: string
  readonly bytes: number
}

export async function fetchHubFile(
  wanted: HubFile,
  target: string,
  env: Environment,
  signal: AbortSignal | undefined,
  onBytes: (bytes: number, totalBytes: number) => void,
): Promise<void> {
  const endpoint = (env['HF_ENDPOINT'] || 'https://huggingface.co').replace(/\/+$/, '')
  const url = `${endpoint}/${wanted.repository}/resolve/${wanted.revision}/${wanted.file}`
  const patience = new Patience(signal)
  try {
    patience.wait(ANSWER_MAX_MS, `no answer within ${ANSWER_MAX_MS / 1000} s`)
    const headers = env['HF_TOKEN'] ? { authorization: `Bearer ${env['HF_TOKEN']}` } : {}
    const response = await fetch(url, { headers, signal: patience.signal })
    if (!response.ok || response.body === null) {
      await response.body?.cancel()
      throw new Error(`${endpoint} answered ${response.status} ${response.statusText}`.trimEnd())
    }
    let bytes = 0
    const counted = async function* (source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
      for await (const chunk of source) {
        patience.wait(STALL_MAX_MS, `no byte came for ${STALL_MAX_MS / 1000} s`)
        bytes += chunk.length
        if (bytes > wanted.bytes) throw new Error(`the file is longer than its ${wanted.bytes} bytes`)
        onBytes(bytes, wanted.bytes)
        yield chunk
      }
    }
    patience.wait(STALL_MAX_MS, `no byte came for ${STALL_MAX_MS / 1000} s`)
    await pipeline(Readable.fromWeb(response.body), counted, createWriteStream(target))
  } finally {
    patience.end()
  }
}

/** A signal that fires when the caller's does, or when the wait named last lasts too long. */
class Patience {
  readonly signal: AbortSignal
  readonly #controller = new AbortController()
  #timer: NodeJS.Timeout | undefined

  constructor(outer: AbortSignal | undefined) {
    this.signal = outer === undefined ? this.#controller.signal : AbortSignal.any([outer, this.#controller.signal])
  }

  wait(maxMs: number, why: string): void {
    this.end()
    this.#timer = setTimeout(() => this.#controller.abort(new Error(why)), maxMs)
  }

  end(): void {
    clearTimeout(this.#timer)
  }
}
