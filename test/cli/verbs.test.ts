import assert from 'node:assert/strict'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { entracte } from './command.ts'

const folder = mkdtempSync(join(tmpdir(), 'entracte-cli-'))
after(() => rmSync(folder, { recursive: true, force: true }))

describe('the command line', () => {
  test('shows help for itself and for every verb, with code 0', async () => {
    const whole = await entracte(['--help'])
    assert.equal(whole.code, 0)
    for (const verb of ['serve', 'demo', 'programs', 'explain', 'engines', 'engine', 'models', 'doctor']) {
      assert.match(whole.stdout, new RegExp(`\\n {2}${verb} `))
      const one = await entracte([verb, '--help'])
      assert.equal(one.code, 0)
      assert.match(one.stdout, new RegExp(`^Usage: entracte ${verb}`))
    }
  })
  test('ends with code 2 where it is used wrongly, and says what is wrong', async () => {
    for (const [args, says] of [
      [['nope'], /unknown command 'nope'/], [['explain'], /missing required argument 'program'/],
      [['serve', '--port', 'x'], /whole number from 0 to 65535/], [['programs', '--url', 'nope'], /--url nope is not a URL/],
      [['doctor', '--nope'], /unknown option '--nope'/], [['demo', '--policy', 'best'], /'best' is invalid.*fcfs, fcfs-program, mlfq, plas, atlas, gittins/],
    ] as const) {
      const { code, stderr, stdout } = await entracte(args)
      assert.equal(code, 2, args.join(' '))
      assert.match(stderr, says)
      assert.equal(stdout, '')
    }
  })
  test('ends with code 2 where the configuration is not valid, with file and line', async () => {
    const file = join(folder, 'bad.yaml')
    writeFileSync(file, 'listen:\n  port: 7600\nengine: []\n')
    const { code, stderr } = await entracte(['serve', '--config', file])
    assert.equal(code, 2)
    assert.match(stderr, /bad\.yaml:3: /)
    assert.doesNotMatch(stderr, /\n {4}at /)
  })
  test('of a verb asks the server that stands after it', async () => {
    const url = `http://127.0.0.1:${await freePort()}`
    for (const verb of ['drain', 'undrain']) {
      assert.ok((await entracte(['engines', verb, 'one', '--url', url])).stderr.includes(`no server answers at ${url}`), verb)
    }
  })

  test('ends with code 3 where no server answers, and says what to do', async () => {
    const { code, stderr } = await entracte(['programs', '--url', `http://127.0.0.1:${await freePort()}`])
    assert.equal(code, 3)
    assert.match(stderr, /no server answers.*\n {2}why: .*ECONNREFUSED.*\n {2}next: start one with "entracte serve"/)
  })
  test('shows a stack only where --debug asks for it', async () => {
    const args = ['programs', '--url', `http://127.0.0.1:${await freePort()}`]
    assert.doesNotMatch((await entracte(args)).stderr, /\n {4}at /)
    assert.match((await entracte([...args, '--debug'])).stderr, /\n {4}at /)
  })
})

// ---------------------------------------------------------------- against a server

const STARTED_US = 5_000_000
const identity = { source: 'explicit', confidence: 100 }
const view = (id: string, more: object) => ({
  object: 'program', id, session: null, kind: 'walker', declared: false, identity, priorityClass: 'default', stage: { kind: 'open' }, epoch: 0,
  arrivedAtMs: 1, ageUs: 2_500_000, callsTotal: 1, waits: [],
  service: { useful: { residentUs: 10, workUs: 1_500_000 }, retried: { residentUs: 0, workUs: 0 }, recomputed: { residentUs: 0, workUs: 0 } },
  calls: [], states: [], ...more,
})
const PROGRAMS = [
  view('waits', { waits: [{ thread: 'main', call: 'c1', on: 'queue', forUs: 2_000_000, what: 'its turn, at place 2', behind: { programs: ['ended'], others: 1 } }] }),
  view('ended', { stage: { kind: 'ended', provisional: true } }),
  view('a/b c', { stage: { kind: 'cancelled' } }),
]
const FACTS = [
  { seq: 1, atUs: STARTED_US, version: 1, fact: { kind: 'program.started', program: 'local/waits', tenant: 'local', session: null, declared: false, agent: 'walker', identity, priorityClass: 'default', deadlineUs: null, parent: null, steps: null } },
  { seq: 2, atUs: STARTED_US, version: 1, fact: { kind: 'call.arrived', call: 'c1', program: 'local/waits', thread: 'local/waits/main', answers: null, promptTokens: 9 } },
]
const NOT_FOUND = { error: { message: 'There is no such program under this key: "gone".', type: 'invalid_request_error', param: null, code: 'unknown_program' } }

