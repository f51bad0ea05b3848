/** A declared graph through the driver, before an engine: what is told is answered by name, and calls wait for their nodes. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { GraphReport } from '../../src/driver/gateway.ts'
import type { Claims, NodeReport } from '../../src/core/input.ts'
import { follow, house, LOCAL, submission, until, type Answer, type House } from './house.ts'

const SCRIPT = { items: [{ match: '^slow', text: 'word '.repeat(200), tokensPerSecond: 20 }, { match: '.', text: 'Done at once.' }], tokensPerSecond: 2_000 }

const node = (name: string, parents: readonly string[] = [], more: Partial<NodeReport> = {}): NodeReport =>
  ({ node: name, kind: 'LLM', thread: null, parents: parents.map((parent) => ({ node: parent, edge: 'data' })), join: null, serviceUs: null, ...more })

async function begun(): Promise<House> {
  const at = await house(SCRIPT)
  await at.driver.declare({ tenant: LOCAL, program: 'p', session: null, agent: 'mapper', priorityClass: 'default', deadlineUs: null, parent: null, steps: null })
  return at
}

const report = (at: House, more: Partial<GraphReport>) => at.driver.report(LOCAL, 'p', { epoch: null, parent: null, forks: [], nodes: [], outcomes: [], ...more })

const ask = (at: House, content: string, claims: Partial<Claims>): Promise<Answer> =>
  follow(at.driver.submit(submission([{ role: 'user', content }], { program: 'p', ...claims })))

test('a call waits for the join of others; the branch that a join needs no more is cancelled on its engine', async () => {
  const at = await begun()
  assert.deepEqual(await report(at, {
    nodes: [node('quick'), node('long'), node('j', ['quick', 'long'], { kind: 'JOIN', join: { need: { kind: 'any' }, siblings: 'cancel' } }), node('last', ['j'])],
  }), { ok: true, program: 'p' })
  const last = ask(at, 'at last', { node: 'last', thread: 'main' })
  const long = ask(at, 'slow one', { node: 'long', thread: 'long' })
  await until(() => [...at.driver.core.calls.values()].some(({ stage }) => stage.kind === 'measured'))
  const quick = await ask(at, 'quick one', { node: 'quick', thread: 'quick' })
  assert.equal(quick.last.kind, 'done')
  const lost = await long
  assert.deepEqual([lost.last.kind, 'code' in lost.last ? lost.last.code : ''], ['failed', 'cancelled'])
  assert.equal((await last).last.kind, 'done')
  await until(() => at.driver.core.engines.get('e' as never)?.running.size === 0)
  await at.close()
  assert.deepEqual(at.fatal, [])
})

test('each act is answered for itself, in whatever order they come: a report, a contradiction, the cancelling of a call and of a thread', async () => {
  const at = await begun()
  const slow = ask(at, 'slow one', { node: 'a', thread: 'x' })
  await until(() => at.driver.core.calls.size === 1)
  const answers = await Promise.all([
    report(at, { nodes: [node('b', ['a'])] }),
    report(at, { nodes: [node('c', ['c'])] }),
    at.driver.cancelCall(LOCAL, 'p', 'b'),
    at.driver.cancelCall(LOCAL, 'p', 'b'),
    at.driver.cancelThread(LOCAL, 'p', 'x'),
    at.driver.cancelThread(LOCAL, 'p', 'x'),
    report(at, {}),
  ])
  assert.deepEqual(answers.map((answer) => (answer.ok ? 'ok' : answer.code)), ['ok', 'graph_cycle', 'ok', 'node_closed', 'ok', 'thread_cancelled', 'ok'])
  assert.equal((await slow).last.kind, 'failed')
  await at.close()
  assert.deepEqual(at.fatal, [])
})

test('a claim that contradicts the graph is refused, and so is the call', async () => {
  const at = await begun()
  const first = await ask(at, 'one', { node: 'a', thread: 'x' })
  assert.equal(first.last.kind, 'done')
  const again = await ask(at, 'two', { node: 'a', thread: 'x' })
  assert.deepEqual([again.last.kind, 'code' in again.last ? again.last.code : ''], ['refused', 'node_closed'])
  assert.deepEqual(await report(at, { nodes: [node('b', [first.first?.call ?? ''])] }), { ok: true, program: 'p' })
  await at.close()
})

test('a forked thread continues what its parent has committed, after a restart too', async () => {
  const at = await begun()
  const one = await ask(at, 'one', { thread: 'main' })
  assert.deepEqual(await report(at, { forks: [{ thread: 'b', from: 'main' }] }), { ok: true, program: 'p' })
  const messages = [{ role: 'user' as const, content: 'one' }, { role: 'assistant' as const, content: one.text }, { role: 'user' as const, content: 'two' }]
  const calls = await Promise.all(['main', 'b'].map((thread) => follow(at.driver.submit(submission(messages, { program: 'p', thread })))))
  assert.deepEqual(calls.map(({ last }) => last.kind), ['done', 'done'])
  at.kill()
  const again = await house(SCRIPT, {}, at.disk)
  assert.equal(again.driver.core.threads.get('local/p/b' as never)?.forkedFrom, 'local/p/main')
  await again.close()
  assert.deepEqual([at.fatal, again.fatal], [[], []])
})
