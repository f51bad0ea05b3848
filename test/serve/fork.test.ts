import assert from 'node:assert/strict'
import { test } from 'node:test'
import { completion, proven, served, type Completion } from './served.ts'

const FIRST = [{ role: 'user', content: 'Name the things that are on the table, one by one. '.repeat(4) }]
const WAYS = ['Tell me more of the first.', 'Tell me more of the second, please.']

interface Said { readonly text: string; readonly resume: string }

async function ask(url: string, messages: readonly object[], headers: Record<string, string>): Promise<Said & { message: object }> {
  const answer = await completion(url, { messages, max_tokens: 30, seed: 11, temperature: 0.9 }, headers)
  const { message } = answer.choices[0] as Completion['choices'][number]
  return { text: message.content ?? '', resume: answer.entracte.resume, message }
}

test('a fork on the embedded engine says what its parent would have said, token for token, and leaves its parent as it was', async () => {
  const server = await served({}, { lanes: 3 })
  await proven(server)
  const alone: Said[] = []
  for (const [index, way] of WAYS.entries()) {
    const program = `alone-${index}`
    const { message } = await ask(server.url, FIRST, { 'x-program-id': program, 'x-program-thread-id': 'main' })
    alone.push(await ask(server.url, [...FIRST, message, { role: 'user', content: way }], { 'x-program-id': program, 'x-program-thread-id': 'main' }))
  }
  const headers = { 'x-program-id': 'forked' }
  const { message } = await ask(server.url, FIRST, { ...headers, 'x-program-thread-id': 'main' })
  const report = JSON.stringify({ forks: [{ thread: 'branch', from: 'main' }] })
  const forked = await fetch(`${server.url}/v1/programs/forked/graph`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: report })
  assert.equal(forked.status, 200)
  const both = await Promise.all(['main', 'branch'].map((thread, index) =>
    ask(server.url, [...FIRST, message, { role: 'user', content: WAYS[index] ?? '' }], { ...headers, 'x-program-thread-id': thread })))
  assert.deepEqual(both.map(({ text }) => text), alone.map(({ text }) => text))
  assert.equal(both[1]?.resume, 'exact', 'it was fed again, by origin')
  await server.close()
})
