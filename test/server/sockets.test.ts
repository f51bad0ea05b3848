/** The door on real sockets: clients that leave, read slowly or speak nonsense, and the client library people use. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import OpenAI from 'openai'
import { pino } from 'pino'
import type { FakeCall } from './fake-gateway.ts'
import { answering, fakeGateway, joinEngine } from './fake-gateway.ts'
import { appOf, chatBody, eventsOf, listening, tenantKey, type App } from './app-of.ts'

const within = <T>(ms: number, promise: Promise<T>): Promise<T> =>
  Promise.race([promise, sleep(ms, undefined, { ref: false }).then(() => assert.fail(`took more than ${ms} ms`))])

async function until(what: () => boolean): Promise<void> {
  for (const end = performance.now() + 5_000; !what();) {
    assert.ok(performance.now() < end, `never: ${what.toString()}`)
    await sleep(5)
  }
}

function send(url: string, body: object, headers: Record<string, string> = {}): ClientRequest {
  const request = httpRequest(`${url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json', ...headers } })
  request.on('error', () => undefined)
  request.end(JSON.stringify(body))
  return request
}

const responseOf = async (request: ClientRequest): Promise<IncomingMessage> => (await once(request, 'response'))[0]

async function textOf(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of response) chunks.push(chunk)
  return Buffer.concat(chunks).toString()
}

const scrape = async (app: App): Promise<string> => (await app.inject({ url: '/metrics' })).body

describe('a client that leaves', () => {
  const phases: readonly [string, boolean, (call: FakeCall) => void][] = [
    ['before the call has arrived', false, () => undefined],
    ['while queued', false, (call) => call.arrive()],
    ['a stream while queued', true, (call) => call.arrive()],
    ['while it is generated', false, (call) => { call.arrive(); call.text('a') }],
    ['a stream midway', true, (call) => { call.arrive(); call.text('a') }],
  ]
  for (const [when, stream, play] of phases) {
    test(`${when} is hung up within a second`, async (t) => {
      const gateway = fakeGateway(play)
      const app = appOf(t, gateway)
      const request = send(await listening(app), chatBody({ stream }))
      await until(() => gateway.calls.length === 1)
      await sleep(100)
      request.destroy()
      await within(1_000, gateway.calls[0]!.hungUp)
      assert.match(await scrape(app), /entracte_clients_left_total\{stage="\w+"\} 1/)
      await until(() => true)
      assert.match(await scrape(app), /entracte_answers_open 0/)
    })
  }

  test('by closing only its sending half is hung up too', async (t) => {
    const gateway = fakeGateway((call) => call.arrive())
    const { port } = new URL(await listening(appOf(t, gateway)))
    const socket = connect(Number(port), '127.0.0.1')
    const body = JSON.stringify(chatBody({ stream: true }))
    socket.end(`POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
    await until(() => gateway.calls.length === 1)
    await within(1_000, gateway.calls[0]!.hungUp)
    socket.destroy()
  })

  test('after the last byte is not hung up', async (t) => {
    const gateway = fakeGateway(answering('done'))
    const app = appOf(t, gateway)
    const request = send(await listening(app), chatBody({ stream: true }))
    await textOf(await responseOf(request))
    request.destroy()
    await sleep(50)
    assert.doesNotMatch(await scrape(app), /entracte_clients_left_total\{/)
  })
})

describe('a slow reader', () => {
  const PIECE = 'x'.repeat(4_000)
  const PIECES = 4_000

  test('holds back its own call only, and gets every byte when it reads on', async (t) => {
    const gateway = fakeGateway((call) => {
      call.arrive()
      for (let n = 0; n < PIECES; n++) call.text(PIECE)
      call.done()
    })
    const app = appOf(t, gateway)
    const url = await listening(app)
    const slow = await responseOf(send(url, chatBody({ stream: true })))
    slow.pause()
    const [call] = gateway.calls
    let before = -1
    while (before !== call!.taken()) {
      before = call!.taken()
      await sleep(200)
    }
    assert.ok(before < PIECES / 2, `${before} of ${PIECES} pieces were taken`)
    assert.match(await (await fetch(`${url}/healthz`)).text(), /ok/)
    const events = eventsOf(await textOf(slow)) as any[]
    assert.equal(events.at(-1), '[DONE]')
    assert.equal(events.filter((event) => event.choices?.[0].delta.content === PIECE).length, PIECES)
    assert.ok(Number(/^entracte_reader_wait_seconds_total (\S+)/m.exec(await scrape(app))?.[1]) > 0.1)
  })

  test('that takes nothing for slowReaderMs is let go', async (t) => {
    const gateway = fakeGateway((call) => {
      call.arrive()
      for (let n = 0; n < PIECES; n++) call.text(PIECE)
    })
    const slow = await responseOf(send(await listening(appOf(t, gateway, { limit: { slowReaderMs: 200 } })), chatBody({ stream: true })))
    slow.on('error', () => undefined)
    slow.pause()
    await within(3_000, gateway.calls[0]!.hungUp)
    slow.destroy()
  })
})

describe('a client that speaks nonsense', () => {
  async function say(app: App, text: string): Promise<string> {
    const { port } = new URL(await listening(app))
    const socket = connect(Number(port), '127.0.0.1')
    socket.on('error', () => undefined)
    socket.write(text)
    let answer = ''
    for await (const chunk of socket) answer += String(chunk)
    return answer
  }

  test('in place of HTTP is told so in our shape, and the server goes on', async (t) => {
    const app = appOf(t, fakeGateway(answering('ok')))
    const answer = await within(3_000, say(app, 'hello there\r\n\r\n'))
    assert.match(answer, /^HTTP\/1\.1 400 /)
    assert.equal(JSON.parse(answer.split('\r\n\r\n')[1] ?? '').error.code, 'invalid_request')
    assert.equal((await app.inject({ url: '/healthz' })).statusCode, 200)
  })

  test('with a body that is longer than allowed is refused while it still sends', async (t) => {
    const gateway = fakeGateway(answering('never'))
    const answer = await within(3_000, say(appOf(t, gateway), `POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 99999999\r\n\r\n{"model": "tiny"`))
    assert.match(answer, /^HTTP\/1\.1 413 /)
    assert.match(answer, /body_too_large/)
    assert.equal(gateway.calls.length, 0)
  })
})

describe('the server that stops', () => {
  test('tells who waits, in the way their answer allows, and leaves the calls for after the next start', async (t) => {
    const gateway = fakeGateway((call) => {
      call.arrive()
      if (call.submission.claims.program === 'begun') call.text('a')
    })
    const app = appOf(t, gateway)
    const url = await listening(app)
    const waiting = responseOf(send(url, chatBody()))
    const begun = await responseOf(send(url, chatBody({ stream: true }), { 'x-program-id': 'begun' }))
    await until(() => gateway.calls.length === 2)
    const text = textOf(begun)
    await sleep(50)
    await within(3_000, app.close())
    const refused = await waiting
    assert.equal(refused.statusCode, 503)
    assert.equal(refused.headers['x-should-retry'], 'true')
    assert.match(await textOf(refused), /shutting_down/)
    assert.equal((eventsOf(await text).at(-1) as any).error.code, 'shutting_down')
    let hungUp = 0
    for (const call of gateway.calls) void call.hungUp.then(() => { hungUp++ })
    await sleep(20)
    assert.equal(hungUp, 0)
  })
})

describe('the log', () => {
  test('has one line an answer, streams too, with neither words nor keys', async (t) => {
    const lines: string[] = []
    const log = pino({ level: 'info' }, { write: (line: string) => { lines.push(line) } })
    const gateway = fakeGateway(answering('secret answer'))
    const url = await listening(appOf(t, gateway, { log, tenants: [tenantKey('a', 'key-of-a')] }))
    for (const stream of [true, false]) {
      await textOf(await responseOf(send(url, chatBody({ stream, messages: [{ role: 'user', content: 'secret prompt' }] }), { authorization: 'Bearer key-of-a' })))
    }
    await until(() => lines.filter((line) => line.includes('"answered"')).length === 2)
    assert.ok(lines.some((line) => JSON.parse(line).route === '/v1/chat/completions' && JSON.parse(line).status === 200))
    assert.doesNotMatch(lines.join(''), /secret|key-of-a/)
  })
})

const PARAMETERS = { type: 'object', properties: { query: { type: 'string' } }, required: ['query'] }

const clientOf = (url: string, more: object = {}): OpenAI => new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', ...more })

describe('the openai client', () => {
  test('streams a loop of tool calls to its end', async (t) => {
    const gateway = fakeGateway((call) => {
      call.arrive()
      const answered = call.submission.claims.toolResults.length > 0
      if (answered) {
        call.text(`It is ${call.chat.messages.at(-1)?.content}.`)
        call.done()
      } else {
        call.text('Let me look. ')
        call.say({ kind: 'part', part: { kind: 'toolCall', index: 0, name: 'search', arguments: '{"que' } })
        call.say({ kind: 'part', part: { kind: 'toolCall', index: 0, name: null, arguments: 'ry":"sum"}' } })
        call.done({ finish: 'tool_calls' })
      }
    })
    joinEngine(gateway)
    const client = clientOf(await listening(appOf(t, gateway)), { defaultHeaders: { 'X-Program-Id': 'loop' } })
    const seen: string[] = []
    const runner = client.chat.completions.runTools({
      model: 'tiny', stream: true, stream_options: { include_usage: true }, messages: [{ role: 'user', content: 'How much?' }],
      tools: [{ type: 'function', function: { name: 'search', description: 'looks', parameters: PARAMETERS, parse: JSON.parse, function: ({ query }: any) => { seen.push(query); return '42' } } }] as any,
    })
    assert.equal(await runner.finalContent(), 'It is 42.')
    assert.deepEqual(seen, ['sum'])
    assert.equal((await runner.totalUsage()).prompt_tokens, 24)
    const [first, second] = gateway.calls
    assert.deepEqual(second!.submission.claims.toolResults, ['call_c1_0'])
    assert.equal(second!.submission.claims.program, 'loop')
    assert.equal(first!.submission.claims.kind, second!.submission.claims.kind)
    assert.deepEqual(second!.chat.messages.map((message) => [message.role, message.content]), [['user', 'How much?'], ['assistant', 'Let me look. '], ['tool', '42']])
  })

  test('waits through comments for its turn', async (t) => {
    const client = clientOf(await listening(appOf(t, fakeGateway((call) => {
      call.arrive()
      setTimeout(() => { call.text('late'); call.done() }, 300)
    }))))
    let text = ''
    for await (const chunk of await client.chat.completions.create({ model: 'tiny', messages: [{ role: 'user', content: 'a' }], stream: true })) {
      text += chunk.choices[0]?.delta.content ?? ''
    }
    assert.equal(text, 'late')
  })

  test('lists models', async (t) => {
    const gateway = fakeGateway()
    joinEngine(gateway)
    const client = clientOf(await listening(appOf(t, gateway)))
    assert.deepEqual((await client.models.list()).data.map((model) => model.id), ['tiny'])
    assert.equal((await client.models.retrieve('tiny')).owned_by, 'entracte')
  })
})

describe('the openai client, when something fails,', () => {
  test('retries what may be retried and nothing else', async (t) => {
    const times: readonly [string, number][] = [['queue_full', 2], ['engine_unavailable', 2], ['stale_epoch', 1], ['program_full', 1], ['duplicate_program', 1], ['attempts_exhausted', 1], ['unknown_model', 1]]
    for (const [code, tries] of times) {
      let asked = 0
      const gateway = fakeGateway((call) => { asked++; call.say({ kind: 'refused', code, why: 'x' }) })
      const url = await listening(appOf(t, gateway))
      const client = clientOf(url, {
        maxRetries: 1,
        // The wait that retry-after asks for is not what is tested.
        fetch: async (to: string, init: RequestInit) => {
          const response = await fetch(to, init)
          const headers = new Headers(response.headers)
          if (headers.has('retry-after')) headers.set('retry-after-ms', '1')
          return new Response(response.body, { status: response.status, headers })
        },
      })
      await assert.rejects(client.chat.completions.create({ model: 'tiny', messages: [{ role: 'user', content: 'a' }] }), (error: any) => {
        assert.ok(error instanceof OpenAI.APIError)
        assert.ok(error.requestID)
        return true
      })
      assert.equal(asked, tries, code)
    }
  })

  test('throws when a stream fails midway', async (t) => {
    const client = clientOf(await listening(appOf(t, fakeGateway((call) => {
      call.arrive()
      call.text('half')
      call.say({ kind: 'failed', code: 'interrupted', why: 'the engine is gone' })
    }))))
    const stream = await client.chat.completions.create({ model: 'tiny', messages: [{ role: 'user', content: 'a' }], stream: true })
    let text = ''
    await assert.rejects(async () => { for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '' }, /the engine is gone/)
    assert.equal(text, 'half')
  })

  test('that aborts is hung up', async (t) => {
    const gateway = fakeGateway((call) => { call.arrive(); call.text('a') })
    const client = clientOf(await listening(appOf(t, gateway)))
    const stream = await client.chat.completions.create({ model: 'tiny', messages: [{ role: 'user', content: 'a' }], stream: true })
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content === 'a') break
    await within(1_000, gateway.calls[0]!.hungUp)
  })
})
