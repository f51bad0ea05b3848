/** The openai adapter against a server that we write: what is sent, what is read, what goes wrong. */
import assert from 'node:assert/strict'
import { afterEach, test } from 'node:test'
import { callId, stateId, tenantId } from '../../src/core/ids.ts'
import { OpenaiEngine, type OpenaiOptions } from '../../src/engines/openai.ts'
import type { ChatCall } from '../../src/protocol/chat.ts'
import { chatCall, message } from './contract.ts'
import { FakeUpstream, type Play } from './fake-upstream.ts'
import { Listener, pause } from './listener.ts'

interface Stage { upstream: FakeUpstream; engine: OpenaiEngine; listener: Listener }
const stages: Stage[] = []

async function opened(play: Play, more: Partial<OpenaiOptions> = {}): Promise<Stage> {
  const upstream = await new FakeUpstream(play).listen()
  const engine = new OpenaiEngine({ id: 'o', baseUrl: upstream.baseUrl, apiKey: 'secret', models: ['m'], contextTokens: 1_000, runningMax: 4, ...more })
  const made = { upstream, engine, listener: new Listener() }
  stages.push(made)
  engine.open(1, made.listener)
  await made.listener.until('the engine to join', () => made.listener.inputs('engineJoined')[0])
  return made
}

afterEach(async () => {
  for (const { upstream, engine } of stages.splice(0)) {
    await engine.close()
    await upstream.close()
  }
})

function start({ engine }: Stage, chat: ChatCall = chatCall('m', 'hello'), attempt = 1, forced: number[] = []): void {
  engine.perform({
    kind: 'start', call: callId('c'), attempt, run: 0, epoch: 0, state: stateId('s'), body: JSON.stringify(chat),
    prepared: new Uint8Array(), baseTokens: 0, keepTokens: 0, recomputeTokens: 0, replay: 'plain', forced, seed: 77, maxTokens: 40, rank: 1, tenant: tenantId('t'), grantGranules: 0,
  })
}

const end = ({ listener }: Stage, attempt = 1) => listener.end(callId('c'), attempt)
const finished = ({ listener }: Stage, attempt = 1) => listener.finished(callId('c'), attempt)

async function failed(stage: Stage, attempt = 1): Promise<{ why: string; retryable: boolean }> {
  const input = await end(stage, attempt)
  assert.ok(input.kind === 'attemptFailed', JSON.stringify(input))
  return { why: input.why, retryable: input.retryable }
}

test('a call is forwarded whole, with the key, and nothing that was not asked for', async () => {
  const stage = await opened((_, reply) => reply.stream().chunk({ content: 'hi' }).chunk({}, 'stop').done())
  const chat: ChatCall = {
    model: 'm',
    messages: [
      message('system', 'be good'), message('user', 'what is it?'),
      { role: 'assistant', content: '', toolCalls: [{ id: 'call_x_0', name: 'look', arguments: '{"a":1}' }], toolCallId: null },
      { role: 'tool', content: 'seen', toolCalls: [], toolCallId: 'call_x_0' },
    ],
    tools: [{ name: 'look', description: 'looks', parameters: { type: 'object' } }],
    toolChoice: { name: 'look' },
    sampling: { temperature: 0.5, topP: 0.9, topK: 0, minP: 0.1 },
    stop: ['END'],
    maxTokens: 40,
  }
  start(stage, chat)
  await finished(stage)
  assert.equal(stage.upstream.asked[0]?.authorization, 'Bearer secret')
  assert.deepEqual(stage.upstream.asked[0]?.body, {
    model: 'm',
    messages: [
      { role: 'system', content: 'be good' }, { role: 'user', content: 'what is it?' },
      { role: 'assistant', content: null, tool_calls: [{ id: 'call_x_0', type: 'function', function: { name: 'look', arguments: '{"a":1}' } }] },
      { role: 'tool', content: 'seen', tool_call_id: 'call_x_0' },
    ],
    tools: [{ type: 'function', function: { name: 'look', description: 'looks', parameters: { type: 'object' } } }],
    tool_choice: { type: 'function', function: { name: 'look' } },
    temperature: 0.5, top_p: 0.9, min_p: 0.1, stop: ['END'], max_tokens: 40, seed: 77, stream: true, stream_options: { include_usage: true },
  })
})

