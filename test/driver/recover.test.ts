import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CORE_DEFAULTS } from '../../src/core/config.ts'
import { FACT_VERSION, type Logged } from '../../src/core/fact.ts'
import { bodyId } from '../../src/core/ids.ts'
import { restoreSnapshot } from '../../src/core/snapshot.ts'
import type { FactLog } from '../../src/driver/ports.ts'
import { nextSnapshot, recover } from '../../src/driver/recover.ts'
import { MemoryDisk, memoryStore } from '../../src/store/memory.ts'
import { World } from '../core/world.ts'
import { flipped } from '../store/contract.ts'
import { follow, house, LOCAL, submission, until, type Message } from './house.ts'

/** A disk with the log of a random life, and snapshots after some of its facts. */
async function kept(snapshotsAfter: readonly number[], logRetentionUs = Number.MAX_SAFE_INTEGER) {
  const world = new World(21, { config: CORE_DEFAULTS, faults: 0.4 })
  world.agents(6)
  world.run(20_000_000)
  const disk = new MemoryDisk()
  const losses: string[] = []
  const open = () => memoryStore({ disk, logRetentionUs, nextSnapshot, onLoss: ({ kind, id, why }) => losses.push(`${kind} ${id}: ${why}`) })
  const store = open()
  let from = 0
  for (const count of [...snapshotsAfter, world.log.length]) {
    store.log.append(world.log.slice(from, count), true, () => undefined)
    from = count
    if (count === world.log.length) break
    store.log.snapshot()
    await until(() => disk.snapshotFiles.seqs()[0] === count)
    await new Promise((resolve) => { setImmediate(resolve) })
  }
  await store.close()
  return { world, disk, open, losses }
}

test('recovery is the newest snapshot and the facts after it, and gives the state that the whole log gives', async () => {
  const { world, open } = await kept([100, 200, 300])
  const recovered = recover(CORE_DEFAULTS, open().log)
  assert.equal(recovered.snapshotSeq, 300)
  assert.deepEqual(recovered.core, world.core)
})

test('the next snapshot is that of the state that serves, though it is made from the one before and the log', async () => {
  const { world, open } = await kept([100])
  const { log } = open()
  const [base] = [...log.snapshots()]
  assert.ok(base)
  const next = nextSnapshot(base, log.read(base.seq))
  assert.equal(next.seq, world.core.seq)
  assert.deepEqual(restoreSnapshot(CORE_DEFAULTS, next), world.core)
  assert.deepEqual(nextSnapshot(null, world.log), next, 'also from the first fact')
  assert.throws(() => nextSnapshot(base, log.read(base.seq + 1)), /goes on with fact 102 where fact 101 must be/)
})

test('a damaged snapshot is told and passed over: the one before it serves, and where none is whole the log does', async () => {
  const { world, disk, open, losses } = await kept([100, 200, 300])
  await damage(disk, 300)
  const second = recover(CORE_DEFAULTS, open().log)
  assert.equal(second.snapshotSeq, 200)
  assert.deepEqual(second.core, world.core)
  assert.match(losses.join(), /snapshot 300: its bytes are not those that were written/)
  await damage(disk, 200)
  const third = recover(CORE_DEFAULTS, open().log)
  assert.equal(third.snapshotSeq, 0)
  assert.deepEqual(third.core, world.core)
  assert.equal(losses.length, 2)
})

test('facts that every kept snapshot holds and that are old enough go; what a snapshot needs never does', async () => {
  const { world, open } = await kept([100, 200, 300], 0)
  const store = open()
  assert.equal([...store.log.read()][0]?.seq, 201, 'the older of the two kept ends with fact 200')
  assert.deepEqual(recover(CORE_DEFAULTS, store.log).core, world.core)
})

