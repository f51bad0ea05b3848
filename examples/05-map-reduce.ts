/**
 * One idea: a program is a graph, and you may say so. Three maps run at once; the reduce needs two of them. Declared as a
 * join of `partial(2)`, the third is cancelled as soon as nobody needs it, and its place goes to somebody else.
 */
import { APIError } from 'openai'
import { withServer } from './server.ts'

const script = [
  { match: '^Read chapter one', text: 'Chapter one: they meet.' },
  { match: '^Read chapter two', text: 'Chapter two: they part.' },
  { match: '^Read chapter three', text: 'Chapter three goes on and on. '.repeat(100), tokensPerSecond: 20 },
  { match: '^Sum up', text: 'They meet, and they part.' },
]

await withServer(script, async ({ client, model, url, post }) => {
  const { id } = await post('/v1/programs', { agent: 'reader', steps: 4 })
  const chapters = ['one', 'two', 'three']
  await post(`/v1/programs/${id}/graph`, {
    nodes: [
      ...chapters.map((chapter) => ({ id: `map ${chapter}`, kind: 'LLM', thread: chapter })),
      { id: 'enough', kind: 'JOIN', parents: chapters.map((chapter) => `map ${chapter}`), join: { rule: 'partial', atLeast: 2 } },
      { id: 'reduce', kind: 'LLM', parents: ['enough'] },
    ],
  })
  const ask = async (node: string, content: string): Promise<string> => {
    const headers = { 'x-program-id': id, 'x-program-call-id': node }
    const answer = await client.chat.completions.create({ model, messages: [{ role: 'user', content }], max_tokens: 500 }, { headers })
    return answer.choices[0]?.message.content ?? ''
  }
  const maps = await Promise.all(chapters.map(async (chapter) => {
    try {
      return await ask(`map ${chapter}`, `Read chapter ${chapter}.`)
    } catch (error) {
      if (!(error instanceof APIError)) throw error
      console.log(`chapter ${chapter}: ${error.status} ${error.code}`)
      return null
    }
  }))
  const known = maps.filter((text) => text !== null)
  console.log(`${known.length} of ${maps.length} were enough: ${await ask('reduce', `Sum up: ${known.join(' ')}`)}`)
  await post(`/v1/programs/${id}/finish`)
  const { nodes } = await (await fetch(`${url}/v1/programs/${id}`)).json() as { nodes: { id: string; stage: string }[] }
  console.log(nodes.map((node) => `${node.id}: ${node.stage}`).join(', '))
})
