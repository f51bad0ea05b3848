import assert from 'node:assert/strict'
import { test } from 'node:test'
import { levelsOf, lineOf, programsOf } from '../../src/driver/line.ts'
import { LANES, World } from '../core/world.ts'

test('the levels of a line are what its calls say: how many stand at each, and since when the longest waits', () => {
  let seen = 0
  for (const order of ['mlfq', 'fcfs'] as const) {
    const world = new World(3, { config: { order }, engines: [{ ...LANES, runningMax: 1 }], faults: 0.2 })
    world.agents(20)
    for (let second = 2; second < 12; second += 1) {
      world.run(second * 1_000_000)
      const expected = new Map<string, { calls: number; sinceUs: number }>()
      for (const { stage, model, level } of world.core.calls.values()) {
        if (stage.kind !== 'ready') continue
        const { calls, sinceUs } = expected.get(`${model} ${level}`) ?? { calls: 0, sinceUs: stage.sinceUs }
        expected.set(`${model} ${level}`, { calls: calls + 1, sinceUs: Math.min(sinceUs, stage.sinceUs) })
      }
      assert.deepEqual(new Map(levelsOf(world.core).map(({ model, level, calls, sinceUs }) => [`${model} ${level}`, { calls, sinceUs }])), expected)
      for (const model of world.core.queues.keys()) {
        const line = lineOf(world.core, model)
        assert.deepEqual(programsOf(world.core, line), line.map((id) => world.core.calls.get(id)?.program))
        seen += line.length
      }
    }
  }
  assert.ok(seen > 50, `${seen} calls in line`)
})
