import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { CoreConfig } from '../../src/core/config.ts'
import { deciding } from '../../src/core/deciding.ts'
import { dispatch } from '../../src/core/dispatch.ts'
import type { Logged } from '../../src/core/fact.ts'
import type { Input } from '../../src/core/input.ts'
import { allAwake } from '../../src/core/asleep/asleep.ts'
import type { CoreState } from '../../src/core/state.ts'
import { BARE, BLOCKS, LANES, World } from './world.ts'

/** What a look at everything would still find to do after a step that looked at what it touched. */
function leftUndone(core: CoreState): Logged[] {
  const facts: Logged[] = []
  const d = deciding(structuredClone(allAwake(core)), core.nowUs, (logged) => facts.push(logged))
  for (const engine of core.engines.values()) {
    d.touched.engines.add(engine.id)
    d.touched.ranks.add(engine.id)
    for (const call of engine.running) {
      d.touched.calls.add(call)
      d.touched.reranked.add(call)
    }
  }
  for (const model of core.queues.keys()) d.touched.models.add(model)
  dispatch(d)
  return facts.filter(({ fact }) => fact.kind !== 'timer.set' && fact.kind !== 'timer.cleared')
}

class Watched extends World {
  looks = 0
  readonly missed: string[] = []

  override feed(input: Input): Logged[] {
    const facts = super.feed(input)
    const undone = leftUndone(this.core)
    this.looks += 1
    const timer = this.core.timers.get('dispatch:m') ?? Infinity
    // Time alone has come for it: its timer is next.
    if (undone.length > 0 && timer > this.core.nowUs) this.missed.push(`${input.kind}: ${undone.map(({ fact }) => fact.kind).join(' ')}`)
    return facts
  }
}

test('a step that looks at what it touched leaves nothing to do that a look at everything would find', () => {
  const configs: readonly Partial<CoreConfig>[] = [
    { order: 'fcfs-program' }, { order: 'plas' }, { order: 'plas', residency: 'always-offload' }, { order: 'fcfs', residency: 'lru-host' },
    { order: 'plas', placement: 'most-room' }, { order: 'plas', dispatchWindow: 1, memoryWaitersMax: 1 }, { order: 'mlfq', dispatchWindow: 2 },
  ]
  const missed: string[] = []
  let looks = 0
  for (const [index, config] of configs.entries()) {
    for (const engines of [[LANES], [BLOCKS], [LANES, LANES], [BARE]]) {
      const world = new Watched(100 + index, { config, engines, faults: 0.4 })
      world.agents(10)
      for (let second = 2; second < 12; second += 1) {
        world.run(second * 1_000_000)
        world.disturb()
      }
      world.heal()
      world.run(world.nowUs + 8_000_000_000)
      assert.equal(world.core.openCalls, 0)
      missed.push(...world.missed)
      looks += world.looks
    }
  }
  assert.deepEqual(missed, [], `${missed.length} of ${looks} steps`)
})
