/**
 * One idea: a search tries several ways from one point, and the first that succeeds ends the others. Each way is a thread
 * forked from the same State: what they have in common is kept once. A join of `any` cancels the ways that lost.
 */
import { APIError } from 'openai'
import { withServer } from './server.ts'

const script = [
  { match: 'Try rook', text: 'Then the bishop, and then perhaps the pawn, or rather '.repeat(40), tokensPerSecond: 20 },
  { match: 'Try queen', text: 'Mate in two.' },
  { match: 'Try pawn', text: 'One square, and one more square, and '.repeat(60), tokensPerSecond: 20 },
  { match: '^The position', text: 'Rook, queen and pawn can move.' },
]

await withServer(script, async ({ client, model, url, post }) => {
  const { id } = await post('/v1/programs', { agent: 'chess' })
  const position = { role: 'user' as const, content: 'The position is as it was yesterday. What can move?' }
  const headers = { 'x-program-id': id }
  const root = await client.chat.completions.create({ model, messages: [position], max_tokens: 50 }, { headers: { ...headers, 'x-program-thread-id': 'main' } })
  const moves = root.choices[0]?.message
  const pieces = ['rook', 'queen', 'pawn']
  await post(`/v1/programs/${id}/graph`, {
    forks: pieces.map((thread) => ({ thread, from: 'main' })),
    nodes: [
      ...pieces.map((thread) => ({ id: `try ${thread}`, kind: 'LLM', thread, parents: [root.id] })),
      { id: 'found', kind: 'JOIN', parents: pieces.map((piece) => `try ${piece}`), join: { rule: 'any' } },
    ],
  })
  await Promise.all(pieces.map(async (piece) => {
    try {
      const answer = await client.chat.completions.create(
        { model, messages: [position, { role: 'assistant', content: moves?.content ?? '' }, { role: 'user', content: `Try ${piece}.` }], max_tokens: 400 },
        { headers: { ...headers, 'x-program-call-id': `try ${piece}` } },
      )
      console.log(`${piece}: ${answer.choices[0]?.message.content ?? ''}`)
    } catch (error) {
      if (!(error instanceof APIError)) throw error
      console.log(`${piece}: ${error.status} ${error.code}`)
    }
  }))
  const { states } = await (await fetch(`${url}/v1/programs/${id}`)).json() as { states: { thread: string }[] }
  console.log(`KV is kept for: ${states.map(({ thread }) => thread).join(', ')}`)
  await post(`/v1/programs/${id}/finish`)
})
