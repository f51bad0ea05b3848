import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { moveTogether } from '../../src/engine/density.ts'

const LANES = 12
type Use = 'free' | 'runs' | 'parked'
const anyLanes = fc.array(fc.constantFrom<Use>('free', 'runs', 'parked'), { minLength: LANES, maxLength: LANES })

const running = (lanes: readonly Use[]): number[] => lanes.flatMap((use, lane) => (use === 'runs' ? [lane] : []))

function nextMove(lanes: readonly Use[]): ReturnType<typeof moveTogether> {
  return moveTogether(running(lanes), (lane) => lanes[lane] === 'free')
}

/** Sum of the squares of the lengths of runs. */
function togetherness(lanes: readonly Use[]): number {
  const runs = lanes.map((use) => (use === 'runs' ? 'r' : ' ')).join('').split(' ')
  return runs.reduce((sum, { length }) => sum + length ** 2, 0)
}

function moved(lanes: readonly Use[], { from, to }: { readonly from: number; readonly to: number }): Use[] {
  assert.equal(lanes[from], 'runs', 'only who runs is moved')
  assert.equal(lanes[to], 'free', 'only into a free lane')
  const after = [...lanes]
  after[from] = 'free'
  after[to] = 'runs'
  return after
}

test('every move brings the running lanes nearer together, into free lanes, and moves come to an end', () => {
  fc.assert(fc.property(anyLanes, (drawn) => {
    let lanes: Use[] = drawn
    for (let count = 0; count <= LANES; count++) {
      const move = nextMove(lanes)
      if (move === null) return
      const after = moved(lanes, move)
      assert.ok(togetherness(after) > togetherness(lanes), `${lanes.join(' ')}: ${move.from} to ${move.to}`)
      lanes = after
    }
    assert.fail(`after ${LANES} moves there is another: ${drawn.join(' ')}`)
  }))
})

test('where nobody is parked, all who run end up in one row', () => {
  fc.assert(fc.property(anyLanes, (drawn) => {
    let lanes: Use[] = drawn.map((use) => (use === 'parked' ? 'free' : use))
    for (let move = nextMove(lanes); move !== null; move = nextMove(lanes)) lanes = moved(lanes, move)
    assert.equal(togetherness(lanes), running(lanes).length ** 2)
  }))
})

test('a gap of one is closed by the end of the smaller run', () => {
  assert.deepEqual(moveTogether([0, 1, 3], (lane) => lane === 2), { from: 3, to: 2 })
  assert.equal(moveTogether([0, 1, 3], () => false), null)
  assert.equal(moveTogether([0, 1, 2], () => true), null)
})
