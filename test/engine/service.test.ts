import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Account, divide } from '../../src/engine/service.ts'
import { Speeds } from '../../src/engine/speeds.ts'

test('what is divided sums to the whole', () => {
  for (const total of [1, 7, 1_000, 12_345]) {
    const shares = divide(total, [3, 1, 1, 0.5, 2])
    assert.equal(shares.reduce((a, b) => a + b, 0), total)
    assert.ok(shares.every((share) => share >= 0))
  }
})

test('the parts of an attempt add up to its time in the engine', () => {
  const account = new Account(1_000)
  account.charge({ kind: 'prefill', residentUs: 300, workUs: 300, rows: 3, redoneRows: 1 })
  account.charge({ kind: 'decode', residentUs: 50, workUs: 20, rows: 1, redoneRows: 0 })
  account.charge({ kind: 'decode', residentUs: 70, workUs: 10, rows: 1, redoneRows: 1 })
  assert.deepEqual(account.parts(2_000), { waitUs: 580, recomputeUs: 170, prefillUs: 200, decodeUs: 50 })
  assert.deepEqual(account.service(), { usefulResidentUs: 250, usefulWorkUs: 220, recomputedResidentUs: 170, recomputedWorkUs: 110 })
  assert.equal(account.redoneTokens, 2)
})

test('the cost of a decode is fitted from what was seen', () => {
  const speeds = new Speeds({ prefillNsPerToken: 1_000, decodeOneNs: 9_000, decodeManyNs: 9_000, rows: 4, copyOutNsPerToken: 10, copyInNsPerToken: 10 })
  for (let i = 0; i < 400; i++) {
    const held = Array.from({ length: 1 + (i % 8) }, (_, row) => 256 * ((i + row) % 5))
    speeds.decoded(held, 5_000 + 700 * held.length + held.reduce((a, b) => a + b, 0))
  }
  const [short, long] = speeds.weights([0, 1_024]) as [number, number]
  assert.ok(Math.abs(short - (2_500 + 700)) < 150, `${short}`)
  assert.ok(Math.abs(long - short - 1_024) < 150, `${long - short}`)
  const { decodeBaseNs, decodeRowNs } = speeds.snapshot()
  assert.ok(Math.abs(decodeBaseNs - 5_000) < 300, `${decodeBaseNs}`)
  assert.ok(Math.abs(decodeRowNs - (700 + 512)) < 150, `${decodeRowNs}`)
})

test('one sort of batch only leaves the fit sane', () => {
  const speeds = new Speeds({ prefillNsPerToken: 1_000, decodeOneNs: 9_000, decodeManyNs: 15_000, rows: 4, copyOutNsPerToken: 10, copyInNsPerToken: 10 })
  for (let i = 0; i < 100; i++) speeds.decoded([100 + i], 20_000)
  const { decodeBaseNs, decodeRowNs } = speeds.snapshot()
  assert.ok(Math.abs(decodeBaseNs + decodeRowNs - 20_000) < 500, `${decodeBaseNs} + ${decodeRowNs}`)
})
