/** Each field of a chat completion that shapes its answer, through the client library people use, on the tiny model. */
import assert from 'node:assert/strict'
import { before, describe, test } from 'node:test'
import OpenAI from 'openai'
import { MODEL, served } from './served.ts'

let client: OpenAI
before(async () => {
  const server = await served({}, { laneTokens: 1_024 })
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 })
})

type Fields = Partial<OpenAI.ChatCompletionCreateParamsNonStreaming> & Record<string, unknown>

const ask = (fields: Fields): Promise<OpenAI.ChatCompletion> => client.chat.completions.create({
  model: MODEL, messages: [{ role: 'user', content: 'Say something.' }], seed: 5, max_tokens: 400, ...fields,
} as OpenAI.ChatCompletionCreateParamsNonStreaming)

async function choiceOf(fields: Fields): Promise<OpenAI.ChatCompletion.Choice> {
  const { choices } = await ask(fields)
  return choices[0] ?? assert.fail('no choice')
}

const refused = (fields: Fields, code: string, message: RegExp): Promise<void> =>
  assert.rejects(ask(fields), (thrown: unknown) => {
    assert(thrown instanceof OpenAI.APIError, String(thrown))
    assert.deepEqual([thrown.status, thrown.code], [400, code], thrown.message)
    assert.match(thrown.message, message)
    return true
  })

const formatOf = (schema: Record<string, unknown>) =>
  ({ type: 'json_schema' as const, json_schema: { name: 'answer', strict: true, schema } })

