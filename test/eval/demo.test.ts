import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { describe, test } from 'node:test'
import { runDemo, type DemoOptions, type DemoWorld } from '../../src/eval/demo.ts'
import { callsOf, loadGraphs } from '../../src/eval/graphs.ts'
import { loadMix, type Mix } from '../../src/eval/mix.ts'
import { Progress } from '../../src/eval/progress.ts'
import { fakeServer, type Fake, type FakeOptions } from './fake-server.ts'

/** The checked-in programs, in no time. */
const MIX: Mix = { ...loadMix(), arrivalMeanMs: 3, waitMsMax: 4 }
const OPTIONS: DemoOptions = { model: 'default', seed: null, policy: null, keep: false, json: false }

interface Shown { readonly code: number; readonly out: string; readonly screen: string; readonly configs: readonly any[]; readonly fakes: readonly Fake[]; readonly closed: number }

async function demo(options: Partial<DemoOptions> = {}, fakeOptions: FakeOptions = {}, during?: (screen: string, abort: AbortController, url: string) => void, redraws = false): Promise<Shown> {
  const shown = { out: '', screen: '', closed: 0 }
  const configs: any[] = []
  const fakes: Fake[] = []
  const abort = new AbortController()
  const world: DemoWorld = {
    mix: MIX, signal: abort.signal, print: (text) => { shown.out += text },
    screen: {
      redraws, columns: 100,
      write: (text) => { shown.screen += text; during?.(shown.screen, abort, fakes.at(-1)?.url ?? '') },
    },
    start: async (config) => {
      configs.push(config)
      const fake = await fakeServer(fakeOptions)
      fakes.push(fake)
      return { url: fake.url, close: async () => { shown.closed += 1; await fake.close() } }
    },
  }
  const code = await runDemo({ ...OPTIONS, ...options }, world)
  return { ...shown, code, configs, fakes }
}

describe('the demo', () => {
  test('runs the same programs twice, in the same budgets, first as engines do and then by default', async () => {
    const { code, configs, fakes, closed } = await demo()
    assert.equal(code, 0)
    assert.equal(closed, 2)
    assert.deepEqual(configs.map(({ core }) => core), [
      { order: 'fcfs', residency: 'lru-host', exactResume: false, hostMiBMax: 48 },
      { order: 'gittins', residency: 'least-cost', exactResume: true, hostMiBMax: 48 },
    ])
    assert.deepEqual(configs[0].engines, configs[1].engines)
    assert.deepEqual(configs[0].listen, { host: '127.0.0.1', port: 0 })
    const asked = fakes.map(({ seen }) => seen.filter(({ path }) => path === '/v1/chat/completions').map(({ headers }) => headers['x-program-id']).sort())
    assert.deepEqual(asked[0], asked[1])
    const expected = MIX.programs.reduce((sum, { calls }) => sum + calls.length, 0) + loadGraphs().reduce((sum, program) => sum + callsOf(program), 0)
    assert.equal(asked[0]?.length, expected)
  })

  test('prints the table and explains who gained and who lost', async () => {
    const { out } = await demo()
    for (const words of ['mean program time', 'p95', 'longest wait', 'recomputed tokens', 'KV moved', 'gained most', 'where the time went', 'wrote the same in both runs for 12 of 12']) {
      assert.ok(out.includes(words), `${words} in\n${out}`)
    }
    assert.equal((out.match(/where the time went/g) ?? []).length, 2)
  })

  test('prints JSON alone where asked, and takes another order and seed', async () => {
    const { out, configs } = await demo({ json: true, policy: 'plas', seed: 99 })
    const parsed = JSON.parse(out)
    assert.equal(configs[1].core.order, 'plas')
    assert.deepEqual([parsed.model, parsed.seed], ['fake', 99])
    assert.deepEqual(parsed.arms.map(({ order, residency }: { order: string; residency: string }) => [order, residency]), [['fcfs', 'lru-host'], ['plas', 'least-cost']])
    assert.deepEqual(parsed.arms.map(({ programs }: { programs: unknown[] }) => programs.length), [14, 14])
    assert.ok(parsed.ratio.mean > 0 && parsed.size.lanesRatio === 3)
  })

  test('refuses an order that is not there', async () => {
    await assert.rejects(demo({ policy: 'best' }), /no order "best"/)
  })

  test('fails, and says which program and why, where one did not end', async () => {
    const { code, out } = await demo({}, {
      instead: ({ headers }, response) => headers['x-program-id'] === 'react-2' && Boolean(response.writeHead(503).end('no room')),
    })
    assert.equal(code, 1)
    assert.match(out, /react-2 failed: HTTP 503: no room/)
  })

})

