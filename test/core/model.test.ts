import assert from 'node:assert/strict'
import { test } from 'node:test'
import { must } from '../../src/core/assert.ts'
import type { Logged } from '../../src/core/fact.ts'
import type { Input } from '../../src/core/input.ts'
import { bandsInOrder } from '../../src/core/queue/bands.ts'
import { candidates } from '../../src/core/queue/queue.ts'
import { GraphLife } from './graph-life.ts'
import { Model } from './model.ts'
import { SharesModel } from './shares-model.ts'
import { BLOCKS, LANES, World } from './world.ts'

/** A world beside which the model says what is ready, in which order, and what everybody was served. */
class Compared extends World {
  compared = 0
  longest = 0

  override feed(input: Input): Logged[] {
    const facts = super.feed(input)
    const model = new Model(this.config, this.log)
    this.compared += 1
    const ready = [...this.core.calls.values()].filter(({ stage }) => stage.kind === 'ready').map(({ id }) => id)
    this.longest = Math.max(this.longest, ready.length)
    assert.deepEqual([...ready].sort(), model.ready(), `READY after ${input.kind}`)
    const shares = new SharesModel(this.log)
    for (const [name, queue] of this.core.queues) {
      const order = [...candidates(queue)]
      assert.deepEqual([...order].sort(), ready.filter((id) => must(this.core.calls, id).model === name).sort())
      for (const [index, id] of order.entries()) {
        const [a, b] = [must(this.core.calls, id), this.core.calls.get(order[index + 1] ?? id)]
        const [before, after] = a.band === b?.band ? [`${a.band} ${a.payer}`, `${b.band} ${b.payer}`] : [a.band, b?.band ?? a.band]
        assert.ok(shares.virtualOf(before) <= shares.virtualOf(after), `${before} before ${after} after ${input.kind}`)
      }
      for (const { band, virtual, tenants } of bandsInOrder(queue)) {
        assert.equal(virtual, shares.virtualOf(band), `virtual time of ${band} after ${input.kind}`)
        for (const { tenant } of tenants.shares.values()) {
          const inShare = order.filter((id) => must(this.core.calls, id).band === band && must(this.core.calls, id).payer === tenant)
          assert.equal(tenants.shares.get(tenant)?.virtual, shares.virtualOf(`${band} ${tenant}`), `virtual time of ${tenant} in ${band} after ${input.kind}`)
          assert.deepEqual(inShare, model.inShare(band, tenant), `order of ${tenant} in ${band} after ${input.kind}`)
        }
      }
    }
    for (const program of this.core.programs.values()) assert.deepEqual(program.ledger, model.ledgerOf(program.id), `ledger of ${program.id} after ${input.kind}`)
    return facts
  }
}

/** Holding KV costs no share, so that a model can tell what was charged without knowing where KV was. */
const PRICED = { levelQuantumUs: 200_000, deviceSecondMicro: 0, hostMebibyteSecondMicro: 0, tenantWeights: { t1: 3 } }

for (const order of ['fcfs', 'fcfs-program', 'mlfq', 'plas', 'atlas'] as const) {
  test(`beside a model that goes through all facts again: READY, shares, the order inside each, and ledgers, by ${order}`, (t) => {
    let compared = 0
    let longest = 0
    for (const [index, engines] of [[{ ...LANES, runningMax: 1 }], [{ ...BLOCKS, runningMax: 1 }]].entries()) {
      const world = new Compared(40 + index, { config: { ...PRICED, order }, engines, faults: 0.3, tenants: 3 })
      world.agents(16)
      for (let second = 1; second < 11; second += 2) {
        world.run(second * 1_000_000)
        world.disturb()
      }
      compared += world.compared
      longest = Math.max(longest, world.longest)
    }
    t.diagnostic(`${compared} states compared, up to ${longest} calls in line`)
    assert.ok(compared > 100 && longest > 4)
  })
}

test('beside the same model: READY in random graphs, with joins of every rule and branches that fail', (t) => {
  let compared = 0
  for (const seed of [3, 4]) {
    const world = new GraphLife(seed, { engines: [{ ...BLOCKS, runningMax: 3 }], faults: 0.5 })
    const feed = world.feed.bind(world)
    world.feed = (input: Input): Logged[] => {
      const facts = feed(input)
      const ready = [...world.core.calls.values()].filter(({ stage }) => stage.kind === 'ready').map(({ id }) => id)
      assert.deepEqual(ready.sort(), new Model(world.config, world.log).ready(), `READY after ${input.kind}`)
      compared += 1
      return facts
    }
    world.begin(5)
    for (let second = 2; second < 12; second += 2) {
      world.run(second * 1_000_000)
      world.disturb()
    }
  }
  t.diagnostic(`${compared} states compared`)
  assert.ok(compared > 150, `${compared}`)
})