let server: Server
let url: string
const seen: { path: string; key: string | undefined }[] = []
before(async () => {
  server = createServer((request, response) => {
    const path = request.url ?? ''
    seen.push({ path, key: request.headers.authorization })
    const answer = answerTo(path)
    response.writeHead(answer === NOT_FOUND ? 404 : 200, { 'content-type': 'application/json' }).end(JSON.stringify(answer))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})
after(() => new Promise((resolve) => server.close(resolve)))

function answerTo(path: string): unknown {
  const at = new URL(path, 'http://x')
  if (at.pathname === '/v1/programs') {
    const first = at.searchParams.get('after') === null
    return { object: 'list', data: first ? PROGRAMS.slice(0, 2) : PROGRAMS.slice(2), next: first ? '7' : null }
  }
  if (at.pathname.endsWith('/facts')) return { object: 'list', data: FACTS }
  return PROGRAMS.find(({ id }) => at.pathname === `/v1/programs/${encodeURIComponent(id)}`) ?? NOT_FOUND
}

describe('against a running server', () => {
  test('programs lists all pages, with what each waits for', async () => {
    const { code, stdout } = await entracte(['programs', '--url', url, '--key', 'secret-key'])
    assert.equal(code, 0)
    const lines = stdout.trimEnd().split('\n')
    assert.match(lines[0] ?? '', /^program +state +for +calls +served +recomputed +kind +known by$/)
    assert.match(lines[1] ?? '', /^waits +queue +2\.50 s +1 +1\.50 s +0 +walker +explicit 100$/)
    assert.match(lines[2] ?? '', /^ended +ended, may go on /)
    assert.match(lines[3] ?? '', /^a\/b c +cancelled /)
    assert.deepEqual(seen.slice(-2).map(({ key }) => key), ['Bearer secret-key', 'Bearer secret-key'])
  })
  test('programs --json gives the views as they are, at most --limit', async () => {
    const { stdout } = await entracte(['programs', '--url', `${url}/v1/`, '--json', '--limit', '1'])
    assert.deepEqual(JSON.parse(stdout), PROGRAMS.slice(0, 1))
  })
  test('explain says what a program waits for, and behind whom', async () => {
    const { code, stdout } = await entracte(['explain', 'waits', '--url', url])
    assert.equal(code, 0)
    assert.match(stdout, /^waits {2}open for 2\.50 s, 1 call in 1 thread, agent walker\n/)
    assert.match(stdout, /\n {2}total +2\.50 s +100 %\n/)
    assert.match(stdout, /\n {2}c1 is in the queue \(2\.50 s so far\): its turn, at place 2\n +behind ended, 1 more\n/)
  })
  test('explain --json gives parts that add up', async () => {
    const { stdout } = await entracte(['explain', 'waits', '--url', url, '--json'])
    const explained = JSON.parse(stdout) as { wallUs: number; parts: Record<string, number> }
    assert.equal(explained.wallUs, 2_500_000)
    assert.equal(Object.values(explained.parts).reduce((sum, us) => sum + us, 0), 2_500_000)
  })
  test('an id travels whole, whatever is in it', async () => {
    await entracte(['explain', 'a/b c', '--url', url])
    assert.ok(seen.some(({ path }) => path.startsWith('/v1/programs/a%2Fb%20c/facts')))
  })
  test('an unknown program ends with code 1 and the server\'s words', async () => {
    const { code, stderr } = await entracte(['explain', 'gone', '--url', url])
    assert.equal(code, 1)
    assert.match(stderr, /no such program under this key: "gone".*\n {2}next: "entracte programs" lists/)
  })
})

describe('doctor', () => {
  test('looks at everything, changes nothing, and gives JSON', async () => {
    const data = join(folder, 'data')
    const { code, stdout, stderr } = await entracte(['doctor', '--json', '--model', 'tiny', '--data', data], { cwd: folder, env: { ENTRACTE_CACHE: join(folder, 'cache') } })
    assert.equal(stderr, '')
    const report = JSON.parse(stdout) as { version: string; ok: boolean; checks: { name: string; status: string; found: string; next: string | null }[] }
    assert.match(report.version, /^\d+\.\d+\.\d+/)
    assert.equal(code, report.ok ? 0 : 1)
    const names = report.checks.map(({ name }) => name)
    for (const name of ['node', 'configuration', 'engine local', 'library of local', 'model of local', 'threads of local', 'speed of local', 'memory of local', 'exactness of local', 'images', 'memory', 'data', 'port']) {
      assert.ok(names.includes(name), `${name} is looked at`)
    }
    for (const { name, status, next } of report.checks) assert.equal(next === null, status === 'ok', `${name} says what to do where it is not ok`)
    const { status, found } = report.checks.find(({ name }) => name === 'model of local') ?? { status: '', found: '' }
    assert.equal(status, 'warn')
    assert.match(found, /tiny/)
    const of = (name: string): string => report.checks.find((check) => check.name === name)?.found ?? ''
    assert.match(of('speed of local'), /measured now: [\d.]+ prompt tokens\/s, [\d.]+ output tokens\/s alone, [\d.]+ with all 8 lanes; a chunk of 128 takes \d+ ms/)
    assert.match(of('memory of local'), /KV in f16, 16\.0 MiB in 8 lanes of 2\.0 MiB; flash attention off, weights repacked, no layer on a GPU/)
  })
  test('says of a missing model that the first start fetches it, and of a missing library that nothing can start', async () => {
    const file = join(folder, 'engines.yaml')
    writeFileSync(file, `engines:\n  - id: one\n    kind: embedded\n    library: ${folder}\n`)
    const { code, stdout } = await entracte(['doctor', '--config', file], { cwd: folder, env: { ENTRACTE_CACHE: join(folder, 'empty'), ENTRACTE_OFFLINE: '' } })
    assert.equal(code, 1)
    assert.match(stdout, /\nFAIL {2}library of one /)
    assert.match(stdout, /\nwarn {2}model of one +the default model is not here yet\n +next: the first start fetches it/)
    assert.match(stdout, /A server cannot start here/)
  })
  test('tells a configuration that cannot be read', async () => {
    const file = join(folder, 'broken.yaml')
    writeFileSync(file, 'listen: [')
    const { code, stdout } = await entracte(['doctor', '--config', file])
    assert.equal(code, 1)
    assert.match(stdout, /FAIL {2}configuration +the configuration is not valid:\n +.*broken\.yaml:1/)
  })
})

async function freePort(): Promise<number> {
  const probe = createServer()
  await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve))
  const { port } = probe.address() as AddressInfo
  await new Promise((resolve) => probe.close(resolve))
  return port
}
