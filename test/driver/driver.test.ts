import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MemoryDisk } from '../../src/store/memory.ts'
import { follow, house, LOCAL, type Answer, submission, until, type Message } from './house.ts'

const TOOLS = { items: [{ match: 'go', toolCalls: [{ name: 'search', arguments: { q: 'x' } }] }, { match: '.', text: 'The answer is forty-two.' }], tokensPerSecond: 2_000 }

test('a call arrives, is measured, runs and commits once; its facts tell so in order', async () => {
  const at = await house(TOOLS)
  const answer = await follow(at.driver.submit(submission([{ role: 'user', content: 'hello' }])))
  assert.equal(answer.text, 'The answer is forty-two.')
  assert.equal(answer.last.kind, 'done')
  const kinds = at.driver.facts(LOCAL, answer.first?.program ?? '', 100).map(({ fact }) => fact.kind)
  const told = ['program.started', 'call.arrived', 'call.measured', 'call.ready', 'call.scheduled', 'call.completed', 'program.completed']
  assert.deepEqual(kinds.filter((kind) => told.includes(kind)), told)
  await at.close()
  assert.deepEqual(at.fatal, [])
})

test('tool calls start an interrupt, and the call that brings the results ends it in the same program', async () => {
  const at = await house(TOOLS)
  const messages: Message[] = [{ role: 'user', content: 'go' }]
  const first = await follow(at.driver.submit(submission(messages)))
  assert.equal(first.last.kind === 'done' && first.last.finish, 'tool_calls')
  const id = `call_${first.first?.call ?? ''}_0`
  messages.push({ role: 'assistant', content: '', toolCalls: [{ id, ...first.toolCalls[0] as { name: string; arguments: string } }] }, { role: 'tool', content: 'found', toolCallId: id })
  const second = await follow(at.driver.submit(submission(messages)))
  assert.equal(second.first?.program, first.first?.program)
  assert.equal(at.driver.core.interrupts.get(`${first.first?.call ?? ''}.wait` as never)?.stage.kind, 'completed')
  await at.close()
})

test('the same body while unanswered is a retry: one call, one commit, two readers', async () => {
  const at = await house({ items: [{ text: 'one two three four five six seven eight nine ten' }], tokensPerSecond: 50 })
  const same = { digest: 'same' }
  const one = follow(at.driver.submit(submission([{ role: 'user', content: 'x' }], { session: 's' }, same)))
  await until(() => at.driver.core.calls.size === 1)
  const two = follow(at.driver.submit(submission([{ role: 'user', content: 'x' }], { session: 's' }, same)))
  const [a, b] = await Promise.all([one, two])
  assert.equal(a.text, b.text)
  assert.equal(a.first?.call, b.first?.call)
  assert.equal(at.driver.core.calls.size, 1)
  await at.close()
})

test('who asks again while the first client hangs up gets the call, and it is not cancelled under them', async () => {
  const at = await house({ items: [{ text: 'one two three four five six seven eight nine ten' }], tokensPerSecond: 50 })
  const ask = () => at.driver.submit(submission([{ role: 'user', content: 'x' }], { session: 's' }, { digest: 'same' }))
  for (const hangsUp of ['before the retry is decided', 'before it is told'] as const) {
    const first = ask()
    const one = (async () => { for await (const update of first.updates) if (update.kind === 'arrived') break })()
    await until(() => [...at.driver.core.calls.values()].some(({ stage }) => stage.kind === 'running'))
    await one
    const again = ask()
    if (hangsUp === 'before it is told') await Promise.resolve()
    first.hangUp()
    const answer = await follow(again)
    assert.equal(answer.last.kind, 'done', `${hangsUp}: ${JSON.stringify(answer.last)}`)
    assert.equal(answer.text, 'one two three four five six seven eight nine ten')
  }
  await at.close()
  assert.deepEqual(at.fatal, [])
})

