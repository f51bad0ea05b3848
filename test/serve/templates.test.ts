/** Forms of tool calls and reasoning from the chat template to the wire, on the tiny model with other templates. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import OpenAI from 'openai'
import { writeTinyGguf } from '../../src/models/tiny-gguf.ts'
import { BARE_CALL, NAMED_CALLS, TOLD_CALLS, VALUES } from '../engine/templates.ts'
import { MODEL, folder, served } from './served.ts'

async function clientOf(template: string): Promise<OpenAI> {
  const path = join(folder(), `${MODEL}.gguf`)
  writeTinyGguf(path, template)
  const { url } = await served({}, { model: path, laneTokens: 1_024 })
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
}

const parameters = { type: 'object', properties: { day: { enum: ['mon', 'tue'] }, n: { type: 'integer' } }, required: ['day', 'n'] }
const tools = [{ type: 'function' as const, function: { name: 'look', description: 'd', parameters } }]
const base = { model: MODEL, temperature: 0, seed: 3, max_tokens: 200 }
const user = { role: 'user' as const, content: 'Say something.' }

type Delta = OpenAI.ChatCompletionChunk.Choice.Delta & { readonly reasoning_content?: string }
type Message = OpenAI.ChatCompletionMessage & { readonly reasoning_content?: string }

async function deltasOf(client: OpenAI, fields: Partial<OpenAI.ChatCompletionCreateParamsStreaming>): Promise<Delta[]> {
  const stream = await client.chat.completions.create({ ...base, messages: [user], ...fields, stream: true })
  const deltas: Delta[] = []
  for await (const { choices } of stream) for (const { delta } of choices) deltas.push(delta)
  return deltas
}

describe('a forced call', () => {
  for (const [form, template] of [['mistral', NAMED_CALLS], ['llama3', BARE_CALL], ['granite', TOLD_CALLS], ['qwen-coder', VALUES]] as const) {
    test(`of a model with the ${form} form comes as deltas, name first, and its thread goes on`, async () => {
      const client = await clientOf(template)
      const deltas = await deltasOf(client, { tools, tool_choice: 'required' })
      assert.equal(deltas.map(({ content }) => content ?? '').join(''), '')
      const pieces = deltas.flatMap(({ tool_calls }) => tool_calls ?? [])
      assert(pieces.length > 1, 'in pieces')
      assert.deepEqual(pieces.map(({ function: called }) => called?.name), ['look', ...pieces.slice(1).map(() => undefined)])
      const written = pieces.map(({ function: called }) => called?.arguments ?? '').join('')
      const given = JSON.parse(written) as { day: string; n: number }
      assert(['mon', 'tue'].includes(given.day) && Number.isInteger(given.n))

      const whole = await client.chat.completions.create({ ...base, messages: [user], tools, tool_choice: 'required' })
      const { message, finish_reason } = whole.choices[0] ?? assert.fail('no choice')
      assert.equal(finish_reason, 'tool_calls')
      const call = message.tool_calls?.[0]
      assert(call?.type === 'function' && call.function.arguments === written, JSON.stringify(message))
      const next = await client.chat.completions.create({
        ...base, messages: [user, message, { role: 'tool', tool_call_id: call.id, content: 'fine' }], tools, tool_choice: 'none',
      })
      assert((next.usage?.prompt_tokens_details?.cached_tokens ?? 0) > 20, JSON.stringify(next.usage))
    })
  }
})

describe('a call that nothing forces', () => {
  test('comes as deltas too, name first, and is the call that the whole answer has', async () => {
    const client = await clientOf(NAMED_CALLS)
    // Beside a form of the answer the model is held to one of both, and chooses.
    const format = { type: 'json_schema' as const, json_schema: { name: 'a', schema: { enum: ['x'] } } }
    let called = 0
    for (let seed = 0; seed < 8 && called < 2; seed++) {
      const fields = { tools, seed, temperature: 1.2, response_format: format }
      const { choices } = await client.chat.completions.create({ ...base, messages: [user], ...fields })
      const whole = choices[0]?.message.tool_calls?.[0]
      if (whole?.type !== 'function' || choices[0]?.finish_reason !== 'tool_calls') continue
      called++
      const pieces = (await deltasOf(client, fields)).flatMap(({ tool_calls }) => tool_calls ?? []).filter(({ index }) => index === 0)
      assert(pieces.length > 1, 'in pieces')
      assert.deepEqual(pieces.map(({ function: given }) => given?.name), [whole.function.name, ...pieces.slice(1).map(() => undefined)])
      assert.equal(pieces.map(({ function: given }) => given?.arguments ?? '').join(''), whole.function.arguments)
    }
    assert(called > 0, 'no seed made it call')
  })
})

describe('reasoning that the prompt opens', () => {
  test('goes out as reasoning_content, streamed and whole, and none of it as content', async () => {
    const client = await clientOf(VALUES)
    const deltas = await deltasOf(client, {})
    assert.equal(deltas.map(({ content }) => content ?? '').join(''), '')
    const thought = deltas.map(({ reasoning_content: text }) => text ?? '').join('')
    assert(thought.length > 0)
    const { choices } = await client.chat.completions.create({ ...base, messages: [user] })
    const message: Message = choices[0]?.message ?? assert.fail('no choice')
    assert.deepEqual([message.reasoning_content, message.content], [thought, ''])
  })
})

describe('a template that refuses', () => {
  test('is an error of the wire that says why', async () => {
    const client = await clientOf(BARE_CALL)
    const called = ['a', 'b'].map((id) => ({ id, type: 'function' as const, function: { name: 'look', arguments: '{}' } }))
    await assert.rejects(client.chat.completions.create({
      ...base, tools, messages: [
        user, { role: 'assistant', content: null, tool_calls: called },
        ...called.map(({ id }) => ({ role: 'tool' as const, tool_call_id: id, content: 'x' })),
      ],
    }), (thrown: unknown) => {
      assert(thrown instanceof OpenAI.APIError, String(thrown))
      assert.deepEqual([thrown.status, thrown.code], [400, 'template_failed'])
      assert.match(thrown.message, /one call a message/)
      return true
    })
  })
})
