/** Owns how the models of `quantisations.ts` are opened, in its own process and in those that say what is resident. */
import type { LlamaOptions } from '../src/engine/llama/llama.ts'

export const FED_TOKENS = 128

export const openedAs: Omit<LlamaOptions, 'modelPath'> = {
  lanes: 4, laneTokens: 512, batchTokens: FED_TOKENS, threads: 1, flashAttention: false, extraBuffers: true, libraryDir: null,
}
