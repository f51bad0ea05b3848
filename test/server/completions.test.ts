/** One chat completion at the door, without a socket: what goes in to the gateway and what comes out of it. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { appOf, bearer, chatBody, eventsOf, post, tenantKey, USER } from './app-of.ts'
import { answering, fakeGateway, joinEngine } from './fake-gateway.ts'

const WEATHER = { type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: { city: { type: 'string' } } } } }

describe('a whole answer', () => {
  test('has the text, the usage with cached tokens, and ids of the call and its program', async (t) => {
    const app = appOf(t, fakeGateway(answering('Hello there.')))
    const reply = await post(app, chatBody(), { 'x-program-id': 'p1' })
    assert.equal(reply.statusCode, 200)
    const body = reply.json()
    assert.equal(body.id, 'chatcmpl-c1')
    assert.equal(body.object, 'chat.completion')
    assert.equal(body.model, 'tiny')
    assert.ok(Math.abs(body.created - Date.now() / 1000) < 60)
    assert.deepEqual(body.choices, [{ index: 0, message: { role: 'assistant', content: 'Hello there.', refusal: null }, logprobs: null, finish_reason: 'stop' }])
    assert.deepEqual(body.usage, { prompt_tokens: 12, completion_tokens: 3, total_tokens: 15, prompt_tokens_details: { cached_tokens: 8 } })
    assert.deepEqual(body.entracte, { call: 'c1', program: 'p1', resume: 'none', queuedUs: 250_000 })
    assert.equal(reply.headers['x-program-id'], 'p1')
    assert.equal(reply.headers['x-program-identity'], 'explicit;100')
    assert.equal(reply.headers['x-program-queue-ms'], '250')
    assert.equal(reply.headers['x-kv-cached-tokens'], '8')
    assert.match(String(reply.headers['x-request-id']), /^[0-9a-f-]{36}$/)
  })

  test('puts tool calls together from their pieces, with content null', async (t) => {
    const app = appOf(t, fakeGateway((call) => {
      call.arrive()
      call.say({ kind: 'part', part: { kind: 'toolCall', index: 0, name: 'weather', arguments: '{"ci' } })
      call.say({ kind: 'part', part: { kind: 'toolCall', index: 0, name: null, arguments: 'ty":"Ghent"}' } })
      call.say({ kind: 'part', part: { kind: 'toolCall', index: 1, name: 'weather', arguments: '{}' } })
      call.done({ finish: 'tool_calls' })
    }))
    const { choices } = (await post(app, chatBody({ tools: [WEATHER] }))).json()
    assert.equal(choices[0].finish_reason, 'tool_calls')
    assert.equal(choices[0].message.content, null)
    assert.deepEqual(choices[0].message.tool_calls, [
      { id: 'call_c1_0', type: 'function', function: { name: 'weather', arguments: '{"city":"Ghent"}' } },
      { id: 'call_c1_1', type: 'function', function: { name: 'weather', arguments: '{}' } },
    ])
  })

  test('says when a resume was recomputed plainly', async (t) => {
    const app = appOf(t, fakeGateway((call) => { call.arrive(); call.done({ resume: 'recomputed' }) }))
    assert.equal((await post(app, chatBody())).json().entracte.resume, 'recomputed')
  })
})

describe('a stream', () => {
  const streamed = { stream: true, stream_options: { include_usage: true } }

  test('is the role, the pieces, the finish, the usage and [DONE], in this order', async (t) => {
    const app = appOf(t, fakeGateway(answering('Hello.')))
    const reply = await post(app, chatBody(streamed), { 'x-session-id': 's1' })
    assert.equal(reply.headers['content-type'], 'text/event-stream; charset=utf-8')
    assert.equal(reply.headers['cache-control'], 'no-cache')
    assert.equal(reply.headers['x-accel-buffering'], 'no')
    assert.equal(reply.headers['x-program-identity'], 'derived;70')
    assert.ok(reply.headers['x-request-id'])
    const events = eventsOf(reply.body) as any[]
    assert.deepEqual(events.slice(0, 4).map((event) => [event.choices[0].delta, event.choices[0].finish_reason]), [
      [{ role: 'assistant', content: '' }, null], [{ content: 'He' }, null], [{ content: 'llo.' }, null], [{}, 'stop'],
    ])
    assert.ok(events.slice(0, 4).every((event) => event.id === 'chatcmpl-c1' && event.object === 'chat.completion.chunk' && event.usage === null))
    assert.equal(events[3].entracte.program, 'fresh-c1')
    assert.deepEqual(events[4].choices, [])
    assert.equal(events[4].usage.prompt_tokens_details.cached_tokens, 8)
    assert.equal(events[5], '[DONE]')
    assert.equal(events.length, 6)
  })

  test('has no usage unless asked', async (t) => {
    const app = appOf(t, fakeGateway(answering('Hello.')))
    const { body } = await post(app, chatBody({ stream: true }))
    assert.doesNotMatch(body, /usage/)
  })

  test('names a tool call once and gives its id with the name', async (t) => {
    const app = appOf(t, fakeGateway((call) => {
      call.arrive()
      call.say({ kind: 'part', part: { kind: 'toolCall', index: 0, name: 'weather', arguments: '' } })
      call.say({ kind: 'part', part: { kind: 'toolCall', index: 0, name: null, arguments: '{}' } })
      call.done({ finish: 'tool_calls' })
    }))
    const events = eventsOf((await post(app, chatBody({ stream: true, tools: [WEATHER] }))).body) as any[]
    assert.deepEqual(events.slice(1, 3).map((event) => event.choices[0].delta.tool_calls), [
      [{ index: 0, id: 'call_c1_0', type: 'function', function: { name: 'weather', arguments: '' } }],
      [{ index: 0, function: { arguments: '{}' } }],
    ])
    assert.equal(events[3].choices[0].finish_reason, 'tool_calls')
  })
})

describe('a stream of a call', () => {
  test('that waits gets comments, and its headers only when there is something to show', async (t) => {
    const app = appOf(t, fakeGateway((call) => {
      call.arrive()
      setTimeout(() => { call.text('ok'); call.done() }, 150)
    }))
    const { body } = await post(app, chatBody({ stream: true }))
    assert.match(body, /^: queued\n\n(: queued\n\n)+data: /)
  })

  test('refused after it arrived and before it began keeps the status of the refusal', async (t) => {
    const app = appOf(t, fakeGateway((call) => {
      call.arrive()
      call.say({ kind: 'refused', code: 'context_too_long', why: 'the prompt has 3000 tokens and the context holds 2048' })
    }))
    const reply = await post(app, chatBody({ stream: true }))
    assert.equal(reply.statusCode, 400)
    assert.equal(reply.json().error.code, 'context_length_exceeded')
    assert.match(reply.json().error.message, /3000 .*2048/)
  })

  test('that fails midway ends in an error event and no [DONE]', async (t) => {
    const app = appOf(t, fakeGateway((call) => {
      call.arrive()
      call.text('Hal')
      call.say({ kind: 'failed', code: 'attempts_exhausted', why: 'four attempts failed' })
    }))
    const events = eventsOf((await post(app, chatBody({ stream: true }))).body) as any[]
    assert.equal(events.at(-1).error.code, 'attempts_exhausted')
    assert.match(events.at(-1).error.message, /four attempts failed/)
    assert.ok(!events.includes('[DONE]'))
  })
})

describe('a call that goes wrong', () => {
  test('is answered with the status of its code, and a code we do not know with 500', async (t) => {
    const codes: readonly [string, number, string | undefined][] = [
      ['unknown_model', 404, undefined], ['queue_full', 429, '5'], ['engine_unavailable', 503, '5'], ['store_failed', 503, '10'],
      ['stale_epoch', 409, undefined], ['program_cancelled', 409, undefined], ['attempts_exhausted', 500, undefined], ['made_up', 500, undefined],
    ]
    for (const [code, status, retryAfter] of codes) {
      const app = appOf(t, fakeGateway((call) => call.say({ kind: 'refused', code, why: 'because' })))
      const reply = await post(app, chatBody())
      assert.equal(reply.statusCode, status, code)
      assert.equal(reply.headers['retry-after'], retryAfter, code)
      assert.ok(['true', 'false'].includes(String(reply.headers['x-should-retry'])), code)
      assert.match(reply.json().error.message, /because/)
    }
  })

  test('by a gateway that breaks its word is an internal error and is hung up', async (t) => {
    const gateway = fakeGateway((call) => { call.arrive(); call.close() })
    const reply = await post(appOf(t, gateway), chatBody())
    assert.equal(reply.statusCode, 500)
    assert.equal(reply.json().error.code, 'internal')
    await gateway.calls[0]?.hungUp
  })

  test('by waiting longer than queueHoldMs is given up with 503, whole or streamed', async (t) => {
    const gateway = fakeGateway((call) => call.arrive())
    const app = appOf(t, gateway, { limit: { queueHoldMs: 100 } })
    const whole = await post(app, chatBody())
    assert.equal(whole.statusCode, 503)
    assert.equal(whole.json().error.code, 'queue_timeout')
    assert.equal(whole.headers['retry-after'], '10')
    const stream = await post(app, chatBody({ stream: true }))
    assert.equal((eventsOf(stream.body).at(-1) as any).error.code, 'queue_timeout')
    await Promise.all(gateway.calls.map((call) => call.hungUp))
  })

  test('that has begun may pause longer than queueHoldMs', async (t) => {
    const app = appOf(t, fakeGateway((call) => { call.arrive(); call.text('a'); setTimeout(() => call.done(), 250) }), { limit: { queueHoldMs: 100 } })
    assert.equal((await post(app, chatBody())).statusCode, 200)
  })
})

describe('what the gateway is given', () => {
  test('is the validated call, its claims, and the credential\'s class and deadline', async (t) => {
    const gateway = fakeGateway(answering('ok'))
    joinEngine(gateway)
    const app = appOf(t, gateway, { tenants: [tenantKey('acme', 'key-of-acme', { class: 'batch', deadlineUs: 5_000_000 })] })
    await post(app, chatBody({ max_tokens: 7, temperature: 0, seed: 42 }), { ...bearer('key-of-acme'), 'x-program-id': 'p1', 'x-program-agent': 'coder' })
    const { submission, chat } = gateway.calls[0]!
    assert.equal(submission.tenant, 'acme')
    assert.equal(submission.model, 'tiny')
    assert.equal(submission.priorityClass, 'batch')
    assert.equal(submission.deadlineUs, 6_000_000)
    assert.equal(submission.maxTokens, 7)
    assert.equal(submission.seed, 42)
    assert.equal(submission.exactResume, null)
    assert.equal(submission.claims.program, 'p1')
    assert.equal(submission.claims.kind, 'coder')
    assert.deepEqual(chat, {
      model: 'tiny', messages: [{ role: 'user', content: 'Say hello.', toolCalls: [], toolCallId: null }], tools: [], toolChoice: 'none',
      sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 }, stop: [], maxTokens: 7,
    })
  })

  test('without a maximum is the context of the model', async (t) => {
    const gateway = fakeGateway(answering('ok'))
    joinEngine(gateway)
    await post(appOf(t, gateway), chatBody())
    assert.equal(gateway.calls[0]?.submission.maxTokens, 2_048)
    assert.equal(gateway.calls[0]?.chat.maxTokens, null)
  })

  test('priority, class and deadline in a body or a header change nothing (invariant 8)', async (t) => {
    const gateway = fakeGateway(answering('ok'))
    const app = appOf(t, gateway)
    await post(app, chatBody())
    await post(app, chatBody({ priority: 99, class: 'interactive', priorityClass: 'interactive', deadline: 1, service_tier: 'priority', metadata: { priority: 'high', tenant: 'other' }, tenant: 'other' }), {
      'x-priority': '99', 'x-program-class': 'interactive', 'x-program-priority': '9', 'x-program-deadline': '1', 'x-tenant': 'other',
    })
    const [plain, forged] = gateway.calls.map((call) => call.submission)
    assert.deepEqual({ ...forged }, { ...plain })
  })
})

describe('the digest, the credential and the resume', () => {
  test('has the same digest for the same words of the same program, and another for any other', async (t) => {
    const gateway = fakeGateway(answering('ok'))
    const app = appOf(t, gateway, { tenants: [tenantKey('a', 'key-of-a'), tenantKey('b', 'key-of-b')] })
    const digest = async (key: string, body: object, headers: Record<string, string> = {}): Promise<string> => {
      await post(app, body, { ...bearer(key), ...headers })
      return gateway.calls.at(-1)!.submission.digest
    }
    const first = await digest('key-of-a', chatBody(), { 'x-program-id': 'p' })
    assert.match(first, /^[0-9a-f]{64}$/)
    assert.equal(await digest('key-of-a', { messages: [USER], model: 'tiny', stream: true, user: 'x' }, { 'x-program-id': 'p' }), first)
    const others = [
      await digest('key-of-b', chatBody(), { 'x-program-id': 'p' }), await digest('key-of-a', chatBody(), { 'x-program-id': 'q' }),
      await digest('key-of-a', chatBody({ temperature: 0 }), { 'x-program-id': 'p' }), await digest('key-of-a', chatBody({ seed: 1 }), { 'x-program-id': 'p' }),
      await digest('key-of-a', chatBody(), { 'x-program-id': 'p', 'x-program-epoch': '2' }), await digest('key-of-a', chatBody()),
    ]
    assert.equal(new Set([first, ...others]).size, 7)
  })

  test('the header x-resume-exact decides over the key, and what is neither true nor false is refused', async (t) => {
    const gateway = fakeGateway(answering('ok'))
    const app = appOf(t, gateway, { tenants: [tenantKey('a', 'key-of-a', { exactResume: false })] })
    await post(app, chatBody(), bearer('key-of-a'))
    await post(app, chatBody(), { ...bearer('key-of-a'), 'x-resume-exact': 'true' })
    assert.deepEqual(gateway.calls.map((call) => call.submission.exactResume), [false, true])
    const refused = await post(app, chatBody(), { ...bearer('key-of-a'), 'x-resume-exact': 'maybe' })
    assert.equal(refused.statusCode, 400)
    assert.equal(refused.json().error.param, 'x-resume-exact')
  })

  test('a header that says what the call waits for, or which epoch it is of, is refused where it cannot be read', async (t) => {
    const gateway = fakeGateway(answering('ok'))
    const app = appOf(t, gateway)
    for (const [header, value] of [['x-program-parent-call-ids', 'a,,b'], ['x-program-call-id', 'x'.repeat(300)], ['x-program-epoch', '-1']] as const) {
      const refused = await post(app, chatBody(), { 'x-program-id': 'p', [header]: value })
      assert.deepEqual([refused.statusCode, refused.json().error.param], [400, header])
    }
    assert.equal(gateway.calls.length, 0)
    assert.equal((await post(app, chatBody(), { 'x-program-id': 'p', 'x-program-final': 'perhaps' })).statusCode, 200, 'others are ignored and counted')
  })

  test('two tenants with the same ids stay apart by tenant', async (t) => {
    const gateway = fakeGateway(answering('ok'))
    const app = appOf(t, gateway, { tenants: [tenantKey('a', 'key-of-a'), tenantKey('b', 'key-of-b')] })
    for (const key of ['key-of-a', 'key-of-b']) await post(app, chatBody(), { ...bearer(key), 'x-program-id': 'p', 'x-session-id': 's' })
    assert.deepEqual(gateway.calls.map(({ submission }) => [submission.tenant, submission.claims.program, submission.claims.session]), [['a', 'p', 's'], ['b', 'p', 's']])
  })
})
