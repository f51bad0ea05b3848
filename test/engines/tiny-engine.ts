/** The real engine process with the tiny model, as tests start it. */
import { join } from 'node:path'
import { EmbeddedEngine } from '../../src/engines/embedded.ts'
import { writeTinyGguf } from '../../src/models/tiny-gguf.ts'
import { chatCall } from './contract.ts'

/** Under this seed neither call ends before its limit, or not long before it. */
export const TINY_SEED = 20
export const tinyLong = chatCall('tiny', 'tell me a long story about a lane', { maxTokens: 1_100 })
export const tinyShort = chatCall('tiny', 'be brief', { maxTokens: 8 })

export function tinyEngine(dir: string): EmbeddedEngine {
  const modelPath = join(dir, 'tiny.gguf')
  writeTinyGguf(modelPath)
  return new EmbeddedEngine({
    id: 'embedded', models: ['tiny'], modelPath, lanes: 4, laneTokens: 2_048, threads: 1, chunkTokens: 64,
    flashAttention: false, extraBuffers: true, libraryDir: null, probeCachePath: null, runtimeDir: join(dir, 'run'),
  })
}
