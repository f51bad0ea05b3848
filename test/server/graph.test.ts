/** The routes of what is less than a program: reports of its graph, and the cancelling of a thread or a call. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { programId, tenantId } from '../../src/core/ids.ts'
import { appOf, bearer, tenantKey, type App, type Reply } from './app-of.ts'
import { fakeGateway, joinEngine, type FakeGateway } from './fake-gateway.ts'

const tenants = [tenantKey('a', 'key-of-a', { deadlineUs: 9_000_000, statesDeadlines: true }), tenantKey('b', 'key-of-b', { deadlineUs: 9_000_000 })]

const ask = (app: App, method: 'GET' | 'POST' | 'DELETE', url: string, payload?: object, key = 'key-of-a'): Promise<Reply> =>
  app.inject({ method, url, headers: bearer(key), ...(payload === undefined ? {} : { payload }) })

async function begun(t: Parameters<typeof appOf>[0]): Promise<{ app: App; gateway: FakeGateway }> {
  const gateway = fakeGateway()
  joinEngine(gateway)
  const app = appOf(t, gateway, { tenants })
  await ask(app, 'POST', '/v1/programs', { id: 'p' })
  return { app, gateway }
}

const mapReduce = {
  nodes: [
    { id: 'split', kind: 'TOOL' },
    { id: 'map 1', kind: 'CODE', parents: ['split'], serviceUs: 5_000 },
    { id: 'map 2', kind: 'HUMAN', parents: [{ id: 'split', edge: 'control' }], thread: 'two' },
    { id: 'gather', kind: 'JOIN', parents: ['map 1', 'map 2'], join: { rule: 'partial', atLeast: 1, siblings: 'continue' } },
    { id: 'reduce', kind: 'LLM', parents: ['gather'] },
  ],
}

describe('a report of a graph', () => {
  test('is taken whole and answered by how many nodes are how far; the program shows them', async (t) => {
    const { app } = await begun(t)
    const declared = await ask(app, 'POST', '/v1/programs/p/graph', mapReduce)
    assert.deepEqual([declared.statusCode, declared.json()], [200, { object: 'graph', program: 'p', nodes: { open: 5, committed: 0, failed: 0, cancelled: 0 } }])
    const ended = await ask(app, 'POST', '/v1/programs/p/graph', { outcomes: [{ id: 'split', outcome: 'completed' }, { id: 'map 1', outcome: 'completed' }, { id: 'map 2', outcome: 'failed', why: 'asleep' }] })
    assert.deepEqual(ended.json().nodes, { open: 1, committed: 3, failed: 1, cancelled: 0 })
    const { nodes } = (await ask(app, 'GET', '/v1/programs/p')).json()
    assert.deepEqual(nodes[2], { id: 'map 2', kind: 'HUMAN', stage: 'failed', why: 'asleep', thread: 'two', call: null, parents: ['split'] })
    assert.deepEqual([nodes[3].stage, nodes[4].stage], ['committed', 'open'])
  })

  test('of nonsense is refused by the field, and nothing is changed', async (t) => {
    const { app, gateway } = await begun(t)
    const seq = gateway.core.seq
    const cases: readonly [string, object][] = [
      ['nodes[0].id', { nodes: [{ kind: 'LLM' }] }],
      ['nodes[0].kind', { nodes: [{ id: 'x', kind: 'GPU' }] }],
      ['nodes[0].parents[0]', { nodes: [{ id: 'x', kind: 'LLM', parents: [7] }] }],
      ['nodes[0].parents[0].edge', { nodes: [{ id: 'x', kind: 'LLM', parents: [{ id: 'y', edge: 'soft' }] }] }],
      ['nodes[0].join.rule', { nodes: [{ id: 'x', kind: 'JOIN', join: { rule: 'some' } }] }],
      ['nodes[0].join.atLeast', { nodes: [{ id: 'x', kind: 'JOIN', join: { rule: 'partial', atLeast: 0 } }] }],
      ['nodes[0].serviceUs', { nodes: [{ id: 'x', kind: 'LLM', serviceUs: -1 }] }],
      ['nodes[0].id', { nodes: [{ id: 'caf\u00e9', kind: 'LLM' }] }],
      ['outcomes[0].outcome', { outcomes: [{ id: 'x', outcome: 'won' }] }],
      ['outcomes[0].why', { outcomes: [{ id: 'x', outcome: 'failed', why: 'x'.repeat(1_001) }] }],
      ['forks[0].from', { forks: [{ thread: 'x' }] }],
      ['epoch', { epoch: 'one' }],
      ['outcome', { outcome: [] }],
      ['nodes', { nodes: {} }],
    ]
    for (const [field, body] of cases) {
      const reply = await ask(app, 'POST', '/v1/programs/p/graph', body)
      assert.deepEqual([reply.statusCode, reply.json().error.param], [400, field], `${field}: ${reply.body}`)
    }
    for (const body of [[], 'text', null]) {
      const reply = await app.inject({ method: 'POST', url: '/v1/programs/p/graph', headers: { ...bearer('key-of-a'), 'content-type': 'application/json' }, payload: JSON.stringify(body) })
      assert.equal(reply.statusCode, 400)
    }
    assert.equal(gateway.core.seq, seq)
  })

  test('that contradicts the graph is refused by name, with what was seen and what to do next, and not to be retried', async (t) => {
    const { app } = await begun(t)
    await ask(app, 'POST', '/v1/programs/p/graph', mapReduce)
    const cases: readonly [number, string, object][] = [
      [409, 'graph_cycle', { nodes: [{ id: 'x', kind: 'LLM', parents: ['x'] }] }],
      [400, 'unknown_parent', { nodes: [{ id: 'x', kind: 'LLM', parents: ['chatcmpl-none'] }] }],
      [409, 'node_conflict', { nodes: [{ id: 'split', kind: 'CODE' }] }],
      [409, 'join_unmeetable', { nodes: [{ id: 'x', kind: 'JOIN', parents: ['split'], join: { rule: 'partial', atLeast: 2 } }] }],
      [409, 'parents_open', { outcomes: [{ id: 'map 1', outcome: 'completed' }] }],
      [404, 'unknown_node', { outcomes: [{ id: 'x', outcome: 'completed' }] }],
      [404, 'unknown_thread', { forks: [{ thread: 'x', from: 'main' }] }],
      [409, 'stale_epoch', { epoch: 5 }],
    ]
    for (const [status, code, body] of cases) {
      const reply = await ask(app, 'POST', '/v1/programs/p/graph', body)
      assert.deepEqual([reply.statusCode, reply.json().error.code, reply.headers['x-should-retry']], [status, code, 'false'], reply.body)
      assert.match(reply.json().error.message, /^[A-Z].+: .+\. [A-Z].+\.$/)
    }
  })

  test('about another tenant\'s program finds none', async (t) => {
    const { app } = await begun(t)
    for (const [method, url, body] of [['POST', '/v1/programs/p/graph', {}], ['DELETE', '/v1/programs/p/threads/main', undefined], ['DELETE', '/v1/programs/p/calls/c', undefined]] as const) {
      const reply = await ask(app, method, url, body, 'key-of-b')
      assert.deepEqual([reply.statusCode, reply.json().error.code], [404, 'unknown_program'], url)
    }
  })
})

describe('cancelling', () => {
  test('a node by its name cancels what needs it, and is refused the second time', async (t) => {
    const { app } = await begun(t)
    await ask(app, 'POST', '/v1/programs/p/graph', { nodes: [{ id: 'a', kind: 'LLM' }, { id: 'b', kind: 'LLM', parents: ['a'] }] })
    const reply = await ask(app, 'DELETE', '/v1/programs/p/calls/a')
    assert.deepEqual([reply.statusCode, reply.json().nodes.map(({ stage }: any) => stage)], [200, ['cancelled', 'cancelled']])
    assert.deepEqual([(await ask(app, 'DELETE', '/v1/programs/p/calls/a')).json().error.code], ['node_closed'])
    assert.deepEqual([(await ask(app, 'DELETE', '/v1/programs/p/calls/chatcmpl-x')).statusCode], [404])
  })

  test('a thread says which effects remain; one that is not there is not found', async (t) => {
    const { app, gateway } = await begun(t)
    const id = programId(tenantId('a'), 'p')
    gateway.tell({ kind: 'thread.forked', program: id, thread: `${id}/a%2Fb` as never, from: `${id}/main` as never, state: null, tokens: 0 })
    const reply = await ask(app, 'DELETE', `/v1/programs/p/threads/${encodeURIComponent('a/b')}`)
    assert.deepEqual([reply.statusCode, reply.json().effectsRemaining], [200, []])
    const again = await ask(app, 'DELETE', `/v1/programs/p/threads/${encodeURIComponent('a/b')}`)
    assert.deepEqual([again.statusCode, again.json().effectsRemaining], [200, []], 'its answer may have been lost')
    assert.equal((await ask(app, 'DELETE', '/v1/programs/p/threads/none')).json().error.code, 'unknown_thread')
  })
})

describe('a declaration', () => {
  test('may name its parent program and its number of steps', async (t) => {
    const { app, gateway } = await begun(t)
    const child = await ask(app, 'POST', '/v1/programs', { id: 'child', parent: 'p', steps: 12 })
    assert.deepEqual([child.statusCode, child.json().parent], [201, 'p'])
    assert.equal(gateway.core.programs.get(programId(tenantId('a'), 'child'))?.steps, 12)
    for (const [field, value] of [['steps', 0], ['steps', 1.5], ['parent', ''], ['deadlineSeconds', -1]] as const) {
      const reply = await ask(app, 'POST', '/v1/programs', { [field]: value })
      assert.deepEqual([reply.statusCode, reply.json().error.param], [400, field])
    }
  })

  test('states a deadline only where its key lets it, and never sooner than the key\'s own', async (t) => {
    const { app, gateway } = await begun(t)
    const deadlineUs = async (tenant: string, seconds: number): Promise<number | null | undefined> => {
      const id = `of-${seconds}`
      await ask(app, 'POST', '/v1/programs', { id, deadlineSeconds: seconds }, `key-of-${tenant}`)
      return gateway.core.programs.get(programId(tenantId(tenant), id))?.deadlineUs
    }
    const nowUs = gateway.time
    assert.equal(await deadlineUs('a', 60), nowUs + 60_000_000)
    assert.equal(await deadlineUs('a', 1), nowUs + 9_000_000)
    assert.equal(await deadlineUs('b', 60), nowUs + 9_000_000)
  })
})