test('what an answer is held to and how likely its tokens were go out and come back by the names of the wire', async () => {
  const entry = (token: string, logprob: number) => ({ token, bytes: [...Buffer.from(token)], logprob })
  const content = [{ ...entry('é', -0.5), top_logprobs: [entry('é', -0.5)] }, { token: 'x', bytes: null, logprob: -2, top_logprobs: [] }, { odd: 1 }]
  const told = { choices: [{ delta: { content: 'éx' }, logprobs: { content }, finish_reason: null }] }
  const stage = await opened((_, reply) => reply.stream().event(JSON.stringify(told)).chunk({}, 'stop').done())
  const schema = { type: 'object' }
  const rules = { presencePenalty: 0, frequencyPenalty: 0.5, repetitionPenalty: 1.1, bias: [[7, -1] as const], minTokens: 2, ignoreEos: true, stopTokens: [9] }
  start(stage, {
    model: 'm', messages: [message('user', 'hi')], tools: [], toolChoice: 'none', sampling: { temperature: 1, topP: 1, topK: 0, minP: 0 },
    stop: [], maxTokens: 40, format: { kind: 'schema', schema }, tokenRules: rules, topLogprobs: 1,
  })
  await finished(stage)
  const { messages: _, stream_options: __, ...asked } = stage.upstream.asked[0]?.body as Record<string, unknown>
  assert.deepEqual(asked, {
    model: 'm', temperature: 1, max_tokens: 40, seed: 77, stream: true, logprobs: true, top_logprobs: 1,
    response_format: { type: 'json_schema', json_schema: { name: 'answer', strict: true, schema } },
    frequency_penalty: 0.5, repetition_penalty: 1.1, logit_bias: { 7: -1 }, min_tokens: 2, ignore_eos: true, stop_token_ids: [9],
  })
  const { token: _token, ...é } = entry('é', -0.5)
  assert.deepEqual(stage.listener.chunks(callId('c'), 1).flatMap(({ parts }) => parts), [
    { kind: 'text', text: 'éx', logprobs: [{ ...é, top: [é] }, { bytes: [120], logprob: -2, top: [] }] },
  ])
})

test('each choice of a request goes out as a request of its own, with a seed of its own that is the same again', async () => {
  const seeds: unknown[] = []
  for (const choice of [undefined, 1, 2, 7, 1]) {
    const stage = await opened((_, reply) => reply.stream().chunk({ content: 'a' }).chunk({}, 'stop').done())
    start(stage, { ...chatCall('m', 'hello'), ...(choice === undefined ? {} : { choice }) })
    await finished(stage)
    const { seed, n } = stage.upstream.asked[0]?.body as Record<string, unknown>
    assert.equal(n, undefined)
    seeds.push(seed)
  }
  assert.equal(seeds[0], 77)
  assert.equal(new Set(seeds).size, 4)
  assert.equal(seeds[4], seeds[1])
})

test('text and tool calls come back as parts, with our ids, and usage as the upstream counts', async () => {
  const stage = await opened((_, reply) => {
    reply.stream().chunk({ role: 'assistant', content: null }).chunk({ reasoning_content: 'hm' }).chunk({ content: 'let me ' }).chunk({ content: 'look' })
      .chunk({ tool_calls: [{ index: 0, id: 'u1', type: 'function', function: { name: 'search', arguments: '' } }] })
      .chunk({ tool_calls: [{ index: 0, function: { arguments: '{"q":' } }] })
      .chunk({ tool_calls: [{ index: 0, function: { arguments: '1}' } }, { index: 1, id: 'u2', function: { name: 'add', arguments: '{}' } }] })
      .chunk({}, 'tool_calls').usage(100, 30, 64).done()
  }, { toolEffect: (names) => (names.join() === 'search,add' ? 'irreversible' : 'read') })
  start(stage)
  const input = await finished(stage)
  assert.equal(input.finish, 'tool_calls')
  assert.deepEqual(input.toolCalls, [{ id: 'call_c_0', name: 'search' }, { id: 'call_c_1', name: 'add' }])
  assert.equal(input.toolEffect, 'irreversible')
  assert.deepEqual(input.spans, [])
  assert.deepEqual(stage.listener.chunks(callId('c'), 1).flatMap(({ parts }) => parts), [
    { kind: 'reasoning', text: 'hm' }, { kind: 'text', text: 'let me ' }, { kind: 'text', text: 'look' }, { kind: 'toolCall', index: 0, name: 'search', arguments: '' },
    { kind: 'toolCall', index: 0, name: null, arguments: '{"q":' }, { kind: 'toolCall', index: 0, name: null, arguments: '1}' },
    { kind: 'toolCall', index: 1, name: 'add', arguments: '{}' },
  ])
  const [outcome] = stage.listener.outcomes(callId('c'), 1)
  assert.deepEqual(outcome, { record: null, promptTokens: 100, outputTokens: 30, cachedTokens: 64 })
  assert.equal(input.report.outputTokens, stage.listener.tokens(callId('c'), 1).length)
})