test('a retry of a call whose tool calls were committed gets them again and generates nothing', async () => {
  const at = await house(TOOLS)
  const same = { digest: 'again' }
  const first = await follow(at.driver.submit(submission([{ role: 'user', content: 'go' }], { session: 's' }, same)))
  const again = await follow(at.driver.submit(submission([{ role: 'user', content: 'go' }], { session: 's' }, same)))
  assert.deepEqual(again.toolCalls, first.toolCalls)
  assert.equal(again.first?.call, first.first?.call)
  assert.equal(at.driver.core.calls.size, 1)
  await at.close()
})

test('what an irreversible tool call showed is kept after it was answered: a retry gets it again and generates nothing', async () => {
  const at = await house(TOOLS, { toolEffects: { search: 'irreversible' } })
  const same = { digest: 'pay' }
  const ask = (): Promise<Answer> => follow(at.driver.submit(submission([{ role: 'user', content: 'go' }], { program: 'p' }, same)))
  const first = await ask()
  const id = `call_${first.first?.call ?? ''}_0`
  assert.deepEqual(await at.driver.commitEffect(LOCAL, 'p', id, 'payment 17'), { ok: true, program: 'p' })
  assert.equal((await at.driver.commitEffect(LOCAL, 'p', 'never', null)).ok, false)
  await follow(at.driver.submit(submission([
    { role: 'user', content: 'go' }, { role: 'assistant', content: '', toolCalls: [{ id, ...first.toolCalls[0] as { name: string; arguments: string } }] },
    { role: 'tool', content: 'found', toolCallId: id },
  ], { program: 'p' })))
  const again = await ask()
  assert.deepEqual(again.toolCalls, first.toolCalls)
  assert.equal(again.first?.call, first.first?.call)
  assert.equal(at.driver.core.calls.size, 2)
  await at.driver.finish(LOCAL, 'p')
  await at.close()
  assert.deepEqual(at.disk.bodySizes().filter(({ id: kept }) => kept.startsWith('result:')), [], 'gone with its program')
})

test('a client that hangs up while its call is queued or running frees place, sequence and cells', async () => {
  const at = await house({ items: [{ text: 'word '.repeat(60) }], tokensPerSecond: 20, memory: { granuleTokens: 512, granules: 1, sequences: 1 } })
  const running = at.driver.submit(submission([{ role: 'user', content: 'a' }]))
  await until(() => at.driver.core.engines.get('e' as never)?.running.size === 1)
  const queued = at.driver.submit(submission([{ role: 'user', content: 'b' }]))
  await until(() => at.driver.core.queues.get('m')?.size === 1)
  const both = Promise.all([follow(running), follow(queued)]).catch(() => null)
  queued.hangUp()
  running.hangUp()
  await until(() => at.driver.core.openCalls === 0, 1_000)
  assert.equal(at.driver.core.engines.get('e' as never)?.ownedGranules, 0)
  assert.equal(at.driver.core.queues.get('m')?.size, 0)
  await at.close()
  void both
})

test('cancel runs along the program: running call, waiting interrupt and KV, and no new call', async () => {
  const at = await house({ ...TOOLS, items: [{ match: 'go', toolCalls: [{ name: 'search', arguments: {} }] }, { match: '.', text: 'word '.repeat(50) }], tokensPerSecond: 30 })
  await follow(at.driver.submit(submission([{ role: 'user', content: 'go' }], { program: 'p', thread: 'a' })))
  const running = follow(at.driver.submit(submission([{ role: 'user', content: 'talk' }], { program: 'p', thread: 'b' })))
  await until(() => at.driver.core.engines.get('e' as never)?.running.size === 1)
  assert.deepEqual(await at.driver.cancel(LOCAL, 'p'), { ok: true, program: 'p' })
  assert.equal((await running).last.kind, 'failed')
  const after = await follow(at.driver.submit(submission([{ role: 'user', content: 'more' }], { program: 'p' })))
  assert.equal(after.last.kind === 'refused' && after.last.code, 'program_cancelled')
  assert.equal(at.driver.core.states.size, 0)
  await at.close()
})

test('an engine that dies in the middle of a stream: the stream goes on at the next token, nothing twice, nothing lost', async () => {
  const text = 'one two three four five six seven eight nine ten'
  const at = await house({ items: [{ text, fail: 'lost', failAfterTokens: 6 }], tokensPerSecond: 300, rejoinMs: 30 })
  const answer = await follow(at.driver.submit(submission([{ role: 'user', content: 'x' }])))
  assert.equal(answer.text, text)
  assert.ok([...at.driver.core.calls.values()].every((call) => call.attempt === 2))
  await at.close()
})

