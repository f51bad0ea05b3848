import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { runAgent } from '../../src/eval/agent.ts'
import type { AgentStep, AgentWorld, ProgramRecord } from '../../src/eval/agent-record.ts'
import { Corpus } from '../../src/eval/corpus.ts'
import type { PlannedProgram } from '../../src/eval/mix.ts'
import { Toolbox } from '../../src/eval/tools.ts'
import { fakeServer, type Fake, type FakeOptions } from './fake-server.ts'

const PROGRAM: PlannedProgram = {
  name: 'coder-9', kind: 'coder', source: 'test',
  calls: [
    { newTokens: 300, outputTokens: 30, tool: 'calculator', wait: 'client-gap' },
    { newTokens: 60, outputTokens: 30, tool: 'search', wait: 'search' },
    { newTokens: 100, outputTokens: 20, tool: null, wait: null },
  ],
}

interface Ran { readonly record: ProgramRecord; readonly fake: Fake; readonly steps: readonly AgentStep[] }

async function run(options: FakeOptions = {}, waitsMs = [30, 5, 0], signal = new AbortController().signal): Promise<Ran> {
  const fake = await fakeServer(options)
  const steps: AgentStep[] = []
  const beganAt = performance.now()
  const world: AgentWorld = {
    endpoint: { url: fake.url, headers: { authorization: 'Bearer k' } }, model: 'fake', tokenScale: 2, toolbox: new Toolbox(), corpus: Corpus.load(),
    now: () => performance.now() - beganAt, notify: (step) => steps.push(step), signal,
  }
  try {
    return { record: await runAgent({ id: 'x/coder-9', program: PROGRAM, waitsMs, seed: 7 }, world), fake, steps }
  } finally {
    await fake.close()
  }
}

describe('an agent', () => {
  test('declares its program, calls its tools, appends their results, and says which call is the last', async () => {
    const { record, fake } = await run()
    assert.equal(record.error, null)
    assert.deepEqual(fake.seen.map(({ method, path }) => `${method} ${path}`), ['POST /v1/programs', ...Array<string>(3).fill('POST /v1/chat/completions')])
    assert.deepEqual(fake.seen[0]?.body, { id: 'x/coder-9', agent: 'coder' })
    const [first, second, third] = fake.seen.slice(1)
    for (const call of [first, second, third]) {
      assert.equal(call?.headers['x-program-id'], 'x/coder-9')
      assert.equal(call?.headers['authorization'], 'Bearer k')
      assert.deepEqual([call?.body.temperature, call?.body.seed, call?.body.stream], [0, 7, true])
    }
    assert.deepEqual([first, second, third].map((call) => call?.headers['x-program-final']), [undefined, undefined, 'true'])
    assert.deepEqual([first, second, third].map((call) => call?.body.tool_choice?.function?.name ?? call?.body.tool_choice), ['calculator', 'search', 'none'])
    assert.equal(third?.body.max_completion_tokens, 40)
    assert.deepEqual(third?.body.messages.map(({ role }: { role: string }) => role), ['system', 'user', 'assistant', 'tool', 'assistant', 'tool'])
    assert.equal(third?.body.messages[3].content, '6*7 = 42')
    assert.equal(third?.body.messages[3].tool_call_id, third?.body.messages[2].tool_calls[0].id)
    assert.equal(third?.body.messages[2].tool_calls[0].function.arguments, '{"expression":"6*7"}')
    assert.deepEqual(third?.body.messages.slice(0, 4), second?.body.messages)
  })

  test('keeps times, counts and a digest of what the model wrote', async () => {
    const { record, steps } = await run()
    assert.equal(record.calls.length, 3)
    assert.equal(record.waitsMs, 35)
    assert.ok(record.endMs - record.startMs >= 34)
    for (const call of record.calls) {
      assert.deepEqual([call.promptTokens, call.cachedTokens, call.outputTokens], [100, 60, 9])
      assert.ok(call.firstTokenMs !== null && call.firstTokenMs <= call.endMs - call.startMs + 1)
    }
    assert.deepEqual(record.calls.map(({ finish }) => finish), ['tool_calls', 'tool_calls', 'stop'])
    assert.equal((await run()).record.digest, record.digest)
    assert.deepEqual(steps.map(({ kind, call }) => `${kind} ${call}`), ['asking 0', 'tool 1', 'asking 1', 'tool 2', 'asking 2', 'done 3'])
  })

  test('waits its tool out and no longer', async () => {
    const { record } = await run({}, [120, 0, 0])
    const [first, second] = record.calls
    const gap = (second?.startMs ?? 0) - (first?.endMs ?? 0)
    assert.ok(gap >= 119 && gap < 400, `${gap}`)
  })

  const broken: readonly [string, FakeOptions['instead'], RegExp][] = [
    ['a refusal', ({ path }, response) => path === '/v1/chat/completions' && Boolean(response.writeHead(429).end('{"error":{"message":"full"}}')), /HTTP 429.*full/],
    ['a refused declaration', ({ path }, response) => path === '/v1/programs' && Boolean(response.writeHead(409).end('taken')), /409.*taken/],
    ['an error in the stream', ({ path }, response) => path === '/v1/chat/completions' && Boolean(response.writeHead(200).end('data: {"error":{"message":"lost"}}\n\n')), /lost/],
    ['a stream that stops short', ({ path }, response) => path === '/v1/chat/completions' && Boolean(response.writeHead(200).end('data: {"choices":[{"delta":{"content":"a"}}]}\n\n')), /before the answer/],
    ['a forced call that was cut', ({ path }, response) => path === '/v1/chat/completions' && Boolean(response.writeHead(200).end('data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n\ndata: [DONE]\n\n')), /ended with length/],
  ]
  for (const [what, instead, why] of broken) {
    test(`ends on ${what} with its reason, and cancels its program`, async () => {
      const { record, fake, steps } = await run(instead === undefined ? {} : { instead })
      assert.match(record.error ?? '', why)
      assert.equal(steps.at(-1)?.kind, 'failed')
      assert.equal(`${fake.seen.at(-1)?.method} ${fake.seen.at(-1)?.path}`, 'DELETE /v1/programs/x%2Fcoder-9')
    })
  }

  test('stops at once when the run is called off', async () => {
    const abort = new AbortController()
    setTimeout(() => abort.abort(), 60)
    const beganAt = performance.now()
    await assert.rejects(run({}, [30_000, 0, 0], abort.signal))
    assert.ok(performance.now() - beganAt < 5_000)
  })
})
