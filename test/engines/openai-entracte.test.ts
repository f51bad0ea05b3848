/** The adapter before our own door: one Entracte may stand behind another. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { defaultConfig } from '../../src/config.ts'
import { callId, stateId, tenantId } from '../../src/core/ids.ts'
import { OpenaiEngine } from '../../src/engines/openai.ts'
import { start, type Server } from '../../src/main.ts'
import { chatCall, engineContract } from './contract.ts'
import { Listener } from './listener.ts'

const LONG = Array.from({ length: 60 }, (_, index) => `word${index}`).join(' ')

async function served(dir: string): Promise<Server> {
  return await start(defaultConfig({
    listen: { port: 0 }, dataDir: join(dir, 'data'), imagesDir: join(dir, 'images'), logLevel: 'silent',
    engines: [{ id: 'script', kind: 'scripted', script: {
      models: ['m'], promptTokensPerSecond: 20_000, tokensPerSecond: 500,
      items: [
        { match: 'long', text: LONG, tokensPerSecond: 120 },
        { match: 'tool', toolCalls: [{ name: 'look', arguments: { at: 'it' } }] },
        { text: 'A short answer.' },
      ],
    } }],
  }))
}

const engineBefore = ({ url }: Server): OpenaiEngine =>
  new OpenaiEngine({ id: 'openai', baseUrl: url, apiKey: null, models: ['m'], contextTokens: 1_500, runningMax: 4 })

engineContract('an Entracte as upstream', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'upstream-'))
  const server = await served(dir)
  return {
    engine: engineBefore(server),
    long: chatCall('m', 'a long story'),
    short: chatCall('m', 'be brief'),
    seed: 1,
    dir,
    async dispose() {
      await server.close()
      await rm(dir, { recursive: true })
    },
  }
})

test('tool calls, usage and a hang-up pass through our own door', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'upstream-'))
  const server = await served(dir)
  const engine = engineBefore(server)
  t.after(async () => {
    await engine.close()
    await server.close()
    await rm(dir, { recursive: true })
  })
  const listener = new Listener()
  engine.open(1, listener)
  await listener.until('the engine to join', () => listener.inputs('engineJoined')[0])
  const begin = (call: string, content: string): void => {
    const body = JSON.stringify(chatCall('m', content, { tools: [{ name: 'look', description: 'looks', parameters: { type: 'object' } }] }))
    engine.perform({
      kind: 'start', call: callId(call), attempt: 1, run: 0, epoch: 0, state: stateId('s'), body, prepared: new Uint8Array(), baseTokens: 0, keepTokens: 0,
      recomputeTokens: 0, replay: 'plain', forced: [], seed: 3, maxTokens: 100, rank: 1, tenant: tenantId('t'), grantGranules: 0,
    })
  }
  begin('a', 'use a tool')
  const finished = await listener.finished(callId('a'), 1)
  assert.deepEqual([finished.finish, finished.toolCalls], ['tool_calls', [{ id: 'call_a_0', name: 'look' }]])
  const outcome = listener.outcomes(callId('a'), 1)[0]
  assert.ok(outcome !== undefined && outcome.promptTokens > 10 && outcome.outputTokens > 1, JSON.stringify(outcome))

  begin('b', 'a long story')
  await listener.until('a chunk', () => listener.chunks(callId('b'), 1)[0])
  const runningThere = (): number => [...server.driver.core.engines.values()].reduce((sum, { running }) => sum + running.size, 0)
  assert.equal(runningThere(), 1)
  engine.perform({ kind: 'cancel', call: callId('b'), attempt: 1 })
  await listener.until('its place there to be free', () => runningThere() === 0, 1_000)
})
