/**
 * One idea: a program may wait for hours, and it may be cancelled meanwhile. While a person is asked, `waits` says so; after
 * the cancel, the answer that comes late changes nothing and is refused by name.
 */
import OpenAI from 'openai'
import { withServer } from './server.ts'

const tools: OpenAI.ChatCompletionFunctionTool[] = [{
  type: 'function',
  function: { name: 'ask_person', description: 'Asks a person to decide.', parameters: { type: 'object', properties: { question: { type: 'string' } }, required: ['question'] } },
}]

await withServer([{ toolCalls: [{ name: 'ask_person', arguments: { question: 'Shall I send it?' } }] }], async ({ client, model, url }) => {
  const program = `letter-${Date.now()}`
  const headers = { 'x-program-id': program }
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: 'user', content: 'Send the letter, but ask first.' }]
  const first = await client.chat.completions.create({ model, messages, tools, tool_choice: 'required', max_tokens: 64 }, { headers })
  const asked = first.choices[0]?.message
  const call = asked?.tool_calls?.[0]
  if (asked === undefined || call === undefined) throw new Error('the model called no tool')

  const seen = await (await fetch(`${url}/v1/programs/${program}`)).json() as { waits: { on: string; what: string }[] }
  console.log(`it waits for ${seen.waits[0]?.on}: ${seen.waits[0]?.what}`)

  await fetch(`${url}/v1/programs/${program}`, { method: 'DELETE' })
  messages.push(asked, { role: 'tool', tool_call_id: call.id, content: 'Yes, send it.' })
  try {
    await client.chat.completions.create({ model, messages, tools, max_tokens: 64 }, { headers })
    console.log('the late answer was taken')
  } catch (error) {
    if (!(error instanceof OpenAI.APIError)) throw error
    console.log(`the late answer was refused: ${error.status} ${error.code}`)
  }
})
