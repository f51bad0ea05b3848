import assert from 'node:assert/strict'
import { test } from 'node:test'
import { tenantId } from '../../src/core/ids.ts'
import { replayDump, type Dump } from '../../src/driver/black-box.ts'
import { byHand, type ByHand } from './by-hand.ts'
import { submission } from './house.ts'

const NONSENSE = { kind: 'nobody says this' } as never

async function lived(calls: number): Promise<ByHand> {
  const at = await byHand()
  for (let count = 0; count < calls; count += 1) {
    at.driver.submit(submission([{ role: 'user', content: 'hello' }], { program: `p${count}` }))
    await at.turn()
    await at.flush()
  }
  return at
}

test('a bug stops the driver and leaves a dump, and its replay breaks at the same input, for the same reason', async () => {
  const at = await lived(5)
  at.driver.post(NONSENSE)
  await at.turn()
  assert.equal(at.fatal.length, 1)
  const [dump] = at.dumps.map((told) => JSON.parse(JSON.stringify(told)) as Dump)
  assert.ok(dump !== undefined && dump.inputs.length > 10)
  assert.deepEqual(replayDump(dump), { law: 0, why: dump.why, input: dump.inputs.length })
  assert.equal(replayDump({ ...dump, inputs: dump.inputs.slice(0, -1) }), null)
  assert.equal(JSON.stringify(dump).includes('hello'), false)
})

test('a breach of a law is told by its number; where it came from no input, the dump says that the inputs break nothing', async () => {
  const at = await lived(2)
  at.driver.core.openCalls += 1
  at.driver.submit(submission([{ role: 'user', content: 'hello' }], { program: 'q' }))
  await at.turn()
  assert.equal(at.dumps[0]?.law, 14)
  assert.equal(replayDump(at.dumps[0] as Dump), null)
  at.driver.submit(submission([{ role: 'user', content: 'hello' }], { program: 'r' }))
  await at.turn()
  assert.equal(at.fatal.length, 1, 'nothing is decided any more')
})

async function busy(at: ByHand): Promise<Dump> {
  for (let count = 0; count < 9_000; count += 1) at.driver.post({ kind: 'due', timer: 'none' })
  at.driver.post(NONSENSE)
  await at.turn()
  const [dump] = at.dumps
  assert.ok(dump !== undefined)
  return dump
}

test('of many inputs the last are told, from the state before them', async () => {
  const at = await lived(1)
  await at.flush()
  const dump = await busy(at)
  assert.ok(dump.inputs.length > 4_000 && dump.inputs.length < 9_000, `${dump.inputs.length}`)
  assert.equal(replayDump(dump)?.input, dump.inputs.length)
})

test('where the state before the last inputs cannot be had, the dump holds the state as it broke, and no inputs', async () => {
  const at = await lived(1)
  const dump = await busy(at)
  assert.deepEqual([dump.inputs.length, dump.snapshot?.seq], [0, at.driver.core.seq])
  assert.equal(replayDump(dump), null)
})

test('large reports of graphs are kept by what they name, so that few of them are', async () => {
  const at = await lived(1)
  await at.flush()
  const tenant = tenantId('t')
  const nodes = Array.from({ length: 1_000 }, (_, count) => ({ node: `n${count}`, kind: 'TOOL' as const, thread: null, parents: [], join: null, serviceUs: null }))
  for (let count = 0; count < 50; count += 1) {
    at.driver.post({ kind: 'reportGraph', tenant, program: 'p', epoch: null, parent: null, forks: [], nodes, outcomes: [] })
    await at.turn()
  }
  await at.flush()
  at.driver.post(NONSENSE)
  await at.turn()
  const inputs = at.dumps[0]?.inputs.length ?? 0
  assert.ok(inputs > 1 && inputs <= 10, `${inputs}`)
})