test('a server that calls tools and says "stop" has called tools; "length" stays "length" without them', async () => {
  const stage = await opened((_, reply, attempt) => {
    reply.stream()
    if (attempt === 1) reply.chunk({ tool_calls: [{ index: 0, function: { name: 'f', arguments: '{}' } }] }).chunk({}, 'stop').done()
    else reply.chunk({ content: 'a' }).chunk({}, 'length').done()
  })
  start(stage)
  assert.equal((await finished(stage)).finish, 'tool_calls')
  start(stage, chatCall('m', 'x'), 2)
  assert.equal((await finished(stage, 2)).finish, 'length')
})

test('a stream split anywhere, even inside a character, is the same stream', async () => {
  const stage = await opened(async (_, reply) => {
    reply.stream()
    const first = JSON.stringify({ choices: [{ delta: { content: 'zażółć 🎭' }, finish_reason: null }] })
    const last = JSON.stringify({ choices: [{ delta: {}, finish_reason: 'stop' }] })
    const bytes = Buffer.from(`: hello\r\n\r\ndata: ${first}\r\n\r\ndata: ${last}\n\ndata: [DONE]\n\n`)
    for (const byte of bytes) {
      reply.raw.write(Buffer.from([byte]))
      if (byte > 127) await pause(1)
    }
    reply.raw.end()
  })
  start(stage)
  await finished(stage)
  assert.equal(stage.listener.text(callId('c'), 1), 'zażółć 🎭')
})

test('what the upstream refuses is not tried again, and is told in its words', async () => {
  for (const [status, body, why] of [
    [400, { error: { message: 'max_tokens is too large', code: 'x' } }, /400: max_tokens is too large/],
    [404, { detail: 'no such model' }, /404: no such model/],
    [422, 'not even JSON', /422: not even JSON/],
    [401, '', /401: nothing/],
  ] as const) {
    const stage = await opened((_, reply) => reply.error(status, body))
    start(stage)
    const input = await failed(stage)
    assert.match(input.why, why)
    assert.equal(input.retryable, false)
  }
})

test('what may pass is worth a retry, after a pause that grows or that the upstream asked for', async () => {
  const stage = await opened((_, reply, attempt) => {
    if (attempt === 1) reply.error(503, { message: 'loading' })
    else if (attempt === 2) reply.error(429, { error: { message: 'slow down' } }, { 'retry-after': '1' })
    else if (attempt === 3) reply.break()
    else reply.stream().chunk({ content: 'there' }).chunk({}, 'stop').done()
  })
  for (const [attempt, why, pauseMs] of [[1, /503: loading/, 250], [2, /429: slow down/, 1_000], [3, /cannot be reached/, 1_000]] as const) {
    const beganMs = performance.now()
    start(stage, chatCall('m', 'x'), attempt)
    const input = await failed(stage, attempt)
    assert.match(input.why, why)
    assert.equal(input.retryable, true)
    assert.ok(performance.now() - beganMs >= pauseMs - 20)
  }
  start(stage, chatCall('m', 'x'), 4)
  assert.equal((await finished(stage, 4)).finish, 'stop')
})

test('a stream that breaks before it showed anything is tried again; after that its call ends', async () => {
  const stage = await opened(async (_, reply, attempt) => {
    reply.stream().chunk({ role: 'assistant' })
    if (attempt === 2) reply.chunk({ content: 'once upon' })
    if (attempt === 3) reply.chunk({ content: 'once upon' }).event({ error: { message: 'out of memory' } })
    await pause(30)
    reply.break()
  })
  start(stage)
  assert.equal((await failed(stage, 1)).retryable, true)
  for (const [attempt, why] of [[2, /broke|early/], [3, /out of memory/]] as const) {
    start(stage, chatCall('m', 'x'), attempt)
    const input = await failed(stage, attempt)
    assert.equal(input.retryable, false)
    assert.match(input.why, why)
  }
  start(stage, chatCall('m', 'x'), 4, [0, 1])
  assert.match((await failed(stage, 4)).why, /shown in part/)
  assert.equal(stage.upstream.asked.length, 3)
})

test('an upstream that speaks nonsense, does not stream, or filters ends the attempt with the reason', async () => {
  for (const [play, why] of [
    [(_, reply) => reply.stream().event('{"choices": [').done(), /no JSON/],
    [(_, reply) => reply.stream().chunk({ tool_calls: [{ index: 3, function: { name: 'f' } }] }).done(), /index 3/],
    [(_, reply) => reply.stream().chunk({ tool_calls: [{ index: 0, function: { arguments: '{' } }] }).done(), /no name/],
    [(_, reply) => reply.stream().chunk({}, 'content_filter').done(), /content_filter/],
    [(_, reply) => reply.error(200, { choices: [] }), /asked to stream.*application\/json/],
    [(_, reply) => reply.stream().done(), /ended early/],
  ] satisfies [Play, RegExp][]) {
    const stage = await opened(play)
    start(stage)
    assert.match((await failed(stage)).why, why)
  }
})

