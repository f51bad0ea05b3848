import assert from 'node:assert/strict'
import { test } from 'node:test'
import { engineId } from '../../src/core/ids.ts'
import { REPORT } from '../core/quiet.ts'
import { byHand } from './by-hand.ts'
import { submission } from './house.ts'

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
