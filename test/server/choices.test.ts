/** Several choices of one request at the door, with the calls in hand: what is submitted, and what becomes of it. */
import assert from 'node:assert/strict'
import { request } from 'node:http'
import { describe, test } from 'node:test'
import { appOf, chatBody, eventsOf, listening, post } from './app-of.ts'
import { fakeGateway, type FakeCall } from './fake-gateway.ts'

const WEATHER = { type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: {} } } }

/** Every call says its own id and ends. */
const saying = (call: FakeCall): void => {
  call.arrive('p')
  call.text(`I am ${call.id}.`)
  call.done({ outputTokens: Number(call.id.slice(1)), promptTokens: 12, cachedTokens: call.id === 'c1' ? 3 : 9 })
}

describe('a request for three choices', () => {
  test('is three calls: the first as if alone, the others beside it in its program, each with a choice in its body', async (t) => {
    const gateway = fakeGateway(saying)
    await post(appOf(t, gateway), chatBody({ n: 3, seed: 4 }), { 'x-session-id': 's', 'x-program-final': 'true' })
    const claims = gateway.calls.map(({ submission }) => submission.claims)
    assert.deepEqual(claims.map(({ program, session, beside }) => [program, session, beside]), [[null, 's', undefined], ['p', 's', 'c1'], ['p', 's', 'c1']])
    assert.deepEqual(claims.map(({ thread, node, parent }) => [thread, node, parent]), Array(3).fill([null, null, null]))
    assert.deepEqual(gateway.calls.map(({ chat }) => chat.choice), [undefined, 1, 2])
    assert.deepEqual(gateway.calls.map(({ submission }) => submission.seed), [4, 4, 4])
    assert.equal(new Set(gateway.calls.map(({ submission }) => submission.digest)).size, 3)
    assert.deepEqual(claims.map(({ final }) => final), [false, false, true], 'a program\'s last call is its last choice')
  })

  test('the same again has the same digests, so that each is found as the retry it is', async (t) => {
    const gateway = fakeGateway(saying)
    const app = appOf(t, gateway)
    for (let i = 0; i < 2; i++) await post(app, chatBody({ n: 3 }), { 'x-program-id': 'p' })
    const digests = gateway.calls.map(({ submission }) => submission.digest)
    assert.deepEqual(digests.slice(3), digests.slice(0, 3))
  })

  test('whole: all in order under the first one\'s id, the prompt counted once', async (t) => {
    const app = appOf(t, fakeGateway((call) => void setTimeout(() => saying(call), call.id === 'c2' ? 30 : 0)))
    const body = (await post(app, chatBody({ n: 3 }))).json()
    assert.equal(body.id, 'chatcmpl-c1')
    assert.deepEqual(body.choices.map((choice: any) => [choice.index, choice.message.content, choice.finish_reason]), [
      [0, 'I am c1.', 'stop'], [1, 'I am c2.', 'stop'], [2, 'I am c3.', 'stop'],
    ])
    assert.deepEqual(body.usage, { prompt_tokens: 12, completion_tokens: 6, total_tokens: 18, prompt_tokens_details: { cached_tokens: 3 } })
    assert.deepEqual([body.entracte.call, body.entracte.program], ['c1', 'p'])
  })

  test('streamed: each has a role, its pieces and its finish under its index, and the usage comes once', async (t) => {
    const app = appOf(t, fakeGateway((call) => {
      call.arrive('p')
      call.say({ kind: 'part', part: { kind: 'toolCall', index: 0, name: 'weather', arguments: '{}' } })
      call.done({ finish: 'tool_calls' })
    }))
    const events = eventsOf((await post(app, chatBody({ n: 3, stream: true, stream_options: { include_usage: true }, tools: [WEATHER] }))).body) as any[]
    assert.equal(events.pop(), '[DONE]')
    const usage = events.pop()
    assert.deepEqual([usage.choices, usage.usage.prompt_tokens, usage.usage.completion_tokens], [[], 12, 9])
    for (const [index, call] of ['c1', 'c2', 'c3'].entries()) {
      const own = events.filter(({ choices }) => choices[0].index === index)
      assert.deepEqual(own.map(({ choices }) => choices[0].delta), [
        { role: 'assistant', content: '' },
        { tool_calls: [{ index: 0, id: `call_${call}_0`, type: 'function', function: { name: 'weather', arguments: '{}' } }] },
        {},
      ])
      assert.deepEqual(own.map(({ choices }) => choices[0].finish_reason), [null, null, 'tool_calls'])
      assert.equal(own.at(-1)?.entracte.call, call)
      assert.ok(own.every(({ id }) => id === 'chatcmpl-c1'))
    }
    assert.equal(events.length, 9)
  })
})

describe('a choice that cannot go on', () => {
  const failing = (stream: boolean) => fakeGateway((call) => {
    call.arrive('p')
    if (stream) call.text('a')
    if (call.id === 'c2') setTimeout(() => call.say({ kind: 'failed', code: 'attempts_exhausted', why: 'four attempts failed' }), 20)
  })

  for (const stream of [false, true]) {
    test(`fails the request, says which, and the others are hung up: ${stream ? 'streamed' : 'whole'}`, async (t) => {
      const gateway = failing(stream)
      const reply = await post(appOf(t, gateway), chatBody({ n: 3, stream }))
      const { error } = stream ? eventsOf(reply.body).at(-1) as any : reply.json()
      assert.equal(reply.statusCode, stream ? 200 : 500)
      assert.equal(error.code, 'attempts_exhausted')
      assert.match(error.message, /choice 1 of 3: four attempts failed/)
      await Promise.all(gateway.calls.map((call) => call.hungUp))
      assert.equal(gateway.calls.length, 3)
    })
  }

  test('is the first: nothing else is submitted, and it is told as if it were alone in its status', async (t) => {
    const gateway = fakeGateway((call) => call.say({ kind: 'refused', code: 'queue_full', why: 'it is full' }))
    const reply = await post(appOf(t, gateway), chatBody({ n: 8 }))
    assert.deepEqual([reply.statusCode, reply.headers['retry-after'], gateway.calls.length], [429, '5', 1])
  })

  test('breaks its word: an internal error, and all are hung up', async (t) => {
    const gateway = fakeGateway((call) => {
      call.arrive('p')
      if (call.id === 'c3') call.close()
    })
    const reply = await post(appOf(t, gateway), chatBody({ n: 3 }))
    assert.deepEqual([reply.statusCode, reply.json().error.code], [500, 'internal'])
    await Promise.all(gateway.calls.map((call) => call.hungUp))
  })
})

describe('a client that leaves', () => {
  test('before the first has arrived has one call hung up and no other submitted; later, all', async (t) => {
    for (const arrives of [false, true]) {
      const gateway = fakeGateway((call) => { if (arrives) call.arrive('p') })
      const url = new URL(`${await listening(appOf(t, gateway))}/v1/chat/completions`)
      const client = request(url, { method: 'POST', headers: { 'content-type': 'application/json' } })
      client.on('error', () => undefined)
      client.end(JSON.stringify(chatBody({ n: 4 })))
      const count = arrives ? 4 : 1
      while (gateway.calls.length < count) await new Promise((resolve) => setTimeout(resolve, 5))
      client.destroy()
      await Promise.all(gateway.calls.map((call) => call.hungUp))
      gateway.calls[0]?.arrive('p')
      await new Promise((resolve) => setTimeout(resolve, 20))
      assert.equal(gateway.calls.length, count)
    }
  })
})
