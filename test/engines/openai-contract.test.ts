import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { OpenaiEngine } from '../../src/engines/openai.ts'
import { chatCall, engineContract, type Subject } from './contract.ts'
import { FakeUpstream } from './fake-upstream.ts'
import { pause } from './listener.ts'

/** Counts to forty where it is asked for something long. */
async function openai(): Promise<Subject> {
  const dir = await mkdtemp(join(tmpdir(), 'openai-'))
  const upstream = await new FakeUpstream(async (asked, reply) => {
    const long = JSON.stringify(asked.body['messages']).includes('long')
    reply.stream().chunk({ role: 'assistant', content: '' })
    for (let word = 0; word < (long ? 40 : 4) && asked.hungUpMs === null; word += 1) {
      reply.chunk({ content: `${word} ` })
      await pause(long ? 12 : 2)
    }
    reply.chunk({}, 'stop').usage(12, long ? 40 : 4).done()
  }).listen()
  return {
    engine: new OpenaiEngine({ id: 'openai', baseUrl: upstream.baseUrl, apiKey: null, models: ['m'], contextTokens: 2_048, runningMax: 4 }),
    long: chatCall('m', 'a long story'),
    short: chatCall('m', 'be brief'),
    seed: 1,
    dir,
    async dispose() {
      await upstream.close()
      await rm(dir, { recursive: true })
    },
  }
}

engineContract('an OpenAI-compatible upstream', openai)
