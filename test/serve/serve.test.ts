import assert from 'node:assert/strict'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import OpenAI from 'openai'
import type { Server } from '../../src/main.ts'
import { completion, folder, MODEL, post, proven, served, serveProcess, until, type Completion } from './served.ts'

const TOOLS = [{ type: 'function' as const, function: { name: 'lookup', description: 'Looks a number up.', parameters: { type: 'object', properties: { id: { type: 'integer', minimum: 0, maximum: 99 } }, required: ['id'] } } }]
const HELLO = [{ role: 'user', content: 'Say something long, please.' }]

/** A tool loop of three calls, its tools answering at once; what was said, in order. */
async function loop(url: string, program: string, between: (step: number) => Promise<void> = async () => undefined): Promise<{ said: string[]; last: Completion }> {
  const messages: object[] = [{ role: 'user', content: 'Look the numbers of the day up and tell me what they mean. '.repeat(6) }]
  const said: string[] = []
  for (let step = 0; ; step += 1) {
    const answer = await completion(url, { messages, tools: TOOLS, tool_choice: step < 2 ? 'required' : 'none', max_tokens: 100, seed: 7, temperature: 0.9 }, { 'x-program-id': program })
    const { message } = answer.choices[0] as Completion['choices'][number]
    said.push(message.content ?? message.tool_calls?.map((call) => call.function.arguments).join() ?? '')
    if (message.tool_calls === undefined) return { said, last: answer }
    messages.push(message, ...message.tool_calls.map((call) => ({ role: 'tool', tool_call_id: call.id, content: 'The number is forty-two, as every day.' })))
    await between(step)
  }
}

const nothingHeld = (server: Server): boolean => {
  const { core } = server.driver
  return core.openCalls === 0 && [...core.engines.values()].every((engine) => engine.ownedGranules === 0 && engine.sequencesUsed === 0)
}

test('preserved, offloaded and discarded, a program says the same, token for token', async () => {
  const texts: string[][] = []
  const resumes: string[] = []
  for (const residency of ['always-preserve', 'always-offload', 'always-discard']) {
    const server = await served({ residency })
    await proven(server)
    const { said, last } = await loop(server.url, 'p', async () => { await until(() => server.driver.core.moves.size === 0) })
    texts.push(said)
    resumes.push(last.entracte.resume)
    await server.close()
  }
  assert.deepEqual(texts[1], texts[0])
  assert.deepEqual(texts[2], texts[0])
  assert.deepEqual(resumes, ['exact', 'exact', 'exact'])
})

