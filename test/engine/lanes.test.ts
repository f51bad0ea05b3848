import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Lanes } from '../../src/engine/lanes.ts'

test('free and owned lanes always sum to the total', () => {
  const lanes = new Lanes(3)
  const a = lanes.take('a')
  lanes.take('b')
  lanes.check()
  assert.equal(lanes.free, 1)
  lanes.release(a)
  lanes.check()
  assert.equal(lanes.free, 2)
})

test('the lowest free lane is given out, so that running lanes are neighbours', () => {
  const lanes = new Lanes(4)
  const taken = ['a', 'b', 'c'].map((state) => lanes.take(state))
  assert.deepEqual(taken.map((lane) => lane.index), [0, 1, 2])
  lanes.release(taken[1]!)
  lanes.release(taken[0]!)
  assert.equal(lanes.take('d').index, 0)
  assert.equal(lanes.take('e').index, 1)
})

test('a State has one lane', () => {
  const lanes = new Lanes(2)
  lanes.take('a')
  assert.equal(lanes.canTake('a'), false)
  assert.throws(() => lanes.take('a'), /no lane can be given to a/)
  assert.equal(lanes.canTake('b'), true)
  lanes.take('b')
  assert.equal(lanes.canTake('c'), false)
})

test('a lane given back twice is a bug and is said', () => {
  const lanes = new Lanes(2)
  const lane = lanes.take('a')
  lanes.release(lane)
  assert.throws(() => lanes.release(lane), /not owned/)
})
