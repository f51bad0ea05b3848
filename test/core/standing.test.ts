import assert from 'node:assert/strict'
import { test } from 'node:test'
import { attainedUs } from '../../src/core/account.ts'
import { must } from '../../src/core/assert.ts'
import { isOver } from '../../src/core/call-read.ts'
import { ORDER_NAMES } from '../../src/core/config.ts'
import type { Logged } from '../../src/core/fact.ts'
import type { Input } from '../../src/core/input.ts'
import { rootOf } from '../../src/core/graph/lineage.ts'
import type { Work } from '../../src/core/learned.ts'
import type { CoreState } from '../../src/core/state.ts'
import { sizeBucketOf, toMs } from '../../src/core/predict/work.ts'
import { BLOCKS, World } from './world.ts'

/** What standings and curves must say, counted anew from calls, programs and interrupts. */
function checkStandings(core: Readonly<CoreState>): void {
  const waiting = new Map<string, number>()
  const doneUs = new Map<string, number>()
  for (const call of core.calls.values()) {
    const root = rootOf(core, must(core.programs, call.program)).id
    if (call.stage.kind === 'ready') waiting.set(root, (waiting.get(root) ?? 0) + 1)
    if (isOver(call)) doneUs.set(root, (doneUs.get(root) ?? 0) + attainedUs(call.ledger))
  }
  for (const { id, standing, ledger, calls } of core.programs.values()) {
    assert.equal(standing.waiting, waiting.get(id) ?? 0, `${id} waits`)
    assert.equal(standing.past.doneUs, doneUs.get(id) ?? 0, `${id} is done with`)
    assert.equal(standing.servedUs, attainedUs(ledger), `${id} was served`)
    assert.equal(standing.callsDone, calls.filter((call) => isOver(must(core.calls, call))).length)
    assert.ok(standing.past.pathUs <= standing.past.doneUs, 'a path is part of all')
    assert.ok(standing.waitedUs <= core.nowUs, 'nobody waits longer than time')
  }
  checkCurves(core)
}

function checkCurves(core: Readonly<CoreState>): void {
  const open = [...core.programs.values()].filter(({ stage }) => stage.kind === 'open')
  const matches = (work: Work, programs: typeof open): void => {
    const service = new Array<number>(work.service.open.length).fill(0)
    for (const { standing } of programs) service[sizeBucketOf(toMs(standing.servedUs), service.length)]! += 1
    assert.deepEqual(work.service.open, service)
    assert.equal(work.calls.open.reduce((sum, count) => sum + count, 0), programs.length)
    for (const sizes of [work.service, work.calls]) assert.ok([...sizes.ended, ...sizes.cut, ...sizes.open].every((weight) => weight >= 0))
  }
  matches(core.learned.work, open)
  for (const { id, learned } of core.tenants.values()) {
    matches(learned.work, open.filter(({ tenant }) => tenant === id))
    for (const [kind, work] of learned.kinds) matches(work, open.filter((one) => one.tenant === id && one.kind === kind))
    for (const [toolClass, waits] of learned.waits) {
      const waiting = [...core.interrupts.values()].filter((one) => one.stage.kind === 'waiting' && one.toolClass === toolClass && must(core.programs, one.program).tenant === id)
      assert.deepEqual([...waits.open].sort(), waiting.map((one) => one.id).sort())
    }
  }
}

class Counted extends World {
  override feed(input: Input): Logged[] {
    const facts = super.feed(input)
    checkStandings(this.core)
    return facts
  }
}

test('in a random world with faults, standings and curves are what the calls and programs add up to, after every step', () => {
  let promoted = 0
  for (const order of ORDER_NAMES) {
    for (let seed = 1; seed <= 2; seed += 1) {
      const world = new Counted(seed, { config: { order, promoteRatio: 1, levelQuantumUs: 50_000 }, faults: 0.5, engines: [{ ...BLOCKS, runningMax: 2 }] })
      world.agents(12)
      for (let second = 2; second < 25; second += 1) {
        world.run(second * 1_000_000)
        world.disturb()
      }
      promoted += world.counts.get('call.promoted') ?? 0
    }
  }
  assert.ok(promoted > 0, 'promotions were among it')
})