test('a call that arrives while its engine is being started again waits for it', async () => {
  const at = await house({ items: [{ match: 'die', text: 'x y z', fail: 'lost' }, { match: '.', text: 'here' }], tokensPerSecond: 300, rejoinMs: 150 })
  const dying = follow(at.driver.submit(submission([{ role: 'user', content: 'die' }])))
  await until(() => at.driver.core.engines.get('e' as never)?.stage === 'lost')
  const waiting = await follow(at.driver.submit(submission([{ role: 'user', content: 'hello' }])))
  assert.equal(waiting.text, 'here')
  assert.equal((await dying).text, 'x y z')
  await at.close()
})

test('what an engine refuses for good ends the call with its reason and leaves nothing behind', async () => {
  const at = await house({ items: [{ text: 'x', fail: 'fatal' }] })
  const answer = await follow(at.driver.submit(submission([{ role: 'user', content: 'x' }])))
  assert.equal(answer.last.kind, 'failed')
  assert.equal(at.driver.core.states.size, 0)
  assert.equal(at.driver.core.openCalls, 0)
  await at.close()
})

test('a chat of two turns in a session never prefills its first turn again', async () => {
  const at = await house(TOOLS)
  const messages: Message[] = [{ role: 'user', content: 'hello '.repeat(100) }]
  const first = await follow(at.driver.submit(submission(messages, { session: 's' })))
  messages.push({ role: 'assistant', content: first.text }, { role: 'user', content: 'and now' })
  const second = await follow(at.driver.submit(submission(messages, { session: 's' })))
  assert.notEqual(second.first?.program, first.first?.program, 'a turn is a program')
  assert.ok(second.last.kind === 'done' && first.last.kind === 'done' && second.last.cachedTokens >= first.last.promptTokens, 'the first turn was kept')
  await at.close()
})

test('after a kill, the next reign has programs, service and epochs as they were, and a retry goes on with its call', async () => {
  const text = 'one two three four five six seven eight nine ten'
  const script = { items: [{ match: 'go', toolCalls: [{ name: 'search', arguments: {} }] }, { match: '.', text }], tokensPerSecond: 20 }
  const before = await house(script)
  await follow(before.driver.submit(submission([{ role: 'user', content: 'go' }], { program: 'waits' })))
  void follow(before.driver.submit(submission([{ role: 'user', content: 'talk' }], { program: 'runs' }, { digest: 'kept' }))).catch(() => null)
  await until(() => [...before.driver.core.calls.values()].some((call) => call.stage.kind === 'running' && call.outputTokens > 3))
  await new Promise((resolve) => setTimeout(resolve, 150))
  const served = before.driver.core.programs.get('local/waits' as never)?.ledger
  before.kill()

  const after = await house(script, {}, before.disk)
  assert.ok(after.driver.core.reign > before.driver.core.reign)
  assert.deepEqual(after.driver.core.programs.get('local/waits' as never)?.ledger, served)
  assert.equal([...after.driver.core.calls.values()].find((call) => call.digest === 'kept')?.stage.kind, 'detached')
  const answer = await follow(after.driver.submit(submission([{ role: 'user', content: 'talk' }], { program: 'runs' }, { digest: 'kept' })))
  assert.equal(answer.text, text)
  assert.equal(after.driver.core.programs.get('local/runs' as never)?.calls.length, 1, 'a retry is a new attempt, never a new call')
  await after.close()
  assert.deepEqual([...before.fatal, ...after.fatal], [])
})

