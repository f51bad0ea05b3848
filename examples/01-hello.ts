/** One idea: it is the OpenAI API. A chat, streamed, with the usage at its end. */
import { withServer } from './server.ts'

await withServer([{ text: 'Hello! The curtain is up.' }], async ({ client, model }) => {
  const stream = await client.chat.completions.create({
    model,
    messages: [{ role: 'user', content: 'Say hello.' }],
    max_tokens: 32,
    stream: true,
    stream_options: { include_usage: true },
  })
  for await (const { choices: [choice], usage } of stream) {
    process.stdout.write(choice?.delta.content ?? '')
    if (usage) console.log(`\n${usage.prompt_tokens} tokens read, ${usage.completion_tokens} written`)
  }
})
