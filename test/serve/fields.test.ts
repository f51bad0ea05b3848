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
    await refused({ grammar: 'root ::= nothing' }, 'invalid_grammar', /failed to parse/)
    await refused({ grammar: 'start ::= "a"' }, 'invalid_grammar', /no rule "root"/)
    await refused({ grammar: 'root ::= root "a"' }, 'invalid_grammar', /is not valid/)
    await refused({ grammar: `root ::= ${'('.repeat(40)}"a"${')'.repeat(40)}` }, 'invalid_grammar', /deeper than/)
    await refused({ grammar: `root ::= "a"\n${'x ::= "a"\n'.repeat(1_001)}` }, 'invalid_grammar', /1000 are read/)
    await refused({ grammar: 'root ::= "a"{3000}' }, 'invalid_grammar', /./)
  })
})
