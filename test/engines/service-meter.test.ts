import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { ServiceMeter } from '../../src/engines/service-meter.ts'

test('the work of all members sums to the busy time, whoever comes, goes and recomputes', () => {
  const event = fc.record({ afterUs: fc.nat(10_000), member: fc.nat(4), what: fc.constantFrom('come', 'go', 'recompute', 'be useful') })
  fc.assert(fc.property(fc.array(event, { maxLength: 60 }), (events) => {
    const meter = new ServiceMeter<number>()
    const here = new Set<number>()
    let [nowUs, busyUs, workUs] = [0, 0, 0]
    for (const { afterUs, member, what } of events) {
      nowUs += afterUs
      if (here.size > 0) busyUs += afterUs
      if (what === 'come' && !here.has(member)) {
        here.add(member)
        meter.enter(member, nowUs)
      } else if (here.has(member) && what === 'go') {
        const { useful, recomputed } = meter.read(member, nowUs)
        workUs += useful.workUs + recomputed.workUs
        here.delete(member)
        meter.leave(member, nowUs)
      } else if (here.has(member)) meter.charge(member, what === 'recompute' ? 'recomputed' : 'useful', nowUs)
    }
    for (const member of here) {
      const { useful, recomputed } = meter.read(member, nowUs)
      workUs += useful.workUs + recomputed.workUs
      assert.ok(useful.workUs + recomputed.workUs <= useful.residentUs + recomputed.residentUs)
    }
    assert.equal(workUs, busyUs)
  }))
})
