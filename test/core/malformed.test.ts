import assert from 'node:assert/strict'
import { test } from 'node:test'
import { tenantId } from '../../src/core/ids.ts'
import { E0, kinds, only, Quiet, REPORT } from './quiet.ts'
import { LANES, SPEEDS } from './world.ts'

test('a call whose numbers are no amounts is refused by their name, and nothing is kept of it', () => {
  const at = new Quiet(1)
  at.submit({ maxTokens: NaN })
  at.submit({ promptTokensEstimate: -1 })
  at.submit({ seed: 0.5 })
  assert.deepEqual(only(at.log, 'call.refused').map(({ code, why }) => [code, why]), [
    ['invalid_request', 'maxTokens is NaN'], ['invalid_request', 'promptTokensEstimate is -1'], ['invalid_request', 'seed is 0.5'],
  ])
  assert.equal(at.core.programs.size, 0)
})

test('a deadline may lie in the past', () => {
  const at = new Quiet(1)
  at.submit({ deadlineUs: -5 })
  assert.equal(only(at.log, 'call.arrived').length, 1)
})

test('a report that makes no sense is a failed attempt: the call is tried again, and was charged nothing of it', () => {
  const at = new Quiet(1)
  const call = at.named('p')
  at.measure(call)
  const facts = at.end(call, { report: { ...REPORT, tailDecoded: Infinity } })
  assert.match(only(facts, 'call.retried')[0]?.why ?? '', /makes no sense: tailDecoded is Infinity/)
  assert.equal(at.core.calls.get(call)?.ledger.retried.workUs, 0)
  const again = at.end(call, { spans: [{ tokens: 0, origin: 'prefilled', digest: '' }] })
  assert.match(only(again, 'call.retried')[0]?.why ?? '', /a span has no tokens/)
})

test('a measurement that makes no sense fails the call, and a copy that does drops its reservation', () => {
  const at = new Quiet(1, { config: { residency: 'always-offload' } })
  at.waiting('p')
  const move = [...at.core.moves.keys()][0] as never
  const failed = at.feed({ kind: 'moveDone', engine: E0, reign: 1, move, bytes: -7, digest: 'x', copyUs: 1 })
  assert.match(only(failed, 'kv.move.failed')[0]?.why ?? '', /bytes is -7/)
  assert.equal(at.core.host.reservedBytes, 0)
  const call = at.named('q')
  assert.equal(only(at.measure(call, 1.5), 'call.failed')[0]?.code, 'internal')
})

test('a call id that exists is not taken a second time', () => {
  const at = new Quiet(1)
  const call = at.named('p')
  at.submit({ call, tenant: tenantId('u') })
  assert.deepEqual(only(at.log, 'result.ignored').map(({ why }) => why), ['a call of this id exists'])
  assert.equal(at.core.openCalls, 1)
})

test('an engine that joins anew has lost what it had: its calls are tried again', () => {
  const at = new Quiet(1)
  at.waiting('waits')
  const call = at.named('runs')
  at.measure(call)
  const facts = at.feed({ kind: 'engineJoined', engine: E0, reign: 1, capabilities: LANES, speeds: SPEEDS })
  assert.ok(kinds(facts).includes('kv.discarded'))
  assert.equal(at.core.calls.get(call)?.attempt, 2)
})

test('an engine of which it became known how exact it is keeps what runs and lies on it', () => {
  const unknown = { ...LANES, inventory: false, exact: { answer: 'unknown', because: 'the probe runs' } } as const
  const at = new Quiet(1, { engines: [unknown] })
  at.waiting('waits')
  const call = at.named('runs')
  at.measure(call)
  const held = at.core.engines.get(E0)?.ownedGranules
  const facts = at.feed({ kind: 'engineJoined', engine: E0, reign: 1, capabilities: { ...unknown, exact: { answer: 'yes', because: 'probed' } }, speeds: SPEEDS })
  assert.deepEqual(kinds(facts).filter((kind) => kind === 'engine.lost' || kind === 'kv.discarded' || kind === 'call.retried'), [])
  assert.equal(at.core.calls.get(call)?.attempt, 1)
  assert.equal(at.core.engines.get(E0)?.ownedGranules, held)
  assert.equal(at.core.engines.get(E0)?.capabilities.exact.answer, 'yes')
  assert.equal(only(at.end(call), 'call.completed').length, 1, 'what ran there ends as if nothing had been')
})

test('who fits nowhere since an engine came back smaller is told, and keeps nobody else waiting', () => {
  const at = new Quiet(1, { engines: [{ ...LANES, runningMax: 1 }] })
  const [first, large, small] = [at.named('a'), at.named('b'), at.named('c')]
  at.measure(first)
  at.measure(large, 900)
  at.measure(small, 20)
  at.feed({ kind: 'engineLost', engine: E0, reign: 1, why: 'killed' })
  at.feed({ kind: 'engineJoined', engine: E0, reign: 1, capabilities: { ...LANES, memory: { cells: 256, granule: 16, sequences: 4 } }, speeds: SPEEDS })
  assert.equal(at.core.calls.get(large)?.stage.kind, 'failed')
  assert.equal(at.core.calls.get(small)?.stage.kind, 'running')
})
