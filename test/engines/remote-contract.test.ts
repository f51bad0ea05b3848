import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { engineContract } from './contract.ts'
import { hosted, remoteEngine } from './remote-engine.ts'
import { TINY_SEED, tinyLong, tinyShort } from './tiny-engine.ts'

engineContract('the embedded engine of another machine', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'remote-'))
  const host = await hosted(dir)
  const dispose = async (): Promise<void> => {
    host.close()
    await host.ended
    await rm(dir, { recursive: true })
  }
  return { engine: remoteEngine(host.port), long: tinyLong, short: tinyShort, seed: TINY_SEED, dir, dispose }
})
