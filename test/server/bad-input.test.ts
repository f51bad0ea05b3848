/** What must not come in: each is refused in the one shape of errors, says what to do, and reaches no gateway. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { appOf, bearer, chatBody, post, tenantKey, USER } from './app-of.ts'
import { answering, fakeGateway } from './fake-gateway.ts'

describe('a request that cannot be read', () => {
  const raw = (app: ReturnType<typeof appOf>, payload: string, type = 'application/json') =>
    app.inject({ method: 'POST', url: '/v1/chat/completions', payload, headers: { 'content-type': type } })

  test('is refused by its reason', async (t) => {
    const gateway = fakeGateway(answering('never'))
    const app = appOf(t, gateway)
    const cases: readonly [string, string, number, string][] = [
      ['{"model": "tiny", "messages": [', 'application/json', 400, 'invalid_json'],
      ['', 'application/json', 400, 'invalid_request'],
      ['"text"', 'application/json', 400, 'invalid_request'],
      ['[]', 'application/json', 400, 'invalid_request'],
      ['null', 'application/json', 400, 'invalid_request'],
      ['{"__proto__": {"x": 1}}', 'application/json', 400, 'invalid_json'],
      ['{}', 'text/plain', 415, 'unsupported_media_type'],
      ['model=tiny', 'application/x-www-form-urlencoded', 415, 'unsupported_media_type'],
      [JSON.stringify(chatBody({ messages: [{ role: 'user', content: 'x'.repeat(70_000) }] })), 'application/json', 413, 'body_too_large'],
    ]
    for (const [payload, type, status, code] of cases) {
      const reply = await raw(app, payload, type)
      const { error } = reply.json()
      assert.equal(reply.statusCode, status, payload.slice(0, 40))
      assert.equal(error.code, code, payload.slice(0, 40))
      assert.deepEqual(Object.keys(error), ['message', 'type', 'param', 'code'])
      assert.equal(reply.headers['x-should-retry'], 'false')
      assert.ok(reply.headers['x-request-id'])
    }
    assert.equal(gateway.calls.length, 0)
  })

  test('may be nested as deep as it likes without harm', async (t) => {
    const app = appOf(t, fakeGateway(answering('ok')))
    const deep = `${'['.repeat(30_000)}${']'.repeat(30_000)}`
    assert.equal((await raw(app, `{"model":"tiny","messages":[{"role":"user","content":"a"}],"x":${deep}}`)).statusCode, 200)
    const schema = await raw(app, `{"model":"tiny","messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"a","parameters":{"x":${deep}}}}]}`)
    assert.equal(schema.json().error.code, 'unsupported_schema')
  })
})

describe('an address', () => {
  test('that is not there is 404, one asked in another way 405 with what it allows', async (t) => {
    const app = appOf(t, fakeGateway())
    const missing = await app.inject({ method: 'GET', url: '/v2/nothing' })
    assert.deepEqual([missing.statusCode, missing.json().error.code], [404, 'not_found'])
    const method = await app.inject({ method: 'DELETE', url: '/v1/chat/completions' })
    assert.deepEqual([method.statusCode, method.json().error.code, method.headers['allow']], [405, 'method_not_allowed', 'POST'])
    const both = await app.inject({ method: 'PUT', url: '/v1/programs/x', payload: {} })
    assert.equal(both.headers['allow'], 'GET, DELETE')
    const broken = await app.inject({ method: 'GET', url: '/v1/programs/%E0%A4%A' })
    assert.deepEqual([broken.statusCode, broken.json().error.code], [400, 'invalid_request'])
  })
})

describe('a field', () => {
  test('that is unknown is tolerated', async (t) => {
    const reply = await post(appOf(t, fakeGateway(answering('ok'))), chatBody({ extra_headers: { a: 1 }, made_up: [1, 2], reasoning_effort: 'low', store: true, user: 'u' }))
    assert.equal(reply.statusCode, 200)
  })

  test('that would change the result and is not supported is refused by name', async (t) => {
    const gateway = fakeGateway(answering('never'))
    const reply = await post(appOf(t, gateway), chatBody({ best_of: 2 }))
    assert.equal(reply.statusCode, 400)
    assert.deepEqual([reply.json().error.code, reply.json().error.param], ['unsupported_parameter', 'best_of'])
    assert.match(reply.json().error.message, /"best_of"/)
    assert.equal(gateway.calls.length, 0)
  })

  test('of a wrong type is refused by its path', async (t) => {
    const reply = await post(appOf(t, fakeGateway(answering('never'))), chatBody({ messages: [USER, { role: 'user', content: 3 }] }))
    assert.equal(reply.json().error.param, 'messages[1].content')
  })
})

describe('a credential', () => {
  const tenants = [tenantKey('a', 'key-of-a'), tenantKey('b', 'key-of-b')]

  test('that is missing, malformed or unknown is 401 before the body is read', async (t) => {
    const app = appOf(t, fakeGateway(answering('never')), { tenants })
    for (const headers of [{}, { authorization: 'Bearer' }, { authorization: 'Basic key-of-a' }, bearer('key-of-'), bearer('key-of-aa'), bearer('key-of-a x')]) {
      const reply = await app.inject({ method: 'POST', url: '/v1/chat/completions', payload: '{', headers: { 'content-type': 'application/json', ...headers } })
      assert.deepEqual([reply.statusCode, reply.json().error.code], [401, 'invalid_api_key'], JSON.stringify(headers))
      assert.equal(reply.headers['www-authenticate'], 'Bearer')
      assert.equal(reply.headers['x-should-retry'], 'false')
    }
  })

  test('opens every route of its tenant, and health needs none', async (t) => {
    const app = appOf(t, fakeGateway(answering('ok')), { tenants })
    assert.equal((await post(app, chatBody(), bearer('key-of-b'))).statusCode, 200)
    assert.equal((await app.inject({ url: '/v1/models', headers: bearer('key-of-a') })).statusCode, 200)
    assert.equal((await app.inject({ url: '/v1/models' })).statusCode, 401)
    assert.equal((await app.inject({ url: '/healthz' })).statusCode, 200)
  })

  test('is not needed on a machine that serves itself, and pages of other origins are refused there', async (t) => {
    const app = appOf(t, fakeGateway(answering('ok')))
    const ask = (headers: Record<string, string>) => app.inject({ url: '/v1/models', headers })
    assert.equal((await ask({ host: 'localhost:7600' })).statusCode, 200)
    assert.equal((await ask({ host: '[::1]:7600', origin: 'http://127.0.0.1:7600' })).statusCode, 200)
    assert.equal((await ask({ host: 'rebound.example:7600' })).json().error.code, 'forbidden')
    assert.equal((await ask({ host: '127.0.0.1:7600', origin: 'https://rebound.example' })).statusCode, 403)
    assert.equal((await ask({ host: '127.0.0.1:7600', origin: 'null' })).statusCode, 403)
  })

  test('must exist where other machines can reach the listener', (t) => {
    assert.throws(() => appOf(t, fakeGateway(), { host: '0.0.0.0' }), /no tenants/)
    appOf(t, fakeGateway(), { host: '0.0.0.0', tenants })
  })
})
