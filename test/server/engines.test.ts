import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fakeGateway, joinEngine } from './fake-gateway.ts'
import { appOf, bearer, tenantKey } from './app-of.ts'

const list = async (app: ReturnType<typeof appOf>) => (await app.inject({ url: '/v1/admin/engines' })).json().data

test('engines are listed, drained and taken back by id; readiness says so', async (t) => {
  const gateway = fakeGateway()
  joinEngine(gateway)
  const app = appOf(t, gateway)
  assert.deepEqual(await list(app), [{ id: 'e1', stage: 'joined', why: null, callsRunning: 0, statesIdle: 0 }])
  assert.equal((await app.inject({ method: 'POST', url: '/v1/admin/engines/e1/drain', payload: { withinSeconds: 0 } })).statusCode, 202)
  assert.equal((await list(app))[0].stage, 'drained')
  const ready = await app.inject({ url: '/readyz' })
  assert.deepEqual([ready.statusCode, ready.json()], [503, { status: 'drained', engines: [{ id: 'e1', stage: 'drained' }] }])
  assert.equal((await app.inject({ method: 'POST', url: '/v1/admin/engines/e1/undrain' })).statusCode, 202)
  assert.equal((await list(app))[0].stage, 'joined')
})

test('what is not there, or not so, is refused by name', async (t) => {
  const app = appOf(t, fakeGateway())
  assert.equal((await app.inject({ method: 'POST', url: '/v1/admin/engines/e9/drain' })).json().error.code, 'unknown_engine')
  const wrong = await app.inject({ method: 'POST', url: '/v1/admin/engines/e9/drain', payload: { withinSeconds: -1 } })
  assert.equal(wrong.statusCode, 400)
  assert.match(wrong.json().error.message, /withinSeconds/)
})

test('a tenant\'s key opens nothing of it, nor a page of another origin; the operator\'s key does', async (t) => {
  const tenants = [tenantKey('a', 'key-of-a')]
  const ask = (app: ReturnType<typeof appOf>, headers: Record<string, string>) => app.inject({ url: '/v1/admin/engines', headers }).then(({ statusCode }) => statusCode)
  assert.equal(await ask(appOf(t, fakeGateway(), { tenants }), bearer('key-of-a')), 401)
  assert.equal(await ask(appOf(t, fakeGateway()), { origin: 'https://elsewhere.example' }), 403)
  const app = appOf(t, fakeGateway(), { tenants, adminKey: 'key-of-operator' })
  assert.equal(await ask(app, bearer('key-of-a')), 401)
  assert.equal(await ask(app, bearer('key-of-operator')), 200)
})
