import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EmbeddedEngine } from '../../src/engines/embedded.ts'
import { writeTinyGguf } from '../../src/models/tiny-gguf.ts'
import { chatCall, engineContract, type Subject } from './contract.ts'

/** The real engine process with the tiny model. */
async function embedded(): Promise<Subject> {
  const dir = await mkdtemp(join(tmpdir(), 'embedded-'))
  const modelPath = join(dir, 'tiny.gguf')
  writeTinyGguf(modelPath)
  return {
    engine: new EmbeddedEngine({
      id: 'embedded', models: ['tiny'], modelPath, lanes: 4, laneTokens: 2_048, threads: 1, chunkTokens: 64,
      flashAttention: false, extraBuffers: true, libraryDir: null, probeCachePath: null, runtimeDir: join(dir, 'run'),
    }),
    long: chatCall('tiny', 'tell me a long story about a lane', { maxTokens: 1_100 }),
    short: chatCall('tiny', 'be brief', { maxTokens: 8 }),
    // Under it neither answer ends before its limit.
    seed: 20,
    dir,
    dispose: () => rm(dir, { recursive: true }),
  }
}

engineContract('the embedded engine', embedded)
