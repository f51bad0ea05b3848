import assert from 'node:assert/strict'
import { test } from 'node:test'
import { engineId, stateId, type EngineId, type StateId } from '../../src/core/ids.ts'
import { pack, secondsOf, type Parcel, type Room } from '../../src/core/policy/placement/pack.ts'
import { random } from './world.ts'

const ENGINES = [engineId('e0'), engineId('e1')]

function parcel(name: string, seq: number, to: Record<string, readonly [number, number]>, leftUs: number): Parcel {
  return { state: stateId(name), seq, leftUs, to: new Map(Object.entries(to).map(([engine, [granules, costUs]]) => [engineId(engine), { granules, costUs }])) }
}
const rooms = (...granules: readonly number[]): Map<EngineId, Room> =>
  new Map(granules.map((one, index) => [engineId(`e${index}`), { granules: one, places: 9 }]))

/** The least sum there is, every packing tried. */
function leastSum(parcels: readonly Parcel[], from: ReadonlyMap<EngineId, Room>): number {
  const left = new Map([...from].map(([engine, room]) => [engine, { ...room }]))
  const rest = (index: number): number => {
    const one = parcels[index]
    if (one === undefined) return 0
    let best = one.leftUs + rest(index + 1)
    for (const [engine, { granules, costUs }] of one.to) {
      const room = left.get(engine)
      if (room === undefined || room.granules < granules || room.places < 1) continue
      room.granules -= granules
      room.places -= 1
      best = Math.min(best, costUs + rest(index + 1))
      room.granules += granules
      room.places += 1
    }
    return best
  }
  return rest(0)
}

function randomBatch(chance: () => number, count: number): { parcels: Parcel[]; from: Map<EngineId, Room> } {
  const upTo = (most: number): number => 1 + Math.floor(chance() * most)
  const parcels = Array.from({ length: count }, (_, index) => {
    const granules = upTo(8)
    return parcel(`s${index}`, index, { e0: [granules, upTo(1_000)], e1: [granules, upTo(1_000)] }, 500 + upTo(2_000))
  })
  return { parcels, from: new Map(ENGINES.map((engine) => [engine, { granules: upTo(16), places: upTo(4) }])) }
}

test('no engine gets more than it has room or places for, and nobody is sent where it costs more than to stay', () => {
  const chance = random(1)
  for (let round = 0; round < 2_000; round += 1) {
    const { parcels, from } = randomBatch(chance, 1 + Math.floor(chance() * 9))
    const packed = pack(parcels, from)
    for (const [engine, room] of from) {
      const there = parcels.filter(({ state }) => packed.get(state) === engine)
      assert.ok(there.reduce((sum, { to }) => sum + (to.get(engine)?.granules ?? 0), 0) <= room.granules)
      assert.ok(there.length <= room.places)
      for (const one of there) assert.ok((one.to.get(engine)?.costUs ?? 0) <= one.leftUs)
    }
  }
})

test('on tiny batches the sum of predicted seconds is within twice the least there is, and mostly is the least', () => {
  const chance = random(2)
  let worst = 1
  let least = 0
  for (let round = 0; round < 4_000; round += 1) {
    const { parcels, from } = randomBatch(chance, 4)
    const ratio = secondsOf(parcels, pack(parcels, from)) / leastSum(parcels, from)
    if (ratio === 1) least += 1
    worst = Math.max(worst, ratio)
  }
  assert.ok(worst <= 2, `${worst}`)
  assert.ok(least >= 3_880, `${least} of 4000`)
})

test('large States go first, small ones fill what they leave', () => {
  const parcels = [parcel('small', 1, { e0: [1, 10] }, 1_000), parcel('large', 2, { e0: [4, 10] }, 1_000), parcel('middle', 3, { e0: [3, 10] }, 1_000)]
  assert.deepEqual([...pack(parcels, rooms(5))].map(([state]) => state).sort(), ['large', 'small'])
})

test('of engines that cost alike the tightest is taken, so that a large State that comes later finds room', () => {
  const packed = pack([parcel('a', 1, { e0: [2, 10], e1: [2, 10] }, 100)], rooms(8, 2))
  assert.equal(packed.get(stateId('a')), 'e1')
})

test('one that is better off where it is stays, and takes no room', () => {
  assert.equal(pack([parcel('a', 1, { e0: [1, 200] }, 100)], rooms(8)).size, 0)
})

test('the same batch in another order is packed the same', () => {
  const chance = random(3)
  const text = (packed: Map<StateId, EngineId>): string => JSON.stringify([...packed].sort())
  for (let round = 0; round < 300; round += 1) {
    const { parcels, from } = randomBatch(chance, 2)
    assert.equal(text(pack(parcels, from)), text(pack([...parcels].reverse(), from)))
  }
})
