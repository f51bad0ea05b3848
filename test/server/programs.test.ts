/** The routes of programs: through the eyes of one tenant. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { FACT_VERSION } from '../../src/core/fact.ts'
import { bodyId, callId, engineId, interruptId, programId, stateId, tenantId, threadId, type CallId } from '../../src/core/ids.ts'
import { FACT_WAITS_MAX } from '../../src/server/fact-waits.ts'
import { appOf, bearer, tenantKey, type App, type Reply } from './app-of.ts'
import { fakeGateway, joinEngine, type FakeGateway } from './fake-gateway.ts'

const tenants = [tenantKey('a', 'key-of-a', { class: 'interactive', deadlineUs: 9_000_000 }), tenantKey('b', 'key-of-b')]

function ask(app: App, method: 'GET' | 'POST' | 'DELETE', url: string, key = 'key-of-a', payload?: object): Promise<Reply> {
  return app.inject({ method, url, headers: bearer(key), ...(payload === undefined ? {} : { payload }) })
}

/** A call of a program, as far as its queue. */
function arrive(gateway: FakeGateway, tenant: string, program: string, call: string, level = 0): void {
  const id = programId(tenantId(tenant), program)
  gateway.tell({
    kind: 'call.arrived', call: callId(call), program: id, thread: threadId(id, 'main'), model: 'tiny', epoch: 1, band: 'default', payer: tenantId(tenant),
    identity: { source: 'explicit', confidence: 100 }, digest: call, body: bodyId(call), seed: 1, maxTokens: 10, exactResume: true,
    promptTokens: 100, parents: [], node: null, answers: null, final: false, toolResults: [],
  })
  gateway.tell({ kind: 'call.measured', call: callId(call), promptTokens: 120, reusable: null, renderingWon: null })
  gateway.tell({ kind: 'call.ready', call: callId(call), level, tie: 0 })
}

/** Program `p`, which waits for a tool that pays: of its call. */
async function paying(app: App, gateway: FakeGateway): Promise<CallId> {
  await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'p' })
  arrive(gateway, 'a', 'p', 'c')
  const program = programId(tenantId('a'), 'p')
  const call = callId('c')
  gateway.tell({
    kind: 'interrupt.started', interrupt: interruptId(call), call, thread: threadId(program, 'main'), program, epoch: 1, of: 'TOOL', toolClass: 'pay',
    toolCallIds: ['pay-0'], effect: 'irreversible', effectKey: 'c',
  })
  return call
}

describe('a program', () => {
  test('is declared with its own id or one of ours, and the credential\'s class and deadline', async (t) => {
    const gateway = fakeGateway()
    const app = appOf(t, gateway, { tenants })
    const named = await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'run 1', session: 's', agent: 'coder' })
    assert.equal(named.statusCode, 201)
    assert.deepEqual([named.json().id, named.json().session, named.json().kind, named.json().priorityClass], ['run 1', 's', 'coder', 'interactive'])
    assert.equal(gateway.core.programs.get(programId(tenantId('a'), 'run 1'))?.deadlineUs, 10_000_000)
    const fresh = await ask(app, 'POST', '/v1/programs')
    assert.equal(fresh.statusCode, 201)
    assert.ok(fresh.json().id)
  })

  test('with an id that exists is refused and not to be retried', async (t) => {
    const app = appOf(t, fakeGateway(), { tenants })
    await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'p' })
    const again = await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'p' })
    assert.deepEqual([again.statusCode, again.json().error.code, again.headers['x-should-retry']], [409, 'duplicate_program', 'false'])
    assert.equal((await ask(app, 'POST', '/v1/programs', 'key-of-b', { id: 'p' })).statusCode, 201)
  })

  test('with an id that is not plain is refused by its field', async (t) => {
    const app = appOf(t, fakeGateway(), { tenants })
    for (const [field, value] of [['id', ''], ['id', 7], ['session', 'x'.repeat(257)], ['agent', 'caf\u00e9']] as const) {
      const reply = await ask(app, 'POST', '/v1/programs', 'key-of-a', { [field]: value })
      assert.deepEqual([reply.statusCode, reply.json().error.param], [400, field])
    }
  })
})

