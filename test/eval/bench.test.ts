import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { ResumeProgram } from '../../bench/resume-program.ts'
import { ORDERS, armOf, ENTRACTE, serverConfig } from '../../src/eval/arm.ts'
import { defaultConfig } from '../../src/config.ts'
import { fitTo, loadMix } from '../../src/eval/mix.ts'
import { fakeServer } from './fake-server.ts'

const bench = (...words: string[]): { readonly code: number | null; readonly out: string; readonly err: string } => {
  const ran = spawnSync(process.execPath, [fileURLToPath(new URL('../../bench/main.js', import.meta.url)), ...words], { encoding: 'utf8' })
  return { code: ran.status, out: ran.stdout, err: ran.stderr }
}

describe('the bench runner', () => {
  test('lists what there is', () => {
    const { code, out } = bench('list')
    assert.equal(code, 0)
    assert.match(out, /resume +time to first token[^]*demo-mix/)
  })
  test('refuses a name that is not there, and none, as wrong usage', () => {
    assert.deepEqual([bench('speed').code, bench().code], [2, 2])
    assert.match(bench('speed').err, /no bench "speed".*npm run bench/)
  })
})

describe('an arm', () => {
  test('is a configuration that the schema takes, for every order and residency', () => {
    const mix = loadMix()
    for (const order of ORDERS) {
      for (const residency of ['lru-host', 'least-cost', 'always-preserve', 'always-offload', 'always-discard'] as const) {
        for (const model of ['default', 'tiny']) {
          const config = defaultConfig(serverConfig(armOf(order, residency), fitTo(mix, model).engine, model, { dataDir: '/d', imagesDir: '/i' }))
          assert.deepEqual([config.core.order, config.core.residency, config.core.exactResume], [order, residency, residency !== 'lru-host'])
        }
      }
    }
  })
  test('called Entracte is what a configuration says that says nothing', () => {
    const { order, residency, exactResume } = defaultConfig().core
    assert.deepEqual([ENTRACTE.order, ENTRACTE.residency, ENTRACTE.exactResume], [order, residency, exactResume])
  })
})

describe('the program whose resume is timed', () => {
  const place = (url: string) => ({ url, model: 'fake', id: 'r', signal: AbortSignal.timeout(20_000) })

  test('generates a quarter of its context, then asks its tool, and takes the result', async () => {
    let states: object[] = [{ residence: 'moving', tier: null }]
    const fake = await fakeServer({
      instead: ({ method, path }, response) => {
        if (method !== 'GET' || path !== '/v1/programs/r') return false
        response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ states }))
        states = [{ residence: 'suspended', tier: 'host' }]
        return true
      },
    })
    try {
      const program = new ResumeProgram(place(fake.url))
      const built = await program.build(400, 1)
      assert.ok(built.generatedTokens >= 100, 'the fake writes nine tokens a call')
      await program.rest('host')
      const resumed = await program.answerTool()
      assert.ok(resumed.firstTokenMs > 0 && resumed.cachedTokens === 60)
      await program.askTool()
      const asked = fake.seen.filter(({ path }) => path === '/v1/chat/completions')
      const roles = asked.at(-1)?.body.messages.slice(-5).map(({ role }: { role: string }) => role)
      assert.deepEqual(roles, ['user', 'assistant', 'tool', 'assistant', 'user'])
      assert.ok(asked.every(({ headers }) => headers['x-program-id'] === 'r' && headers['x-program-final'] === undefined))
    } finally {
      await fake.close()
    }
  })
})
