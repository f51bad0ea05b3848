import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { engineContract } from './contract.ts'
import { TINY_SEED, tinyEngine, tinyLong, tinyShort } from './tiny-engine.ts'

engineContract('the embedded engine', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'embedded-'))
  return { engine: tinyEngine(dir), long: tinyLong, short: tinyShort, seed: TINY_SEED, dir, dispose: () => rm(dir, { recursive: true }) }
})
