/**
 * One idea: a program is everything done for one goal, and you may name it. Two threads work at once under one name, the
 * server accounts for them together, and the last call says that it is the last.
 */
import { withServer } from './server.ts'

const script = [
  { match: '^How.*north', text: 'In the north it rains.' },
  { match: '^How.*south', text: 'In the south it is dry.' },
  { match: '^Both', text: 'Take an umbrella if you go north.' },
]

await withServer(script, async ({ client, model, url }) => {
  const program = `weather-${Date.now()}`
  const ask = async (content: string, headers: Record<string, string>): Promise<string> => {
    const answer = await client.chat.completions.create(
      { model, messages: [{ role: 'user', content }], max_tokens: 32 }, { headers: { 'x-program-id': program, 'x-program-agent': 'weather', ...headers } },
    )
    return answer.choices[0]?.message.content ?? ''
  }
  const reports = await Promise.all([
    ask('How is it in the north?', { 'x-program-thread-id': 'north' }),
    ask('How is it in the south?', { 'x-program-thread-id': 'south' }),
  ])
  console.log(await ask(`Both: ${reports.join(' ')} What do I pack?`, { 'x-program-thread-id': 'main', 'x-program-final': 'true' }))

  const seen = await (await fetch(`${url}/v1/programs/${program}`)).json() as { stage: { kind: string }; callsTotal: number; service: { useful: { workUs: number } } }
  console.log(`${seen.callsTotal} calls, ${Math.round(seen.service.useful.workUs / 1_000)} ms of an engine, now ${seen.stage.kind}`)
  // A server of the example's own is gone when it ends.
  if (process.env['BASE_URL'] !== undefined) console.log(`why it took as long as it did: entracte explain ${program} --url ${url}`)
})