test('when the store fails and may be passed, calls go on without it; where not, they are refused by name', async () => {
  for (const storeFailure of ['pass', 'refuse'] as const) {
    const at = await house(TOOLS, {}, new FailingDisk(12), storeFailure)
    const answers = []
    for (let count = 0; count < 6; count += 1) answers.push((await follow(at.driver.submit(submission([{ role: 'user', content: 'hello' }])))).last)
    const kinds = answers.map((last) => last.kind === 'done' ? 'done' : 'code' in last ? last.code : last.kind)
    if (storeFailure === 'pass') assert.deepEqual(kinds, new Array(6).fill('done'))
    else assert.equal(kinds.at(-1), 'store_failed')
    await at.close()
    assert.deepEqual(at.fatal, [])
  }
})

/** A disk that is full after so many commits. */
class FailingDisk extends MemoryDisk {
  #left: number
  constructor(commits: number) {
    super()
    this.#left = commits
  }

  override commit(batch: Parameters<MemoryDisk['commit']>[0]): void {
    this.#left -= 1
    if (this.#left < 0) throw new Error('no space left')
    super.commit(batch)
  }
}

test('in observe mode decisions are recorded as not performed, and nothing is moved for them', async () => {
  const at = await house(TOOLS, { mode: 'observe', residency: 'always-offload' })
  await follow(at.driver.submit(submission([{ role: 'user', content: 'go' }], { program: 'p' })))
  const facts = at.driver.facts(LOCAL, 'p', 100).map(({ fact }) => fact)
  const decided = facts.find((fact) => fact.kind === 'kv.decided')
  assert.ok(decided?.kind === 'kv.decided' && !decided.performed && decided.choice === 'offload')
  assert.equal(facts.some((fact) => fact.kind === 'kv.offload.begun'), false)
  await at.close()
})

test('where more inputs wait than the inbox holds, a call and every act are refused by name, and taken again when they were looked at', async () => {
  const at = await house(TOOLS)
  const { driver } = at
  const acts = [
    () => driver.declare({ tenant: LOCAL, program: 'p', session: null, agent: 'a', priorityClass: 'default', deadlineUs: null, parent: null, steps: null }),
    () => driver.finish(LOCAL, 'p'), () => driver.cancel(LOCAL, 'p'), () => driver.cancelThread(LOCAL, 'p', 'main'), () => driver.cancelCall(LOCAL, 'p', 'c'),
    () => driver.report(LOCAL, 'p', { epoch: null, parent: null, forks: [], nodes: [], outcomes: [] }), () => driver.commitEffect(LOCAL, 'p', 'tool', null),
  ]
  for (let count = 0; count < 10_000; count += 1) driver.post({ kind: 'due', timer: 'nobody' })
  const refused = acts.map((act) => act())
  const call = follow(driver.submit(submission([{ role: 'user', content: 'hello' }])))
  for (const reply of await Promise.all(refused)) assert.deepEqual(reply, { ok: false, code: 'queue_full', why: '10000 inputs wait to be looked at' })
  const { last } = await call
  assert.deepEqual(last.kind === 'refused' && last.code, 'queue_full')
  await until(() => driver.core.nowUs > 0)
  for (;;) {
    const reply = await acts[0]?.()
    if (reply?.ok === true) break
    await new Promise((resolve) => { setTimeout(resolve, 2) })
  }
  await at.close()
  assert.deepEqual(at.fatal, [])
})

test('each act is answered by what was decided of it, though what it asks for happened by another', async () => {
  const at = await house(TOOLS)
  const { driver } = at
  await follow(driver.submit(submission([{ role: 'user', content: 'hello' }], { program: 'p' })))
  const node = { node: 'n', kind: 'CODE', thread: 'x', parents: [], join: null, serviceUs: null } as const
  const report = { epoch: null, parent: null, forks: [{ thread: 'x', from: 'main' }], nodes: [node], outcomes: [] }
  assert.deepEqual(await driver.report(LOCAL, 'p', report), { ok: true, program: 'p' })
  const replies = await Promise.all([driver.cancelThread(LOCAL, 'p', 'x'), driver.cancelCall(LOCAL, 'p', 'n'), driver.cancelThread(LOCAL, 'p', 'nobody'), driver.finish(LOCAL, 'p')])
  assert.deepEqual(replies.map((reply) => (reply.ok ? 'done' : reply.code)), ['done', 'node_closed', 'unknown_thread', 'done'])
  await at.close()
  assert.deepEqual(at.fatal, [])
})