test('a stream that ends after its last word, without [DONE], has ended', async () => {
  const stage = await opened(async (_, reply) => {
    reply.stream().chunk({ content: 'a' }).chunk({}, 'stop')
    await pause(20)
    reply.break()
  })
  start(stage)
  assert.equal((await finished(stage)).finish, 'stop')
})

test('a silent upstream is given up, and a comment is not silence', async () => {
  const stage = await opened(async (_, reply, attempt) => {
    reply.stream()
    if (attempt === 1) return
    for (let beat = 0; beat < 6; beat += 1) {
      await pause(60)
      reply.raw.write(': still here\n\n')
    }
    reply.chunk({ content: 'a' }).chunk({}, 'stop').done()
  }, { silentMsMax: 150 })
  start(stage)
  const input = await failed(stage)
  assert.match(input.why, /nothing for 150 ms/)
  assert.equal(input.retryable, true)
  start(stage, chatCall('m', 'x'), 2)
  assert.equal((await finished(stage, 2)).finish, 'stop')
})

test('a cancel reaches the upstream within a second, queued or streaming', async () => {
  const stage = await opened(async (_, reply, attempt) => {
    if (attempt === 2) reply.stream().chunk({ content: 'a' })
    await pause(5_000)
  })
  for (const attempt of [1, 2]) {
    start(stage, chatCall('m', 'x'), attempt)
    const asked = await stage.listener.until('the upstream to be asked', () => stage.upstream.asked[attempt - 1])
    if (attempt === 2) await stage.listener.until('a chunk', () => stage.listener.chunks(callId('c'), 2)[0])
    const cancelledMs = performance.now()
    stage.engine.perform({ kind: 'cancel', call: callId('c'), attempt })
    const hungUpMs = await stage.listener.until('the hang-up', () => asked.hungUpMs, 1_000)
    assert.ok(hungUpMs - cancelledMs < 1_000)
    assert.deepEqual(stage.listener.ends(callId('c'), attempt), [])
  }
})

test('an upstream that is away is told once for each reason, and joins when it is there', async () => {
  const upstream = await new FakeUpstream((_, reply) => reply.stream().done()).listen()
  await upstream.close()
  const engine = new OpenaiEngine({ id: 'o', baseUrl: upstream.baseUrl, apiKey: null, models: ['m'], contextTokens: 1_000, runningMax: 4 })
  const listener = new Listener()
  engine.open(1, listener)
  const lost = await listener.until('engineLost', () => listener.inputs('engineLost')[0])
  assert.match(lost.why, /ECONNREFUSED/)
  await pause(700)
  assert.equal(listener.inputs('engineLost').length, 1)
  await upstream.listenAgain()
  await listener.until('the engine to join', () => listener.inputs('engineJoined')[0])
  await engine.close()
  await upstream.close()
})

test('an upstream that goes away is lost, its calls end with it, and it joins again', async () => {
  const stage = await opened(async (_, reply) => {
    reply.stream().chunk({ content: 'a' })
    await pause(5_000)
  })
  start(stage)
  await stage.listener.until('a chunk', () => stage.listener.chunks(callId('c'), 1)[0])
  await stage.upstream.close()
  assert.equal((await failed(stage)).retryable, false)
  start(stage, chatCall('m', 'x'), 2)
  assert.equal((await failed(stage, 2)).retryable, true)
  await stage.listener.until('engineLost', () => stage.listener.inputs('engineLost')[0])
  await stage.upstream.listenAgain()
  await stage.listener.until('the engine to join again', () => stage.listener.inputs('engineJoined')[1])
})

test('an upstream that refuses the key does not join; one that has no list of models does', async () => {
  const upstream = await new FakeUpstream((_, reply) => reply.stream().done()).listen()
  for (const [status, kind] of [[401, 'engineLost'], [404, 'engineJoined']] as const) {
    upstream.modelsStatus = status
    const engine = new OpenaiEngine({ id: 'o', baseUrl: upstream.baseUrl, apiKey: 'wrong', models: ['m'], contextTokens: 1_000, runningMax: 4 })
    const listener = new Listener()
    engine.open(1, listener)
    const first = await listener.until('a word', () => listener.said[0])
    assert.equal(first.kind === 'input' && first.input.kind, kind)
    await engine.close()
  }
  await upstream.close()
})