describe('a program that waits', () => {
  test('shows what it waits for, and names only programs of the same tenant as ahead of it', async (t) => {
    const gateway = fakeGateway()
    joinEngine(gateway)
    const app = appOf(t, gateway, { tenants })
    for (const [key, id] of [['key-of-a', 'first'], ['key-of-b', 'secret'], ['key-of-a', 'mine']] as const) await ask(app, 'POST', '/v1/programs', key, { id })
    arrive(gateway, 'b', 'secret', 'c2', 1)
    arrive(gateway, 'a', 'first', 'c1')
    arrive(gateway, 'a', 'mine', 'c3', 2)
    gateway.time += 2_000_000
    const reply = await ask(app, 'GET', '/v1/programs/mine')
    const { waits, calls, ageUs, stage } = reply.json()
    assert.deepEqual(stage, { kind: 'open' })
    assert.equal(ageUs, 2_000_000)
    assert.equal(waits.length, 1)
    assert.deepEqual([waits[0].thread, waits[0].call, waits[0].on, waits[0].forUs], ['main', 'c3', 'queue', 2_000_000])
    assert.match(waits[0].what, /place 3 of 3, level 2/)
    assert.deepEqual(waits[0].behind, { programs: ['first'], others: 1 })
    assert.doesNotMatch(reply.body, /secret/)
    assert.deepEqual(calls.map((call: any) => [call.id, call.thread, call.stage, call.promptTokens]), [['c3', 'main', 'ready', 120]])
  })

  test('that waits for a tool says for which, and where its State is', async (t) => {
    const gateway = fakeGateway()
    joinEngine(gateway)
    const app = appOf(t, gateway, { tenants })
    await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'p' })
    arrive(gateway, 'a', 'p', 'c1')
    const id = programId(tenantId('a'), 'p')
    const zero = { residentUs: 0, workUs: 0 }
    const report = { service: { useful: { residentUs: 5, workUs: 4 }, retried: zero, recomputed: zero }, tailPrefilled: 0, tailDecoded: 0, outputTokens: 3, recomputedTokens: 0 }
    gateway.tell({
      kind: 'call.scheduled', call: callId('c1'), attempt: 1, engine: engineId('e1'), state: stateId('s1'), baseTokens: 0, keepTokens: 0,
      granules: 1, recomputeTokens: 0, forcedTokens: 0, replay: 'exact', rank: 1, expectedWorkUs: 0,
    })
    assert.deepEqual((await ask(app, 'GET', '/v1/programs/p')).json().waits.map((wait: any) => wait.on), ['engine'])
    gateway.tell({
      kind: 'call.completed', call: callId('c1'), attempt: 1, finish: 'tool_calls', report, parts: { waitUs: 0, recomputeUs: 0, prefillUs: 1, decodeUs: 1 },
      spans: [], toolCalls: [{ id: 'call_c1_0', name: 'search' }], resume: 'none', supersedes: null,
    })
    gateway.tell({
      kind: 'interrupt.started', interrupt: interruptId(callId('c1')), call: callId('c1'), thread: threadId(id, 'main'), program: id, epoch: 1,
      of: 'TOOL', toolClass: 'search', toolCallIds: ['call_c1_0'], effect: 'read', effectKey: 'k',
    })
    gateway.time += 3_000_000
    const { waits, service, states } = (await ask(app, 'GET', '/v1/programs/p')).json()
    assert.deepEqual(waits.map((wait: any) => [wait.on, wait.forUs]), [['tool', 3_000_000]])
    assert.match(waits[0].what, /1 tool call.*search/)
    assert.deepEqual(service.useful, { residentUs: 5, workUs: 4 })
    assert.equal(states[0].thread, 'main')
  })
})