test('an image with one byte changed, or cut, is refused and its State is fed again: the same tokens, and it is counted', async () => {
  const undisturbed = await served({ residency: 'always-preserve' })
  await proven(undisturbed)
  const { said } = await loop(undisturbed.url, 'p')
  await undisturbed.close()
  const dataDir = folder()
  const server = await served({ residency: 'always-offload' }, {}, dataDir)
  await proven(server)
  const files = (): string[] => readdirSync(join(dataDir, 'images'), { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.kv'))
  const { said: disturbed } = await loop(server.url, 'p', async (step) => {
    await until(() => server.driver.core.host.ownedBytes > 0 && files().length > 0)
    const path = join(dataDir, 'images', files()[0] ?? '')
    const image = readFileSync(path)
    if (step === 0) image[Math.floor(image.length / 2)] = (image[Math.floor(image.length / 2)] ?? 0) ^ 1
    writeFileSync(path, step === 0 ? image : image.subarray(0, image.length - 100))
  })
  assert.deepEqual(disturbed, said)
  const failed = server.driver.facts('local' as never, 'p', 1_000).filter(({ fact }) => fact.kind === 'kv.move.failed')
  assert.equal(failed.length, 2)
  await server.close()
})

test('a chat of two turns in a session reads its first turn once', async () => {
  const server = await served()
  const messages: object[] = [{ role: 'user', content: 'A long first message. '.repeat(20) }]
  const first = await completion(server.url, { messages, max_tokens: 20 }, { 'x-session-id': 's' })
  messages.push(first.choices[0]?.message as object, { role: 'user', content: 'And then?' })
  const second = await completion(server.url, { messages, max_tokens: 8 }, { 'x-session-id': 's' })
  assert.notEqual(second.entracte.program, first.entracte.program)
  assert.ok(second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens, JSON.stringify(second.usage))
  await server.close()
})

for (const [signal, what] of [['SIGKILL', 'is killed'], ['SIGSTOP', 'hangs']] as const) test(`an engine that ${what} in the middle of a stream is started again, and the stream goes on without a lost or repeated character`, async () => {
  const server = await served({}, { laneTokens: 8_192, answerSeconds: 0.5 })
  await proven(server)
  // So much that it is in the middle when it is killed, however fast the machine is.
  const chat = { messages: HELLO, max_tokens: 3_000, ignore_eos: true, seed: 6, temperature: 0.7 }
  const alone = (await completion(server.url, chat)).choices[0]?.message.content ?? ''
  const answer = await post(server.url, { ...chat, stream: true })
  let stream = ''
  let killed = false
  for await (const chunk of answer.body ?? []) {
    stream += Buffer.from(chunk as Uint8Array).toString()
    if (killed || textOf(stream).length < 100) continue
    killed = true
    const [pidFile] = readdirSync(server.dataDir).filter((name) => name.endsWith('.pid'))
    process.kill(pidIn(readFileSync(join(server.dataDir, pidFile ?? ''), 'utf8')), signal)
  }
  assert.equal(textOf(stream), alone)
  assert.ok([...server.driver.core.calls.values()].some((call) => call.attempt > 1), 'it took a second attempt')
  await until(() => nothingHeld(server))
  await server.close()
})

const pidIn = (text: string): number => Number(/\d+/.exec(text)?.[0])
/** Of the whole lines so far. */
const textOf = (stream: string): string => stream.split('\n').slice(0, -1).filter((line) => line.startsWith('data: {'))
  .map((line) => (JSON.parse(line.slice(6)) as { choices: { delta: { content?: string } }[] }).choices[0]?.delta.content ?? '').join('')

test('a client that hangs up while queued, prefilling or decoding frees its place, lane and cells within a second', async () => {
  const server = await served({}, { lanes: 1, laneTokens: 8_192 })
  const long = { messages: [{ role: 'user', content: 'word '.repeat(1_200) }], max_tokens: 1_000, stream: true }
  const running = () => [...server.driver.core.calls.values()].find((call) => call.stage.kind === 'running')
  const hangUps: [string, () => boolean][] = [
    ['prefilling', () => running() !== undefined && running()?.outputTokens === 0],
    ['decoding', () => (running()?.outputTokens ?? 0) > 5],
  ]
  for (const [what, when] of hangUps) {
    const controller = new AbortController()
    const request = post(server.url, long, {}, controller.signal).then((answer) => answer.text()).catch(() => '')
    await until(when, 20_000)
    controller.abort()
    await until(() => nothingHeld(server), 1_000).catch(() => assert.fail(`${what}: something is still held after a second`))
    await request
  }
  const first = new AbortController()
  void post(server.url, long, {}, first.signal).then((answer) => answer.text()).catch(() => '')
  await until(() => running() !== undefined)
  const queued = new AbortController()
  void post(server.url, { messages: HELLO, stream: true }, {}, queued.signal).then((answer) => answer.text()).catch(() => '')
  await until(() => server.driver.core.queues.get(MODEL)?.size === 1)
  queued.abort()
  await until(() => server.driver.core.queues.get(MODEL)?.size === 0, 1_000)
  assert.notEqual(running(), undefined, 'the other goes on')
  first.abort()
  await until(() => nothingHeld(server), 1_000)
  await server.close()
})

test('after kill -9 the next serve goes on: programs and service as they were, and the same request brings its call back', async () => {
  const dataDir = folder()
  const chat = { messages: HELLO, max_tokens: 1_500, seed: 6, temperature: 0.7 }
  const headers = { 'x-program-id': 'p' }
  const before = await serveProcess(dataDir)
  const alone = (await completion(before.url, chat)).choices[0]?.message.content
  await completion(before.url, { messages: HELLO, max_tokens: 5 }, { 'x-program-id': 'other' })
  const lost = post(before.url, { ...chat, stream: true }, headers).then((answer) => answer.text()).catch(() => '')
  const ledger = async (url: string, program: string): Promise<unknown> => (await (await fetch(`${url}/v1/programs/${program}`)).json() as { attained?: unknown; service?: unknown }).service
  await new Promise((resolve) => setTimeout(resolve, 400))
  const served = await ledger(before.url, 'other')
  await before.kill('SIGKILL')
  await lost
  const after = await serveProcess(dataDir)
  assert.deepEqual(await ledger(after.url, 'other'), served)
  const again = await completion(after.url, chat, headers)
  assert.equal(again.choices[0]?.message.content, alone)
  await assert.rejects(serveProcess(dataDir), /data directory|in use/i, 'a second serve on the same data directory is refused by name')
  await after.kill('SIGTERM')
})

test('the openai client streams a tool-calling loop against it', async () => {
  const server = await served()
  const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none' })
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: 'Look number seven up.' }]
  for (const toolChoice of ['required', 'none'] as const) {
    const stream = client.chat.completions.stream({ model: MODEL, messages, tools: TOOLS, tool_choice: toolChoice, max_tokens: 100, temperature: 0 })
    const message = (await stream.finalChatCompletion()).choices[0]?.message
    assert.ok(message !== undefined)
    messages.push(message)
    for (const call of message.tool_calls ?? []) {
      assert.equal(typeof (JSON.parse(call.function.arguments) as { id: unknown }).id, 'number')
      messages.push({ role: 'tool', tool_call_id: call.id, content: 'Seven is prime.' })
    }
  }
  assert.deepEqual(messages.map(({ role }) => role), ['user', 'assistant', 'tool', 'assistant'])
  assert.equal(server.driver.core.programs.size, 1, 'one program, without a line of code')
  await server.close()
})

test('a drained engine is left in the middle of a stream, which goes on when the draining is ended, without a lost or repeated character', async () => {
  const server = await served({}, { laneTokens: 8_192 })
  await proven(server)
  const chat = { messages: HELLO, max_tokens: 3_000, seed: 6, temperature: 0.7 }
  const alone = (await completion(server.url, chat)).choices[0]?.message.content ?? ''
  const stageOf = async (): Promise<string> => (await (await fetch(`${server.url}/v1/admin/engines`)).json() as { data: { stage: string }[] }).data[0]?.stage ?? ''
  const order = (what: string): Promise<Response> => fetch(`${server.url}/v1/admin/engines/local/${what}`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: what === 'drain' ? '{"withinSeconds":0}' : '{}' })
  const answer = await post(server.url, { ...chat, stream: true })
  let stream = ''
  let drained = false
  for await (const chunk of answer.body ?? []) {
    stream += Buffer.from(chunk as Uint8Array).toString()
    if (drained || textOf(stream).length < 100) continue
    drained = true
    assert.equal((await order('drain')).status, 202)
    await until(async () => await stageOf() === 'drained')
    assert.equal((await order('undrain')).status, 202)
  }
  assert.ok(drained)
  assert.equal(textOf(stream), alone)
  assert.ok([...server.driver.core.calls.values()].every(({ attempt }) => attempt === 1))
  await server.close()
})
