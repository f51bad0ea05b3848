/** What /metrics says: fed by facts and by the live state, in few labels. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { must } from '../../src/core/assert.ts'
import { callId, engineId, moveId, programId, stateId, tenantId } from '../../src/core/ids.ts'
import { appOf, bearer, chatBody, post, tenantKey, type App } from './app-of.ts'
import { answering, fakeGateway, joinEngine } from './fake-gateway.ts'

const scrape = async (app: App): Promise<string> => (await app.inject({ url: '/metrics' })).body

function valueOf(text: string, line: string): number {
  const found = text.split('\n').find((one) => one.startsWith(`${line} `))
  assert.ok(found !== undefined, `no ${line} in\n${text}`)
  return Number(found.slice(line.length + 1))
}

const zero = { residentUs: 0, workUs: 0 }
const report = (recomputedTokens: number) =>
  ({ service: { useful: zero, retried: zero, recomputed: zero }, tailPrefilled: 0, tailDecoded: 0, outputTokens: 0, recomputedTokens })

describe('metrics', () => {
  test('count decisions, moves, ends and what was ignored, as the facts come', async (t) => {
    const gateway = fakeGateway()
    const app = appOf(t, gateway)
    const decided = { kind: 'kv.decided', state: stateId('s'), interrupt: null, options: [], expectedWaitUs: 1, reconsiderAtUs: null, because: 'cheap', performed: true } as const
    for (const choice of ['preserve', 'offload', 'offload'] as const) gateway.show({ ...decided, choice })
    gateway.show({ kind: 'kv.moved', move: moveId('m'), state: stateId('s'), engine: engineId('e1'), dropImage: null, to: 'host', bytes: 5_000, digest: 'd', copyUs: 2_000_000 })
    gateway.show({ kind: 'kv.move.failed', move: moveId('m2'), state: stateId('s'), engine: engineId('e1'), to: 'device', dropImage: null, why: 'truncated', sourceLost: true })
    gateway.show({ kind: 'call.cancelled', call: callId('c'), why: 'left' })
    gateway.show({ kind: 'call.failed', call: callId('c'), code: 'attempts_exhausted', why: 'x' })
    gateway.show({ kind: 'call.refused', call: callId('c'), code: 'who knows', why: 'x' })
    gateway.show({ kind: 'program.failed', program: programId(tenantId('a'), 'p'), why: 'x' })
    gateway.show({ kind: 'engine.lost', engine: engineId('e1'), why: 'x' })
    const text = await scrape(app)
    assert.equal(valueOf(text, 'entracte_kv_decisions_total{choice="offload",performed="true"}'), 2)
    assert.equal(valueOf(text, 'entracte_kv_copied_bytes_total{to="host"}'), 5_000)
    assert.equal(valueOf(text, 'entracte_kv_copy_seconds_total{to="host"}'), 2)
    assert.equal(valueOf(text, 'entracte_kv_moves_failed_total{lost="true"}'), 1)
    assert.equal(valueOf(text, 'entracte_calls_ended_total{end="cancelled"}'), 1)
    assert.equal(valueOf(text, 'entracte_calls_ended_total{end="attempts_exhausted"}'), 1)
    assert.equal(valueOf(text, 'entracte_calls_ended_total{end="internal"}'), 1)
    assert.equal(valueOf(text, 'entracte_programs_ended_total{end="failed"}'), 1)
    assert.equal(valueOf(text, 'entracte_engines_lost_total{engine="e1"}'), 1)
  })

  test('say how many snapshots are kept, and how many were lost', async (t) => {
    const text = await scrape(appOf(t, fakeGateway()))
    assert.deepEqual(['entracte_snapshots', 'entracte_snapshots_lost'].map((name) => valueOf(text, name)), [2, 1])
  })

  test('count recomputed tokens once, though reports repeat the total of an attempt', async (t) => {
    const gateway = fakeGateway()
    const app = appOf(t, gateway)
    const call = callId('c')
    const scheduled = {
      kind: 'call.scheduled', call, engine: engineId('e'), state: stateId('s'), baseTokens: 0, keepTokens: 0, granules: 1,
      recomputeTokens: 9, forcedTokens: 0, replay: 'exact', rank: 1, expectedWorkUs: 0,
    } as const
    gateway.show({ ...scheduled, attempt: 1 })
    gateway.show({ kind: 'call.progressed', call, attempt: 1, report: report(30) })
    gateway.show({ kind: 'call.progressed', call, attempt: 1, report: report(50) })
    gateway.show({ ...scheduled, attempt: 2 })
    gateway.show({ kind: 'call.completed', call, attempt: 2, finish: 'stop', report: report(20), parts: { waitUs: 0, recomputeUs: 0, prefillUs: 0, decodeUs: 0 }, spans: [], toolCalls: [], resume: 'exact', supersedes: null })
    const text = await scrape(app)
    assert.equal(valueOf(text, 'entracte_recomputed_tokens_total'), 70)
    assert.equal(valueOf(text, 'entracte_calls_ended_total{end="stop"}'), 1)
  })

  test('bound a label that comes as text', async (t) => {
    const gateway = fakeGateway()
    const app = appOf(t, gateway)
    for (let n = 0; n < 60; n++) gateway.show({ kind: 'result.ignored', input: 'progress', subject: 'x', why: `reign ${n}` })
    const text = await scrape(app)
    assert.equal(text.split('\n').filter((line) => line.startsWith('entracte_results_ignored_total{')).length, 51)
    assert.equal(valueOf(text, 'entracte_results_ignored_total{input="progress",why="other"}'), 10)
  })
})

describe('metrics of what is there now', () => {
  test('read engines, tenants, programs and host memory from the live state', async (t) => {
    const gateway = fakeGateway()
    joinEngine(gateway)
    const app = appOf(t, gateway)
    await app.inject({ method: 'POST', url: '/v1/programs', payload: { id: 'very-secret-id' } })
    gateway.core.tenants.set(tenantId('local'), { ...must(gateway.core.tenants, tenantId('local')), service: { useful: { residentUs: 3_000_000, workUs: 2_000_000 }, retried: zero, recomputed: zero } })
    const text = await scrape(app)
    assert.equal(valueOf(text, 'entracte_engine_joined{engine="e1"}'), 1)
    assert.equal(valueOf(text, 'entracte_engine_stage{engine="e1",stage="joined"}'), 1)
    assert.equal(valueOf(text, 'entracte_engine_granules{engine="e1",sort="free"}'), 4)
    assert.equal(valueOf(text, 'entracte_engine_sequences{engine="e1",sort="used"}'), 0)
    assert.equal(valueOf(text, 'entracte_tenant_service_seconds_total{tenant="local",sort="useful",measure="work"}'), 2)
    assert.equal(valueOf(await scrape(app), 'entracte_tenant_service_seconds_total{tenant="local",sort="useful",measure="resident"}'), 3)
    assert.equal(valueOf(text, 'entracte_programs{stage="open"}'), 1)
    assert.equal(valueOf(text, 'entracte_kv_host_bytes{sort="free"}'), gateway.core.host.totalBytes)
    assert.equal(valueOf(text, 'entracte_kv_suspended_bytes{tier="device"}'), 0)
    assert.doesNotMatch(text, /very-secret-id/)
  })

  test('say who the door knew, and which headers it could not use', async (t) => {
    const app = appOf(t, fakeGateway(answering('ok')))
    await post(app, chatBody(), { 'x-program-id': 'p' })
    await post(app, chatBody(), { 'x-program-id': 'x'.repeat(300) })
    const text = await scrape(app)
    assert.equal(valueOf(text, 'entracte_requests_identified_total{source="explicit"}'), 1)
    assert.equal(valueOf(text, 'entracte_requests_identified_total{source="anonymous"}'), 1)
    assert.equal(valueOf(text, 'entracte_identity_headers_ignored_total{header="x-program-id",why="not-plain"}'), 1)
  })

  test('are open on loopback, and beyond it want their own key, not a tenant\'s', async (t) => {
    const tenants = [tenantKey('a', 'key-of-a')]
    assert.equal((await appOf(t, fakeGateway(), { tenants }).inject({ url: '/metrics' })).statusCode, 200)
    assert.equal((await appOf(t, fakeGateway(), { tenants, host: '0.0.0.0' }).inject({ url: '/metrics', headers: bearer('key-of-a') })).statusCode, 401)
    const app = appOf(t, fakeGateway(), { tenants, host: '0.0.0.0', metricsKey: 'key-of-metrics' })
    assert.equal((await app.inject({ url: '/metrics', headers: bearer('key-of-a') })).statusCode, 401)
    assert.equal((await app.inject({ url: '/metrics', headers: bearer('key-of-metrics') })).statusCode, 200)
  })
})