describe('an act on a program', () => {
  test('of another tenant, or of nobody, is as absent in every route', async (t) => {
    const app = appOf(t, fakeGateway(), { tenants })
    await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'p' })
    for (const [method, url] of [['GET', '/v1/programs/p'], ['GET', '/v1/programs/p/facts'], ['DELETE', '/v1/programs/p'], ['POST', '/v1/programs/p/finish']] as const) {
      const reply = await ask(app, method, url, 'key-of-b')
      assert.deepEqual([reply.statusCode, reply.json().error.code], [404, 'unknown_program'], `${method} ${url}`)
    }
    assert.deepEqual((await ask(app, 'GET', '/v1/programs', 'key-of-b')).json().data, [])
    assert.equal((await ask(app, 'GET', '/v1/programs/p')).json().stage.kind, 'open')
  })

  test('with any plain id has an address', async (t) => {
    const app = appOf(t, fakeGateway(), { tenants })
    const id = `a/b ?#%${'~'.repeat(249)}`
    await ask(app, 'POST', '/v1/programs', 'key-of-a', { id })
    const reply = await ask(app, 'GET', `/v1/programs/${encodeURIComponent(id)}`)
    assert.equal(reply.json().id, id)
  })

  test('is told what happens next as soon as it happens, and nothing where nothing does', async (t) => {
    const gateway = fakeGateway()
    const app = appOf(t, gateway, { tenants })
    await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'p' })
    const seen = (await ask(app, 'GET', '/v1/programs/p/facts')).json().data.at(-1).seq as number
    const next = ask(app, 'GET', `/v1/programs/p/facts?after=${seen}&waitSeconds=20`)
    await new Promise((resolve) => { setTimeout(resolve, 20) })
    await ask(app, 'DELETE', '/v1/programs/p')
    assert.deepEqual((await next).json().data.map((logged: { fact: { kind: string } }) => logged.fact.kind), ['program.cancelled'])
    assert.deepEqual((await ask(app, 'GET', `/v1/programs/p/facts?after=${seen + 1}&waitSeconds=1`)).json().data, [])
    assert.equal((await ask(app, 'GET', '/v1/programs/p/facts?after=0&waitSeconds=0')).statusCode, 200)
    for (const query of ['after=x', 'waitSeconds=31', 'waitSeconds=-1']) {
      assert.equal((await ask(app, 'GET', `/v1/programs/p/facts?${query}`)).statusCode, 400)
    }
  })

  test('so many requests of one tenant wait for facts at once, and one more is refused by name while others are served', async (t) => {
    const app = appOf(t, fakeGateway(), { tenants })
    for (const key of ['key-of-a', 'key-of-b']) await ask(app, 'POST', '/v1/programs', key, { id: 'p' })
    const wait = (key: string) => ask(app, 'GET', '/v1/programs/p/facts?after=1000000&waitSeconds=20', key)
    const waits = Array.from({ length: FACT_WAITS_MAX }, () => wait('key-of-a'))
    await new Promise((resolve) => { setTimeout(resolve, 50) })
    const refused = await wait('key-of-a')
    assert.deepEqual([refused.statusCode, refused.json().error.code], [429, 'tenant_full'])
    const other = wait('key-of-b')
    await new Promise((resolve) => { setTimeout(resolve, 20) })
    await app.close()
    assert.deepEqual(new Set((await Promise.all([...waits, other])).map(({ statusCode }) => statusCode)), new Set([200]), 'and a server that stops answers them')
  })

  test('a field that is not of a declaration or an effect is refused by its name', async (t) => {
    const app = appOf(t, fakeGateway(), { tenants })
    const declared = await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'p', priority: 'interactive' })
    assert.deepEqual([declared.statusCode, declared.json().error.code], [400, 'invalid_request'])
    assert.match(declared.json().error.message, /priority/)
    await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'p' })
    assert.match((await ask(app, 'POST', '/v1/programs/p/effects', 'key-of-a', { toolCall: 'x', done: true })).json().error.message, /done/)
  })

  test('who follows its facts misses none, however few fit one answer; who only looks gets the newest', async (t) => {
    const app = appOf(t, fakeGateway(), { tenants })
    await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'p' })
    await ask(app, 'POST', '/v1/programs/p/graph', 'key-of-a', { nodes: [{ id: 'a', kind: 'CODE' }] })
    await ask(app, 'POST', '/v1/programs/p/graph', 'key-of-a', { outcomes: [{ id: 'a', outcome: 'completed' }] })
    await ask(app, 'DELETE', '/v1/programs/p')
    const seqs = async (query: string): Promise<number[]> =>
      (await ask(app, 'GET', `/v1/programs/p/facts${query}`)).json().data.map(({ seq }: { seq: number }) => seq)
    const all = await seqs('')
    assert.ok(all.length > 3)
    const read = [all[0] ?? 0]
    for (let more = await seqs(`?after=${read.at(-1)}&max=1`); more.length > 0; more = await seqs(`?after=${read.at(-1)}&max=1`)) read.push(...more)
    assert.deepEqual(read, all)
    assert.deepEqual(await seqs('?max=2'), all.slice(-2))
  })

  test('a call of another tenant that took the place of one has no name in its facts', async (t) => {
    const gateway = fakeGateway()
    const app = appOf(t, gateway, { tenants })
    await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'p' })
    gateway.logged.push({
      seq: 99, atUs: 0, version: FACT_VERSION,
      fact: { kind: 'call.preempted', program: programId(tenantId('a'), 'p'), call: callId('mine'), by: callId('theirs'), engine: engineId('e'), why: 'a better call has no memory' } as never,
    })
    const reply = await ask(app, 'GET', '/v1/programs/p/facts')
    assert.equal(reply.json().data.at(-1).fact.by, 'another call')
  })

  test('is told what its tools did, once the tool call is known', async (t) => {
    const gateway = fakeGateway()
    const app = appOf(t, gateway, { tenants })
    const call = await paying(app, gateway)
    const post = (body: object) => ask(app, 'POST', '/v1/programs/p/effects', 'key-of-a', body)
    assert.equal((await post({ toolCall: 'pay-0', record: 'payment 17' })).statusCode, 200)
    assert.deepEqual(gateway.core.interrupts.get(interruptId(call))?.commits.map(({ record }) => record), ['payment 17'])
    assert.deepEqual([(await post({ toolCall: 'never' })).statusCode, (await post({})).statusCode], [400, 400])
  })

  test('is cancelled with what remains outside, and finished once', async (t) => {
    const gateway = fakeGateway()
    const app = appOf(t, gateway, { tenants })
    await paying(app, gateway)
    await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'q' })
    // As where so much was said after the cancel that the fact is out of reach.
    Object.assign(gateway, { facts: () => [] })
    await ask(app, 'POST', '/v1/programs/p/effects', 'key-of-a', { toolCall: 'pay-0' })
    const cancel = async () => {
      const reply = await ask(app, 'DELETE', '/v1/programs/p')
      return [reply.statusCode, reply.json().stage.kind, reply.json().effectsRemaining[0].committed]
    }
    assert.deepEqual(await cancel(), [200, 'cancelled', ['pay-0']])
    gateway.answers.cancel = { ok: false, code: 'program_cancelled', why: 'it was cancelled before' }
    assert.deepEqual(await cancel(), [200, 'cancelled', ['pay-0']], 'its answer may have been lost')
    const finished = await app.inject({ method: 'POST', url: '/v1/programs/q/finish', headers: { ...bearer('key-of-a'), 'content-type': 'application/json' } })
    assert.deepEqual([finished.statusCode, finished.json().stage.kind], [200, 'ended'])
    gateway.answers.finish = { ok: false, code: 'program_ended', why: 'q' }
    const again = await ask(app, 'POST', '/v1/programs/q/finish')
    assert.deepEqual([again.statusCode, again.json().error.code, again.headers['x-should-retry']], [409, 'program_ended', 'false'])
  })

  test('has its facts, the newest of them when there are more than asked for', async (t) => {
    const gateway = fakeGateway()
    const app = appOf(t, gateway, { tenants })
    await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: 'p' })
    await ask(app, 'POST', '/v1/programs/p/finish')
    const kinds = async (query: string): Promise<string[]> =>
      (await ask(app, 'GET', `/v1/programs/p/facts${query}`)).json().data.map((logged: any) => logged.fact.kind)
    assert.deepEqual(await kinds(''), ['program.started', 'program.completed'])
    assert.deepEqual(await kinds('?max=1'), ['program.completed'])
    for (const bad of ['0', '-1', '10001', 'x', '1&max=2']) {
      assert.equal((await ask(app, 'GET', `/v1/programs/p/facts?max=${bad}`)).json().error.param, 'max', bad)
    }
  })
})

