import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createScriptedEngine } from '../../src/engines/scripted.ts'
import { readScript } from '../../src/engines/script-file.ts'
import { chatCall, engineContract, type Subject } from './contract.ts'

const LONG = Array.from({ length: 60 }, (_, index) => `word${index}`).join(' ')

const shape = (more: Record<string, unknown>) => async (): Promise<Subject> => {
  const dir = await mkdtemp(join(tmpdir(), 'scripted-'))
  const script = readScript({
    models: ['m'], tokensPerSecond: 500, promptTokensPerSecond: 20_000,
    items: [{ match: 'long', text: LONG, tokensPerSecond: 240 }, { text: 'A short answer, and no more.' }], ...more,
  })
  return {
    engine: createScriptedEngine({ id: 'scripted', script }),
    long: chatCall('m', 'a long story'),
    short: chatCall('m', 'please be brief'),
    seed: 1,
    dir,
    dispose: () => rm(dir, { recursive: true }),
  }
}

engineContract('scripted in lanes', shape({}))
engineContract('scripted in blocks', shape({ contextTokens: 1_024, memory: { granuleTokens: 16, granules: 128, sequences: 32 } }))
engineContract('scripted without a lower tier', shape({ residency: false, preempt: false }))
engineContract('scripted with its own counsel about memory', shape({ memory: null }))
engineContract('scripted without a tokenizer', shape({ tokenise: false }))
