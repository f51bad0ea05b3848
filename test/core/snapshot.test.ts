import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { apply } from '../../src/core/apply.ts'
import { CORE_DEFAULTS } from '../../src/core/config.ts'
import { lastOfDigest } from '../../src/core/digests.ts'
import { candidates } from '../../src/core/queue/queue.ts'
import { restoreSnapshot, SNAPSHOT_VERSION, takeSnapshot, type Snapshot } from '../../src/core/snapshot.ts'
import type { CoreState } from '../../src/core/state.ts'
import { checkInvariants } from '../../src/core/invariants.ts'
import { nothingSeen } from '../../src/core/invariants/law.ts'
import { packageRoot } from '../package-root.ts'
import { stateText } from './state-text.ts'
import { LANES, World } from './world.ts'

function lived(seed: number): World {
  const world = new World(seed, { config: { order: 'plas' }, engines: [LANES, LANES], faults: 0.4 })
  world.agents(10)
  for (let second = 2; second < 30; second += 1) {
    world.run(second * 1_000_000)
    world.disturb()
  }
  return world
}

test('a snapshot taken anywhere, with the facts after it, gives the state that all facts give, and leads the same life', () => {
  const world = lived(11)
  const live = world.replay([])
  let taken = 0
  for (const [index, logged] of world.log.entries()) {
    apply(live, logged)
    if (index % 41 !== 0) continue
    taken += 1
    const restored = restoreSnapshot(world.config, takeSnapshot(live))
    assert.deepEqual(restored, live)
    for (const later of world.log.slice(index + 1)) apply(restored, later)
    assert.deepEqual(restored, world.core)
    checkInvariants(restored, nothingSeen())
  }
  assert.ok(taken > 10, `${taken} snapshots of ${world.log.length} facts`)
})

test('the order in which collections are walked outlives a snapshot: it decides ties', () => {
  const { core, config } = lived(12)
  const restored = restoreSnapshot(config, takeSnapshot(core))
  for (const [field, value] of Object.entries(core)) {
    if (value instanceof Map) assert.deepEqual([...value.keys()], [...(restored[field as keyof CoreState] as Map<unknown, unknown>).keys()], field)
  }
})

test('plain data of any shape comes back: collections in collections, in lists, in records, and empty ones', () => {
  const { core, config } = lived(13)
  const made = {
    ...core,
    heaps: { default: [{ key: 1, members: new Set(['a', 'b']) }], batch: [] },
    nested: new Map<string, unknown>([['x', new Map([['y', new Set([1, 2])], ['z', new Set<number>()]])], ['w', [new Map([[1, { deep: new Map([['k', null]]) }]])]]]),
    many: new Map(Array.from({ length: 5_000 }, (_, index) => [`k${index}`, new Set([index])])),
    nothing: new Map(), bare: new Set(['s', new Map([['in', 'set']])]),
  }
  assert.deepEqual(restoreSnapshot(config, takeSnapshot(made)), made)
})

test('a snapshot holds what was true when it was taken, whatever comes after', () => {
  const world = lived(14)
  const before = stateText(world.core)
  const snapshot = takeSnapshot(world.core)
  world.run(world.nowUs + 20_000_000)
  assert.notEqual(stateText(world.core), before)
  assert.equal(stateText(restoreSnapshot(world.config, snapshot)), before)
})

test('the host tier is as large as the configuration of today says, not that of the snapshot', () => {
  const { core, config } = lived(15)
  assert.equal(restoreSnapshot({ ...config, hostBytesMax: 5 }, takeSnapshot(core)).host.totalBytes, 5)
})

test('a snapshot of a version that a newer release wrote is refused, not guessed', () => {
  const { core, config } = lived(16)
  assert.throws(() => restoreSnapshot(config, { ...takeSnapshot(core), version: SNAPSHOT_VERSION + 1 }), /version/)
})

test('a snapshot that an older release wrote is lifted: its queues and its retries are as they were', () => {
  const kept = JSON.parse(readFileSync(new URL('test/golden/snapshot-v1.json', packageRoot()), 'utf8')) as Snapshot
  assert.equal(kept.version, 1)
  const core = restoreSnapshot(CORE_DEFAULTS, kept)
  checkInvariants(core, nothingSeen())
  const ready = [...core.calls.values()].filter(({ stage }) => stage.kind === 'ready')
  assert.ok(ready.length > 5)
  for (const [, queue] of core.queues) assert.deepEqual(new Set(candidates(queue)), new Set(ready.map(({ id }) => id)))
  for (const { id, digest } of core.calls.values()) assert.equal(lastOfDigest(core, digest)?.id, id)
  assert.deepEqual(stateText(restoreSnapshot(CORE_DEFAULTS, takeSnapshot(core))), stateText(core))
})
