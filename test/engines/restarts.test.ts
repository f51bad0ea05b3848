import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Restarts } from '../../src/engines/restarts.ts'

const LIMITS = { pauseMs: 10, pauseMsMax: 100, steadyMs: 1_000, loopAfter: 3 }

test('the pause doubles with each life that ends early, up to its longest, and from the third on it is a crash loop', () => {
  const restarts = new Restarts(LIMITS)
  const seen = Array.from({ length: 6 }, (_, life) => {
    restarts.joined(life * 1_000)
    return [restarts.lost(life * 1_000 + 999), restarts.isLoop] as const
  })
  assert.deepEqual(seen, [[10, false], [20, false], [40, true], [80, true], [100, true], [100, true]])
})

test('a life that lasted begins the count anew; one that never joined did not last', () => {
  const restarts = new Restarts(LIMITS)
  for (let life = 0; life < 4; life++) restarts.lost(life * 5_000)
  assert.equal(restarts.isLoop, true)
  restarts.joined(20_000)
  assert.equal(restarts.isLoop, true, 'to join is not to last')
  assert.equal(restarts.lost(21_000), 10)
  assert.equal(restarts.isLoop, false)
})
