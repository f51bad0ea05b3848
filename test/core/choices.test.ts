import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { CallId } from '../../src/core/ids.ts'
import { only, Quiet } from './quiet.ts'
import { CLAIMS } from './world.ts'

const beside = (program: string, call: CallId, toolResults: readonly string[] = []) =>
  ({ claims: { ...CLAIMS, program, beside: call, toolResults: [...toolResults], identity: { source: 'explicit', confidence: 100 } as const } })

const threadOf = (world: Quiet, call: CallId): string => world.core.calls.get(call)?.thread ?? ''

test('another choice of a call runs beside it, in a thread that continues what its thread had committed', () => {
  const world = new Quiet(1)
  const before = world.waiting('p')
  const results = [`tool-of-${before}`]
  const first = world.named('p', results)
  const facts = world.log.length
  const others = [1, 2].map(() => world.submit(beside('p', first, results)))
  const forks = only(world.log.slice(facts), 'thread.forked')
  assert.equal(threadOf(world, first), threadOf(world, before))
  assert.deepEqual(forks.map(({ thread }) => thread), others.map((call) => threadOf(world, call)))
  assert.ok(forks.every(({ from, tokens }) => from === threadOf(world, first) && tokens > 0))
  assert.equal(new Set([first, ...others].map((call) => threadOf(world, call))).size, 3)
  assert.ok(others.every((call) => world.core.calls.get(call)?.parents.length === 0), 'it waits for nobody')
  for (const call of [first, ...others]) {
    world.measure(call)
    world.endWithTool(call)
  }
  const chosen = world.named('p', [`tool-of-${others[1]}`])
  assert.equal(threadOf(world, chosen), threadOf(world, others[1] as CallId))
})

test('what is beside a call of another program is a call like any other', () => {
  const world = new Quiet(1)
  const strange = world.waiting('p')
  const call = world.submit(beside('q', strange))
  assert.ok(threadOf(world, call).endsWith('/main'))
  assert.equal(only(world.log, 'thread.forked').length, 0)
})
