/** Runs `llama_decode` where `decode-thread.ts` says, one batch after the other. */
import { parentPort, workerData } from 'node:worker_threads'
import type { DecodeAnswer, DecodeOrder } from './decode-thread.ts'
import { declareDecode } from './functions.ts'
import { openNative } from './native.ts'

const decode = declareDecode(openNative(String(workerData)))
parentPort?.on('message', ({ context, batch }: DecodeOrder) => {
  const answer: DecodeAnswer = { code: decode(context, batch) }
  parentPort?.postMessage(answer)
})