describe('the demo, around its runs,', () => {
  test('leaves no folder behind, also where a server does not start', async () => {
    const { configs } = await demo()
    for (const { dataDir, imagesDir } of configs) assert.ok(!existsSync(dataDir) && !existsSync(imagesDir))
    let folder = ''
    const start = async (config: any): Promise<never> => { folder = config.dataDir; throw new Error('no port') }
    const world = { mix: MIX, signal: new AbortController().signal, print: () => {}, screen: { redraws: false, columns: 80, write: () => {} }, start }
    await assert.rejects(runDemo(OPTIONS, world), /no port/)
    assert.ok(folder !== '' && !existsSync(folder))
  })

  test('waits for the probe before it measures', async () => {
    let asked = 0
    const { fakes } = await demo({}, { exact: () => { asked += 1; return asked < 3 ? 'unknown' : 'yes' } })
    const paths = fakes[0]?.seen.map(({ path }) => path) ?? []
    assert.ok(paths.lastIndexOf('/v1/models') < paths.indexOf('/v1/programs') && paths.filter((path) => path === '/v1/models').length >= 3)
  })

  test('keeps the second server up where asked, with a curl line that works, until it is told to end', async () => {
    let tried: Promise<unknown> | null = null
    const { code, screen, closed } = await demo({ keep: true }, {}, (seen, abort, url) => {
      if (!seen.includes('curl ') || tried !== null) return
      tried = fetch(`${url}/v1/models`).then((response) => response.json()).finally(() => abort.abort())
    })
    assert.match(screen, /curl http:\/\/127\.0\.0\.1:\d+\/v1\/chat\/completions/)
    assert.ok(await tried)
    assert.deepEqual([code, closed], [0, 2])
  })

  test('ends at once when called off', async () => {
    const { code, closed } = await demo({}, {}, (seen, abort) => { if (seen.includes('to go')) abort.abort() })
    assert.deepEqual([code, closed], [130, 1])
  })

  test('ends at once when called off while an engine is still being probed', async () => {
    const beganAt = performance.now()
    const { code, closed, fakes } = await demo({}, { exact: () => 'unknown' }, (seen, abort) => { if (seen.includes('probing')) setTimeout(() => abort.abort(), 150) })
    assert.deepEqual([code, closed], [130, 1])
    assert.ok(performance.now() - beganAt < 5_000 && fakes[0]?.seen.every(({ path }) => path === '/v1/models'))
  })
})

describe('progress', () => {
  const program = [{ name: 'react-1', calls: 3 }, { name: 'react-2', calls: 3 }]
  test('is one block drawn again in place on a terminal', () => {
    let text = ''
    const progress = new Progress({ redraws: true, columns: 60, write: (more) => { text += more } }, 'run', program)
    progress.step({ program: program[0]?.name ?? '', kind: 'tool', call: 1, calls: 3, tool: 'search' }, 100)
    progress.end()
    const blocks = text.split('\x1b[3A')
    assert.equal(blocks.length, 2)
    assert.match(blocks[1] ?? '', /■□□.*search/)
    assert.ok(text.split('\n').every((line) => line.replaceAll(/\x1b\[\w+/g, '').length < 60))
  })
  test('is a line for each program that ends elsewhere', () => {
    let text = ''
    const progress = new Progress({ redraws: false, columns: 60, write: (more) => { text += more } }, 'run', program)
    progress.step({ program: program[0]?.name ?? '', kind: 'asking', call: 0, calls: 3, tool: null }, 100)
    progress.step({ program: program[0]?.name ?? '', kind: 'done', call: 3, calls: 3, tool: null }, 2_100)
    progress.end()
    assert.equal(text, 'run\n    2.1 s  react-1   done after 2.0 s, 3 calls; 1 to go\n')
  })
})