describe('response_format', () => {
  const schema = {
    type: 'object', additionalProperties: false, required: ['kind', 'size', 'tags', 'when'],
    properties: {
      kind: { enum: ['cat', 'dog'] }, size: { type: 'integer', minimum: 1, maximum: 12 },
      tags: { type: 'array', items: { type: 'string', maxLength: 3 }, minItems: 1, maxItems: 2 },
      when: { type: 'string', format: 'date' },
    },
  }

  test('json_schema holds the answer to the schema, whole and streamed', async () => {
    const { message, finish_reason } = await choiceOf({ response_format: formatOf(schema) })
    assert.equal(finish_reason, 'stop')
    const answer = JSON.parse(message.content ?? '') as Record<string, unknown>
    assert.deepEqual(Object.keys(answer), ['kind', 'size', 'tags', 'when'])
    assert(['cat', 'dog'].includes(String(answer['kind'])))
    const stream = await client.chat.completions.create({
      model: MODEL, messages: [{ role: 'user', content: 'Say something.' }], seed: 5, max_tokens: 400, stream: true,
      response_format: formatOf(schema),
    })
    let text = ''
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? ''
    assert.equal(text, message.content)
  })

  test('beside tools that may be called the answer is of the form, or calls', async () => {
    const tools = [{ type: 'function' as const, function: { name: 'look', parameters: { type: 'object', properties: {} } } }]
    const finishes = new Set<string>()
    for (let seed = 0; seed < 6; seed++) {
      const { message, finish_reason } = await choiceOf({ tools, seed, response_format: formatOf({ enum: ['yes', 'no'] }) })
      finishes.add(finish_reason)
      if (finish_reason === 'stop') assert.match(message.content ?? '', /^"(yes|no)"$/)
      else assert.deepEqual(message.tool_calls?.map((call) => call.type === 'function' && call.function.name)[0], 'look')
    }
    assert([...finishes].every((finish) => finish === 'stop' || finish === 'tool_calls'), [...finishes].join())
  })

  test('json_object holds it to an object; one that is cut says so', async () => {
    const { message, finish_reason } = await choiceOf({ response_format: { type: 'json_object' }, max_tokens: 3 })
    assert.equal(finish_reason, 'length')
    assert.match(message.content ?? '', /^\{/)
  })

  test('a schema that cannot be held is refused, with where it says so', async () => {
    const place = /response_format\.json_schema\.schema#\/properties\/a\/items: "multipleOf"/
    const items = { type: 'integer', multipleOf: 7 }
    await refused({ response_format: formatOf({ type: 'object', properties: { a: { type: 'array', items } } }) },
      'unsupported_schema', place)
  })
})

describe('grammar', () => {
  test('holds the whole text', async () => {
    const { message, finish_reason } = await choiceOf({ grammar: 'root ::= "a" word{2}\nword ::= " " [b-d]+ "!"' })
    assert.match(message.content ?? '', /^a( [bcd]+!){2}$/)
    assert.equal(finish_reason, 'stop')
  })

  test('that cannot be read, or is out of bounds, is refused', async () => {
    await refused({ grammar: 'root ::= nothing' }, 'invalid_grammar', /"nothing" is named and not there/)
    await refused({ grammar: 'start ::= "a"' }, 'invalid_grammar', /no rule "root"/)
    await refused({ grammar: 'root ::= "b"\nroot = "a"' }, 'invalid_grammar', /line 2/)
    await refused({ grammar: 'root ::= root "a"' }, 'invalid_grammar', /left recursion/)
    await refused({ grammar: `root ::= ${'('.repeat(100)}"a"${')'.repeat(100)}` }, 'invalid_grammar', /deeper than/)
    await refused({ grammar: 'root ::= "a"{3000000}' }, 'invalid_grammar', /1000000 repetitions/)
  })
})

describe('a grammar that multiplies itself', () => {
  const twice = 's ::= "a" s "b" | "a" s "c" | "d"'
  const timed = async (work: () => Promise<unknown>): Promise<void> => {
    const begunMs = performance.now()
    await work()
    const tookMs = performance.now() - begunMs
    assert(tookMs < 10_000, `${tookMs} ms`)
  }

  test('is refused before anything runs where its beginning does', () => timed(async () => {
    await refused({ grammar: `root ::= s\n${twice}` }, 'invalid_grammar', /more than \d+ (ways at once|steps)/)
    await refused({ grammar: 'root ::= (("a"?){0,5000}){0,5000}' }, 'invalid_grammar', /more than \d+ (ways at once|steps)/)
    const doubled = Array.from({ length: 40 }, (_, i) => `r${i} ::= r${i + 1} "x" | r${i + 1} "y"`).join('\n')
    await refused({ grammar: `root ::= r0\n${doubled}\nr40 ::= "a"` }, 'invalid_grammar', /more than \d+ (ways at once|steps)/)
    await refused({ grammar: 'root ::= a "x"\na ::= b root\nb ::= c\nc ::= ""' }, 'invalid_grammar', /left recursion/)
  }))

  test('is ended at the token where it does, and others go on', () => timed(async () => {
    const late = ask({ grammar: `root ::= "a"{450} s\n${twice}`, logit_bias: { 97: 100 }, temperature: 0, max_tokens: 600 })
    const other = choiceOf({ max_tokens: 2 })
    await assert.rejects(late, (thrown: unknown) => {
      assert(thrown instanceof OpenAI.APIError, String(thrown))
      assert.match(thrown.message, /the grammar is too much: it opens more than 2048 ways at once/)
      return true
    })
    assert.equal((await other).finish_reason, 'length')
  }))

  test('is no trouble where it only repeats the empty text', () => timed(async () => {
    const { message, finish_reason } = await choiceOf({ grammar: 'root ::= (("a"*)* | ("a" | "a")*)+ "!"', logit_bias: { 97: 5 } })
    assert.match(message.content ?? '', finish_reason === 'stop' ? /^a*!$/ : /^a*$/)
  }))
})

describe('a schema out of bounds', () => {
  const deep = (depth: number): Record<string, unknown> => depth === 0 ? { type: 'null' } : { type: 'array', items: deep(depth - 1) }
  const wide = (count: number): Record<string, unknown> => ({ type: 'object', properties: Object.fromEntries(
    Array.from({ length: count }, (_, i) => [`p${i}`, { type: 'string', pattern: '^(a|b){1,9}$' }])) })

  test('is refused by name, at once, as a form of the answer and as a tool', async () => {
    const begunMs = performance.now()
    for (const [schema, words] of [
      [deep(200), /nested more than 64 deep/], [deep(33), /nested deeper than 32/], [wide(5_000), /more than 4000 rules/],
      [{ enum: Array.from({ length: 5_000 }, (_, i) => `v${i}`) }, /more than \d+ (ways at once|steps)/],
      [{ type: 'string', maxLength: 10_000_000 }, /"maxLength" over 100000/],
      [{ type: 'string', pattern: `^${'(a?){0,9000}'.repeat(20)}$` }, /more than \d+ (ways at once|steps)/],
    ] as const) await refused({ response_format: formatOf(schema) }, 'unsupported_schema', words)
    const tools = [{ type: 'function' as const, function: { name: 'f', parameters: wide(5_000) } }]
    await refused({ tools, tool_choice: 'required' }, 'unsupported_schema', /more than 4000 rules/)
    const tookMs = performance.now() - begunMs
    assert(tookMs < 10_000, `${tookMs} ms`)
  })

  test('is held up to its bounds', async () => {
    const { message, finish_reason } = await choiceOf({ response_format: formatOf({ enum: Array.from({ length: 2_000 }, (_, i) => `v${i}`) }) })
    assert.equal(finish_reason, 'stop')
    assert.match(message.content ?? '', /^"v[0-9]{1,4}"$/)
    assert.equal((await choiceOf({ response_format: formatOf(deep(32)), max_tokens: 40 })).finish_reason.length > 0, true)
  })
})

describe('tokens', () => {
  test('logprobs are told of every token, whole and streamed alike', async () => {
    const fields = { logprobs: true, top_logprobs: 3, max_tokens: 12, temperature: 0.8 }
    const { choices, usage } = await ask(fields)
    const content = choices[0]?.logprobs?.content ?? []
    assert.equal(content.length, usage?.completion_tokens)
    for (const { logprob, top_logprobs, bytes } of content) {
      assert(logprob <= 0 && bytes !== null)
      assert.equal(top_logprobs.length, 3)
      assert(top_logprobs.every((top, i) => top.logprob <= (top_logprobs[i - 1]?.logprob ?? 0)))
      assert((top_logprobs[0]?.logprob ?? 0) >= logprob)
    }
    const spelled = Buffer.from(content.flatMap(({ bytes }) => bytes ?? [])).toString('utf8')
    assert.equal(spelled, choices[0]?.message.content)
    const stream = client.chat.completions.stream({
      model: MODEL, messages: [{ role: 'user', content: 'Say something.' }], seed: 5, ...fields,
    })
    const { choices: streamed } = await stream.finalChatCompletion()
    assert.deepEqual(streamed[0]?.logprobs?.content, content)
    assert.equal(streamed[0]?.message.content, choices[0]?.message.content)
    assert.equal((await choiceOf({ max_tokens: 2 })).logprobs, null)
  })

  /** Ids of the first tokens that greedy sampling puts out. */
  const greedy = { temperature: 0, max_tokens: 8 }
  const idOf = (bytes: readonly number[] | null | undefined): string => (bytes ?? []).join()

  test('logit_bias takes a token away or forces it', async () => {
    const forced = await choiceOf({ ...greedy, logit_bias: { 65: 100 }, logprobs: true })
    const told = forced.logprobs?.content ?? []
    assert.equal(new Set(told.map(({ bytes }) => idOf(bytes))).size, 1)
    const banned = await choiceOf({ ...greedy, logit_bias: { 65: 100, 66: 100 }, presence_penalty: 2 })
    assert.equal(new Set([...banned.message.content ?? '']).size, 2)
  })

  test('penalties make it repeat less', async () => {
    const kinds = async (fields: Fields): Promise<number> => {
      const { logprobs } = await choiceOf({ temperature: 0, max_tokens: 60, ignore_eos: true, logprobs: true, ...fields })
      return new Set(logprobs?.content?.map(({ bytes }) => idOf(bytes))).size
    }
    const free = await kinds({})
    assert(await kinds({ frequency_penalty: 2 }) > free)
    assert(await kinds({ presence_penalty: 2, repetition_penalty: 5 }) > free)
  })

  test('min_tokens, ignore_eos and stop_token_ids say where it ends', async () => {
    const { usage, choices } = await ask({ min_tokens: 40, max_tokens: 40, temperature: 1 })
    assert.deepEqual([usage?.completion_tokens, choices[0]?.finish_reason], [40, 'length'])
    const endless = await ask({ ignore_eos: true, max_tokens: 50 })
    assert.deepEqual([endless.usage?.completion_tokens, endless.choices[0]?.finish_reason], [50, 'length'])
    const stopped = await ask({ temperature: 0, logit_bias: { 70: 100 }, stop_token_ids: [70] })
    assert.deepEqual([stopped.usage?.completion_tokens, stopped.choices[0]?.finish_reason], [0, 'stop'])
    const later = await ask({ temperature: 0, logit_bias: { 70: 100, 71: 50 }, stop_token_ids: [70], min_tokens: 3 })
    assert.deepEqual([later.usage?.completion_tokens, later.choices[0]?.finish_reason], [3, 'stop'])
  })

  test('any integer is a seed, and the same one says the same', async () => {
    for (const seed of [-1, 2 ** 40, Number.MAX_SAFE_INTEGER]) {
      const [one, other] = [await choiceOf({ seed, max_tokens: 6 }), await choiceOf({ seed, max_tokens: 6 })]
      assert.equal(one.message.content, other.message.content)
    }
  })

  test('what the vocabulary does not have, and more than one choice, are refused', async () => {
    await refused({ logit_bias: { 4_000_000: 1 } }, 'unknown_token', /4000000/)
    await refused({ stop_token_ids: [4_000_000] }, 'unknown_token', /4000000/)
    for (const n of [0, 9, 1.5]) await refused({ n }, 'invalid_request', /"n"/)
    await refused({ min_tokens: 3, response_format: { type: 'json_object' } }, 'unsupported_parameter', /"min_tokens"/)
  })
})
