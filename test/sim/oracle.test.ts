/** The oracle that knows what a call must say. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { callId } from '../../src/core/ids.ts'
import { Texts } from '../../src/sim/content.ts'
import { Oracle } from '../../src/sim/measure.ts'

const CALL = callId('c')

test('a call that was fed again plainly has its own words, also when it is measured again', () => {
  const oracle = new Oracle(new Texts(), true)
  oracle.measured(CALL, 1, [], [])
  assert.match(oracle.wrong(CALL, 0, -1) ?? '', /undisturbed it would say/)
  oracle.plain(CALL)
  oracle.measured(CALL, 1, [], [])
  assert.equal(oracle.wrong(CALL, 0, -1), null)
})
