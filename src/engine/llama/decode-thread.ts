/**
 * Owns the one thread on which batches are computed. It is always the same: where each batch comes on another, as from
 * a pool, the system often puts it on the processor on which a thread of the library waits by spinning, and a token that
 * takes 7 ms takes 15.
 *
 * D1 one batch at a time; the process stays alive for it, and for nothing else of this thread.
 */
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import type { Batch, Pointer } from './layout.ts'

/** What the thread is told and answers: `decode-worker.ts`. */
export interface DecodeOrder { readonly context: Pointer; readonly batch: Batch }
export interface DecodeAnswer { readonly code: number }

/** It computes on the library's side: nearly nothing of its own is on its heap. */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 1 }

export class DecodeThread {
  readonly #worker: Worker

  /** `libraryFile`: the one that the context is of. */
  constructor(libraryFile: string) {
    this.#worker = new Worker(new URL('./decode-worker.js', import.meta.url), { workerData: libraryFile, resourceLimits: RESOURCE_LIMITS })
    this.#worker.unref()
  }

  /** The library's own answer. Throws where the thread failed. */
  async decode(context: Pointer, batch: Batch): Promise<number> {
    const order: DecodeOrder = { context, batch }
    this.#worker.ref()
    try {
      this.#worker.postMessage(order)
      const [answer] = await once(this.#worker, 'message') as [DecodeAnswer]
      return answer.code
    } finally {
      this.#worker.unref()
    }
  }

  /** Not while a batch is computed. */
  close(): void {
    void this.#worker.terminate()
  }
}
