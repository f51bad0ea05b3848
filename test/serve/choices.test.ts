/** Several choices of one request, on the tiny model through the whole server. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import OpenAI from 'openai'
import { defaultConfig } from '../../src/config.ts'
import { start, type Server } from '../../src/main.ts'
import { completion, folder, MODEL, served, until, type Completion } from './served.ts'

const MESSAGES = [{ role: 'user', content: 'Say something, whatever it is, as long as it is long. '.repeat(6) }]
const FIELDS = { messages: MESSAGES, seed: 21, temperature: 1, max_tokens: 24 }
const TOOLS = [{ type: 'function' as const, function: { name: 'lookup', parameters: { type: 'object', properties: { id: { type: 'integer', minimum: 0, maximum: 9_999 } }, required: ['id'] } } }]

const textsOf = ({ choices }: Completion): (string | null)[] => choices.map(({ message }) => message.content)
const isIdle = ({ driver: { core } }: Server): boolean => core.openCalls === 0

test('choices differ, are the same again, the first is what it would be alone, and they are streamed as they are whole', async () => {
  const server = await served({}, { lanes: 6 })
  const alone = await completion(server.url, FIELDS)
  const all = await completion(server.url, { ...FIELDS, n: 4 })
  assert.equal(new Set(textsOf(all)).size, 4)
  assert.equal(textsOf(all)[0], textsOf(alone)[0])
  assert.deepEqual(textsOf(await completion(server.url, { ...FIELDS, n: 4 })), textsOf(all))
  assert.equal(new Set(textsOf(await completion(server.url, { ...FIELDS, n: 4, temperature: 0 }))).size, 1)
  assert.equal(all.usage.prompt_tokens, alone.usage.prompt_tokens)
  assert.ok(all.usage.completion_tokens > alone.usage.completion_tokens)

  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 })
  const stream = client.chat.completions.stream({ model: MODEL, ...FIELDS, messages: MESSAGES as OpenAI.ChatCompletionMessageParam[], n: 4, stream_options: { include_usage: true } })
  const whole = await stream.finalChatCompletion()
  assert.deepEqual(whole.choices.map(({ message }) => message.content), textsOf(all))
  assert.deepEqual(whole.usage?.completion_tokens, all.usage.completion_tokens)
  assert.ok(isIdle(server))
  await server.close()
})

test('more choices than lanes come in waves, each in a thread of its own in one program', async () => {
  const server = await served({}, { lanes: 3 })
  const all = await completion(server.url, { ...FIELDS, n: 6 })
  assert.equal(new Set(textsOf(all)).size, 6)
  const calls = [...server.driver.core.calls.values()]
  assert.equal(calls.length, 6)
  assert.equal(new Set(calls.map(({ program }) => program)).size, 1)
  assert.equal(new Set(calls.map(({ thread }) => thread)).size, 6)
  await server.close()
})

test('the tool calls of another choice, when echoed, continue that choice', async () => {
  const server = await served({}, { lanes: 4 })
  const asked = { ...FIELDS, tools: TOOLS, tool_choice: 'required', max_tokens: 60 }
  const all = await completion(server.url, { ...asked, n: 3 }, { 'x-program-id': 'p' })
  const chosen = all.choices[2]?.message
  const [toolCall] = chosen?.tool_calls ?? []
  const threadOf = (call: string): string | undefined => [...server.driver.core.calls.values()].find(({ id }) => id === call)?.thread
  const from = threadOf((toolCall?.id ?? '').split('_')[1] ?? '')
  const next = await completion(server.url, {
    ...FIELDS, tools: TOOLS, messages: [...MESSAGES, chosen as object, { role: 'tool', tool_call_id: toolCall?.id, content: 'It is 7.' }],
  }, { 'x-program-id': 'p' })
  assert.equal(threadOf(next.entracte.call), from)
  assert.notEqual(from, threadOf(all.entracte.call))
  assert.ok(next.usage.prompt_tokens_details.cached_tokens >= all.usage.prompt_tokens - 2, JSON.stringify(next.usage))
  await server.close()
})

test('choices of a call that brings tool results continue what it continues, token for token', async () => {
  const server = await served({}, { lanes: 5 })
  const first = await completion(server.url, { ...FIELDS, tools: TOOLS, tool_choice: 'required', max_tokens: 60 }, { 'x-program-id': 'p' })
  const said = first.choices[0]?.message
  const messages = [...MESSAGES, said as object, { role: 'tool', tool_call_id: said?.tool_calls?.[0]?.id, content: 'It is 7.' }]
  const all = await completion(server.url, { ...FIELDS, tools: TOOLS, tool_choice: 'none', messages, n: 3 }, { 'x-program-id': 'p' })
  assert.equal(new Set(textsOf(all)).size, 3)
  const { core } = server.driver
  const sizes = [...core.calls.values()].slice(-3).map(({ promptTokens }) => promptTokens)
  assert.equal(new Set(sizes).size, 1)
  const forked = server.driver.facts('local' as never, 'p', 1_000).map(({ fact }) => fact).filter((fact) => fact.kind === 'thread.forked')
  assert.equal(forked.length, 2)
  assert.ok(forked.every((fact) => 'tokens' in fact && fact.tokens > 0))
  await server.close()
})

test('a client that leaves frees every choice', async () => {
  const server = await served({}, { lanes: 4 })
  const left = new AbortController()
  const answer = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST', headers: { 'content-type': 'application/json' }, signal: left.signal,
    body: JSON.stringify({ model: MODEL, ...FIELDS, max_tokens: 1_500, ignore_eos: true, n: 3, stream: true }),
  })
  const reader = answer.body?.getReader()
  await reader?.read()
  await until(() => server.driver.core.calls.size === 3)
  left.abort()
  await until(() => isIdle(server))
  await until(() => [...server.driver.core.engines.values()].every(({ ownedGranules }) => ownedGranules === 0))
  await server.close()
})

test('on a scripted engine, and before an upstream, choices are so many calls too', async () => {
  const serving = async (engine: object): Promise<Server> => {
    const server = await start(defaultConfig({ dataDir: folder(), listen: { port: 0 }, logLevel: 'silent', engines: [engine] }))
    await until(async () => ((await (await fetch(`${server.url}/v1/models`)).json()) as { data: unknown[] }).data.length > 0)
    return server
  }
  const scripted = await serving({ id: 'script', kind: 'scripted', script: { models: [MODEL], items: [{ text: 'So it is.' }] } })
  const before = await serving({ id: 'up', kind: 'openai', baseUrl: scripted.url, model: MODEL })
  for (const server of [scripted, before]) {
    const all = await completion(server.url, { ...FIELDS, n: 3 })
    assert.deepEqual(textsOf(all), ['So it is.', 'So it is.', 'So it is.'])
    assert.equal(server.driver.core.calls.size, 3)
  }
  assert.equal(scripted.driver.core.calls.size, 6)
  await before.close()
  await scripted.close()
})
