import assert from 'node:assert/strict'
import { test } from 'node:test'
import { engineId } from '../../src/core/ids.ts'
import { REPORT } from '../core/quiet.ts'
import { byHand } from './by-hand.ts'
import { LOCAL, submission } from './house.ts'

test('a barrier fact is neither performed nor shown before it is durable; what follows it waits behind it', async () => {
  const at = await byHand()
  at.shown.length = 0
  at.driver.submit(submission([{ role: 'user', content: 'hello' }], { program: 'p' }))
  await at.turn()
  assert.equal(at.driver.core.calls.size, 1, 'it is decided')
  assert.equal(at.shown.length, 0)
  at.sink().input({ kind: 'progress', engine: engineId('e0'), reign: 1, speeds: null, calls: [] })
  await at.turn()
  assert.equal(at.shown.length, 0)
  await at.flush()
  assert.ok(at.shown.includes('call.arrived'))
  await at.flush()
  assert.equal(at.commands.filter(({ kind }) => kind === 'start').length, 1)
})

test('a commit is shown when it is durable; what only flow facts tell is performed at once', async () => {
  const at = await byHand()
  at.driver.submit(submission([{ role: 'user', content: 'hello' }], { program: 'p' }))
  await at.turn()
  await at.flush()
  assert.ok(at.shown.includes('call.scheduled'), 'measuring and starting are flow facts')
  const [call] = [...at.driver.core.calls.values()]
  at.shown.length = 0
  at.sink().input({
    kind: 'finished', engine: engineId('e0'), reign: 1, call: call?.id as never, attempt: 1, run: 0, epoch: 1, finish: 'stop', report: REPORT,
    parts: { waitUs: 0, recomputeUs: 0, prefillUs: 1, decodeUs: 1 }, spans: [{ tokens: 60, origin: 'prefilled', digest: 'a' }], toolCalls: [], toolEffect: 'read', resume: 'none',
  })
  await at.turn()
  assert.equal(call?.stage.kind, 'committed')
  assert.equal(at.shown.length, 0)
  await at.flush()
  assert.ok(at.shown.includes('call.completed'))
  assert.deepEqual(at.fatal, [])
})

test('draining is answered when its fact is durable, and so is its end; an engine that is not there is refused', async () => {
  const at = await byHand()
  const answers: unknown[] = []
  const order = async (reply: Promise<unknown>): Promise<void> => { answers.push(await reply) }
  for (const one of [() => at.driver.drain('e0', 1_000_000), () => at.driver.undrain('e0')]) {
    void order(one())
    await at.turn()
    assert.deepEqual(answers, [])
    await at.flush()
    assert.deepEqual(answers.splice(0), [{ ok: true }])
  }
  void order(at.driver.undrain('e0'))
  void order(at.driver.drain('e9', 0))
  await at.turn()
  assert.deepEqual(answers, [{ ok: false, code: 'unknown_engine', why: '"e9"' }, { ok: true }])
  await at.driver.stop()
  assert.equal((await at.driver.drain('e0', 0)).ok, false)
})

test('what a call showed goes with its program, though that was forgotten before its end was durable', async () => {
  const at = await byHand({ programsMax: 1 })
  const serve = async (claims: Parameters<typeof submission>[1], ends: { finish: 'stop' | 'tool_calls'; toolCalls: { id: string; name: string }[] }): Promise<void> => {
    at.driver.submit(submission([{ role: 'user', content: JSON.stringify(claims) }], { program: 'p', ...claims }))
    await at.turn()
    await at.flush()
    const call = [...at.driver.core.calls.values()].at(-1)
    at.sink().outcome(call?.id as never, 1, { record: null, promptTokens: 60, outputTokens: 10, cachedTokens: 0 })
    at.sink().input({
      kind: 'finished', engine: engineId('e0'), reign: 1, call: call?.id as never, attempt: 1, run: 0, epoch: 1, report: REPORT,
      parts: { waitUs: 0, recomputeUs: 0, prefillUs: 1, decodeUs: 1 }, spans: [{ tokens: 60, origin: 'prefilled', digest: 'a' }], toolEffect: 'irreversible', resume: 'none', ...ends,
    })
    await at.turn()
    await at.flush()
  }
  await serve({}, { finish: 'tool_calls', toolCalls: [{ id: 't', name: 'pay' }] })
  await serve({ toolResults: ['t'] }, { finish: 'stop', toolCalls: [] })
  const results = (): string[] => [...at.bodies.keys()].filter((id) => id.startsWith('result:'))
  assert.equal(results().length, 1, 'a retry of what was paid is shown it again')
  void at.driver.finish(LOCAL, 'p')
  await at.turn()
  at.driver.submit(submission([{ role: 'user', content: 'hello' }], { program: 'q' }))
  await at.turn()
  assert.deepEqual([...at.driver.core.programs.values()].map(({ id }) => String(id).split('/')[1]), ['q'])
  await at.flush()
  assert.deepEqual(results(), [])
  assert.deepEqual(at.fatal, [])
})