describe('the list of programs', () => {
  test('is the tenant\'s own, newest first, page by page', async (t) => {
    const app = appOf(t, fakeGateway(), { tenants })
    for (let index = 1; index <= 5; index++) await ask(app, 'POST', '/v1/programs', 'key-of-a', { id: `p${index}` })
    await ask(app, 'POST', '/v1/programs', 'key-of-b', { id: 'other' })
    const seen: string[] = []
    for (let next: string | null = '', pages = 0; next !== null; pages++) {
      assert.ok(pages < 4)
      const page: { data: { id: string }[]; next: string | null } = (await ask(app, 'GET', `/v1/programs?limit=2${next === '' ? '' : `&after=${next}`}`)).json()
      seen.push(...page.data.map((program) => program.id))
      next = page.next
    }
    assert.deepEqual(seen, ['p5', 'p4', 'p3', 'p2', 'p1'])
    for (const bad of ['limit=0', 'limit=201', 'after=x']) assert.equal((await ask(app, 'GET', `/v1/programs?${bad}`)).statusCode, 400, bad)
  })
})

describe('models and readiness', () => {
  test('show what is joined, with the exact answer and what the engine declares', async (t) => {
    const gateway = fakeGateway()
    const app = appOf(t, gateway)
    assert.deepEqual((await app.inject({ url: '/readyz' })).json(), { status: 'starting', engines: [] })
    assert.equal((await app.inject({ url: '/readyz' })).statusCode, 503)
    assert.equal((await app.inject({ url: '/healthz' })).statusCode, 200)
    joinEngine(gateway, { models: ['tiny', 'small/one'] })
    assert.deepEqual((await app.inject({ url: '/readyz' })).json(), { status: 'ready', engines: [{ id: 'e1', stage: 'joined' }] })
    const { data } = (await app.inject({ url: '/v1/models' })).json()
    assert.deepEqual(data.map((model: any) => [model.id, model.object, model.owned_by]), [['tiny', 'model', 'entracte'], ['small/one', 'model', 'entracte']])
    const [engine] = data[0].entracte.engines
    assert.deepEqual([engine.id, engine.contextTokens, engine.exact.answer, engine.capabilities.offload], ['e1', 2_048, 'yes', true])
    assert.equal((await app.inject({ url: '/v1/models/small%2Fone' })).json().id, 'small/one')
    assert.equal((await app.inject({ url: '/v1/models/none' })).json().error.code, 'model_not_found')
    gateway.tell({ kind: 'engine.lost', engine: engineId('e1'), why: 'killed' })
    assert.equal((await app.inject({ url: '/readyz' })).statusCode, 503)
  })
})
