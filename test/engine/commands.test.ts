import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readRequest } from '../../src/engine/commands.ts'

const start = {
  kind: 'start', reign: 1, call: 'c', attempt: 1, epoch: 0, state: 's', body: '{}', baseTokens: 0, keepTokens: 0,
  recomputeTokens: 0, replay: 'exact', forced: [1, 2], seed: 5, maxTokens: 8, rank: 0, tenant: 't', grantGranules: 1,
}
const part = new Uint8Array(1)

test('a well-formed command is read', () => {
  assert.deepEqual(readRequest(start, [part]), { ok: true, request: start })
  assert.equal(readRequest({ kind: 'ping', reign: 0 }, []).ok, true)
})

test('a field that is missing or wrong is named', () => {
  const wrong: readonly [string, unknown][] = [
    ['call', ''], ['attempt', -1], ['attempt', 1.5], ['forced', 'x'], ['forced', [1, -2]], ['seed', 2 ** 32],
    ['maxTokens', 0], ['replay', 'sometimes'], ['reign', '1'], ['rank', null], ['state', 'x'.repeat(1_000)],
  ]
  for (const [name, value] of wrong) {
    const read = readRequest({ ...start, [name]: value }, [part])
    assert.equal(read.ok, false, `${name} ${String(value)}`)
    if (!read.ok) assert.match(read.why, new RegExp(name))
    const { [name as 'call']: _, ...without } = start
    assert.equal(readRequest(without, [part]).ok, false)
  }
})

test('what is no command at all is refused, whatever it is', () => {
  for (const message of [null, 1, 'ping', [], {}, { kind: 'toString', reign: 1 }, { kind: 'fly', reign: 1 }, { kind: 7 }]) {
    assert.equal(readRequest(message, []).ok, false)
  }
})

test('a path may not hide its end', () => {
  const move = {
    kind: 'onboard', reign: 1, move: 'm', state: 's', path: '/a\0b', digest: 'd',
    identity: { tenant: 't', state: 's', owner: 'o', epoch: 0, reign: 1 },
  }
  assert.equal(readRequest(move, []).ok, false)
  assert.equal(readRequest({ ...move, path: '/a' }, []).ok, true)
  assert.equal(readRequest({ ...move, path: '/a', identity: { ...move.identity, epoch: 'x' } }, []).ok, false)
})

test('the binary parts must be as many as the command has', () => {
  assert.equal(readRequest(start, []).ok, false)
  const measure = { kind: 'measure', reign: 1, call: 'c', body: '{}', records: ['a', 'b'] }
  assert.equal(readRequest(measure, [part]).ok, false)
  assert.equal(readRequest(measure, [part, part]).ok, true)
})
