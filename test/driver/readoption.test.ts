import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { EnginePort } from '../../src/driver/ports.ts'
import { MemoryDisk } from '../../src/store/memory.ts'
import { follow, house, LOCAL, scripted, submission, type Message } from './house.ts'

const SCRIPT = {
  items: [{ match: 'go', toolCalls: [{ name: 'search', arguments: {} }] }, { match: 'talk', text: 'word '.repeat(60) }, { match: '.', text: 'done now' }],
  tokensPerSecond: 500,
}

/** An engine in a process of its own: a control plane that is killed lets go of nothing. */
function outliving(engine: EnginePort): EnginePort {
  return {
    id: engine.id, open: (reign, sink) => engine.open(reign, sink), measure: (request) => engine.measure(request),
    perform: (command) => engine.perform(command), close: async () => undefined,
  }
}

test('an engine that outlives its control plane is taken over with what it holds: a program that waited goes on, nothing is fed again', async () => {
  const engine = scripted(SCRIPT)
  const before = await house(SCRIPT, {}, undefined, 'refuse', outliving(engine))
  const messages: Message[] = [{ role: 'user', content: 'go '.repeat(50) }]
  const first = await follow(before.driver.submit(submission(messages, { program: 'waits' })))
  void follow(before.driver.submit(submission([{ role: 'user', content: 'talk' }], { program: 'runs' }, { digest: 'kept' }))).catch(() => null)
  await new Promise((resolve) => setTimeout(resolve, 120))
  before.kill()

  const after = await house(SCRIPT, {}, before.disk, 'refuse', outliving(engine))
  const states = [...after.driver.core.states.values()]
  assert.deepEqual(states.map(({ residence }) => residence.kind).sort(), ['gone', 'suspended'], 'the one that waited is there, the one that ran is not')
  assert.ok(after.driver.facts(LOCAL, 'waits', 100).some(({ fact }) => fact.kind === 'kv.found'))
  const id = `call_${first.first?.call ?? ''}_0`
  messages.push({ role: 'assistant', content: '', toolCalls: [{ id, ...first.toolCalls[0] as { name: string; arguments: string } }] }, { role: 'tool', content: 'found', toolCallId: id })
  const second = await follow(after.driver.submit(submission(messages, { program: 'waits' })))
  assert.ok(second.last.kind === 'done' && first.last.kind === 'done' && second.last.cachedTokens >= first.last.promptTokens)
  assert.equal(second.last.resume, 'none', 'nothing was recomputed')
  const talk = await follow(after.driver.submit(submission([{ role: 'user', content: 'talk' }], { program: 'runs' }, { digest: 'kept' })))
  assert.equal(talk.text.split(' ').filter((word) => word === 'word').length, 60)
  await after.close()
  assert.deepEqual([...engine.breaches, ...before.fatal, ...after.fatal], [])
})

test('what an engine holds that nobody owns any more is dropped by the control plane that takes it over: its memory is there for others', async () => {
  const script = { ...SCRIPT, memory: { granuleTokens: 512, granules: 1, sequences: 1 } }
  const engine = scripted(script)
  const before = await house(script, {}, undefined, 'refuse', outliving(engine))
  await follow(before.driver.submit(submission([{ role: 'user', content: 'go' }], { program: 'waits' })))
  before.kill()
  const elsewhere = new MemoryDisk()
  elsewhere.nextReign()
  const stranger = await house(script, {}, elsewhere, 'refuse', outliving(engine))
  assert.equal((await follow(stranger.driver.submit(submission([{ role: 'user', content: 'hello' }])))).text, 'done now')
  await stranger.close()
  assert.deepEqual([...engine.breaches, ...before.fatal, ...stranger.fatal], [])
})