test('a log with a hole and no snapshot that fills it is refused, not replayed', async () => {
  const { disk, open } = await kept([100, 200, 300], 0)
  await damage(disk, 300)
  await damage(disk, 200)
  assert.throws(() => recover(CORE_DEFAULTS, open().log), (thrown: Error & { next?: string }) => /goes on with fact 201 where fact 1 must be/.test(thrown.message) && /data directory/.test(thrown.next ?? ''))
})

test('a log that a newer release wrote is refused, not guessed at', () => {
  const newer: Logged = { seq: 1, atUs: 1, version: FACT_VERSION + 1, fact: { kind: 'timer.cleared', timer: 'x' } }
  const log: FactLog = { append: () => undefined, read: () => [newer], snapshots: () => [], snapshot: () => undefined, nextReign: () => 1 }
  assert.throws(() => recover(CORE_DEFAULTS, log), /version/)
})

const damage = (disk: MemoryDisk, seq: number): Promise<void> =>
  disk.snapshotFiles.write(seq, [flipped(disk.snapshotFiles.read(seq) ?? new Uint8Array())])

const TOOLS = { items: [{ match: 'go', toolCalls: [{ name: 'search', arguments: {} }] }, { match: '.', text: 'done now' }], tokensPerSecond: 2_000 }

test('a program that waited through a kill is explained from its first fact, also what lies before the snapshot', async () => {
  const before = await house(TOOLS)
  const messages: Message[] = [{ role: 'user', content: 'go' }]
  const first = await follow(before.driver.submit(submission(messages, { program: 'waits' })))
  const told = before.driver.facts(LOCAL, 'waits', 100).map(({ seq }) => seq)
  for (let count = 0; count < 8; count += 1) await follow(before.driver.submit(submission([{ role: 'user', content: 'hello' }])))
  assert.ok((before.disk.snapshotFiles.seqs()[0] ?? 0) > (told.at(-1) ?? 0), 'a snapshot came after it')
  before.kill()

  const after = await house(TOOLS, {}, before.disk)
  await until(() => after.driver.facts(LOCAL, 'waits', 100)[0]?.seq === told[0])
  assert.deepEqual(after.driver.facts(LOCAL, 'waits', 100).map(({ seq }) => seq).slice(0, told.length), told)
  const id = `call_${first.first?.call ?? ''}_0`
  messages.push({ role: 'assistant', content: '', toolCalls: [{ id, ...first.toolCalls[0] as { name: string; arguments: string } }] }, { role: 'tool', content: 'found', toolCallId: id })
  assert.equal((await follow(after.driver.submit(submission(messages, { program: 'waits' })))).text, 'done now')
  await after.close()
  assert.deepEqual([...before.fatal, ...after.fatal], [])
})

test('bodies that a kill kept from being dropped are gone after the next start, and those still needed are there', async () => {
  const before = await house({ ...TOOLS, items: [...TOOLS.items.slice(0, 1), { match: '.', text: 'word '.repeat(80) }], tokensPerSecond: 100 })
  await follow(before.driver.submit(submission([{ role: 'user', content: 'go' }], { program: 'waits' })))
  void follow(before.driver.submit(submission([{ role: 'user', content: 'talk' }], { program: 'runs' }))).catch(() => null)
  await until(() => [...before.driver.core.calls.values()].some((call) => call.outputTokens > 3))
  await new Promise((resolve) => setTimeout(resolve, 120))
  const kinds = (disk: MemoryDisk): string[] => disk.bodySizes().map(({ id }) => id.split(':')[0] ?? '').sort()
  const kept = kinds(before.disk)
  assert.deepEqual(kept, ['body', 'journal', 'prepared', 'record', 'result'])
  before.kill()
  const gone = bodyId('record:of-a-call-that-was-forgotten')
  before.disk.commit({ facts: [], images: new Map(), bodies: new Map([[gone, { tenant: LOCAL, bytes: new Uint8Array(3) }]]) })

  const after = await house(TOOLS, {}, before.disk)
  await after.close()
  assert.deepEqual(kinds(before.disk), kept)
})
