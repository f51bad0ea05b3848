/**
 * One idea: a tool call opens an interrupt, and the request that brings the result closes it. Nothing of ours is in the
 * loop: the second request continues the first one's thread because it answers a tool call that the server made.
 */
import type OpenAI from 'openai'
import { withServer } from './server.ts'

const tools: OpenAI.ChatCompletionFunctionTool[] = [{
  type: 'function',
  function: {
    name: 'multiply',
    description: 'Multiplies two numbers.',
    parameters: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] },
  },
}]

const script = [
  { match: 'What is', toolCalls: [{ name: 'multiply', arguments: { a: 6, b: 7 } }] },
  { match: '^\\d+$', text: 'It is 42.' },
]

await withServer(script, async ({ client, model }) => {
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: 'What is 6 times 7?' }]
  const first = await client.chat.completions.create({ model, messages, tools, tool_choice: 'required', max_tokens: 64 })
  const asked = first.choices[0]?.message
  const call = asked?.tool_calls?.[0]
  if (asked === undefined || call?.type !== 'function') throw new Error('the model called no tool')
  const { a, b } = JSON.parse(call.function.arguments) as { a: number; b: number }
  console.log(`it asked for ${call.function.name}(${a}, ${b})`)

  messages.push(asked, { role: 'tool', tool_call_id: call.id, content: String(a * b) })
  const second = await client.chat.completions.create({ model, messages, tools, max_tokens: 64 })
  const { prompt_tokens: prompt, prompt_tokens_details: details } = second.usage ?? { prompt_tokens: 0 }
  console.log(`it answered: ${second.choices[0]?.message.content}`)
  console.log(`${details?.cached_tokens ?? 0} of ${prompt} prompt tokens were kept from the first call`)
})
