import assert from 'node:assert/strict'
import { test } from 'node:test'
import { must } from '../../src/core/assert.ts'
import { programId, rawOf, tenantId } from '../../src/core/ids.ts'
import type { DeclareProgram } from '../../src/core/input.ts'
import { rootOf } from '../../src/core/graph/lineage.ts'
import type { Program } from '../../src/core/state.ts'
import { CLAIMS, World } from './world.ts'

const T = tenantId('t')
const declare = (world: World, program: string, more: Partial<DeclareProgram> = {}): readonly string[] => world.feed({
  kind: 'declareProgram', tenant: T, program, session: null, agent: 'a', priorityClass: 'default', deadlineUs: null, parent: null, steps: null, ...more,
}).flatMap(({ fact }) => (fact.kind === 'program.refused' ? [fact.code] : fact.kind === 'timer.set' ? [] : [fact.kind]))
const named = (world: World, raw: string): Program => world.core.programs.get(programId(T, raw)) as Program

test('service of a sub-agent folds to the root of its chain, and a program without a parent is its own root', () => {
  const world = new World(1)
  declare(world, 'root', { steps: 7 })
  declare(world, 'child', { parent: 'root' })
  declare(world, 'grandchild', { parent: 'child' })
  assert.equal(rootOf(world.core, named(world, 'grandchild')).id, 't/root')
  assert.equal(rootOf(world.core, named(world, 'root')).id, 't/root')
  assert.equal(named(world, 'root').steps, 7)
})

test('a parent learnt late is program.linked, once; one that would close a circle or replace another is not', () => {
  const world = new World(1)
  for (const raw of ['a', 'b', 'c']) declare(world, raw)
  const claim = (program: string, parent: string): readonly string[] => {
    const call = world.submit({ claims: { ...CLAIMS, program, parent } })
    assert.ok(world.core.calls.has(call), 'the call is served whatever its parent')
    return world.log.filter(({ fact }) => fact.kind === 'program.linked' || (fact.kind === 'result.ignored' && fact.input === 'submit')).map(({ fact }) => fact.kind)
  }
  assert.deepEqual(claim('b', 'a'), ['program.linked'])
  assert.deepEqual(claim('b', 'a'), ['program.linked'])
  assert.deepEqual(claim('a', 'b'), ['program.linked', 'result.ignored'])
  assert.deepEqual(claim('b', 'c'), ['program.linked', 'result.ignored', 'result.ignored'])
  assert.deepEqual(claim('b', 'nobody'), ['program.linked', 'result.ignored', 'result.ignored', 'result.ignored'])
  assert.equal(rootOf(world.core, named(world, 'b')).id, 't/a')
  assert.equal(named(world, 'a').parent, null)
})

test('a parent session is the turn of it under way: its sub-agent folds to that, and stays there when the next turn comes', () => {
  const world = new World(1)
  const session = (name: string, parent: string | null = null) =>
    must(world.core.programs, must(world.core.calls, world.submit({ claims: { ...CLAIMS, session: name, parent } })).program)
  const root = session('root')
  const child = session('child', 'root')
  assert.equal(rootOf(world.core, child).id, root.id)
  world.feed({ kind: 'cancelCall', tenant: T, program: rawOf(root.id), call: root.calls[0] ?? '' })
  const later = session('root')
  assert.notEqual(later.id, root.id)
  const again = session('child', 'root')
  assert.deepEqual([again.id, again.parent], [child.id, root.id])
  assert.equal(session('other', 'nobody').parent, null)
  assert.equal(world.log.filter(({ fact }) => fact.kind === 'result.ignored').length, 0)
})

test('a session that names itself as its parent has none: its turns are no sub-agents of each other', () => {
  const world = new World(1)
  const turn = () => must(world.core.programs, must(world.core.calls, world.submit({ claims: { ...CLAIMS, session: 's', parent: 's' } })).program)
  const first = turn()
  world.feed({ kind: 'cancelCall', tenant: T, program: rawOf(first.id), call: first.calls[0] ?? '' })
  const second = turn()
  assert.notEqual(second.id, first.id)
  assert.equal(second.parent, null)
  assert.equal(turn().id, second.id, 'it goes on while it runs')
  assert.equal(world.log.filter(({ fact }) => fact.kind === 'result.ignored').length, 0)
})

test('a declared parent that is unknown, cancelled, another tenant\'s or too deep is refused and changes nothing', () => {
  const world = new World(1, { config: { programDepthMax: 3 } })
  declare(world, 'a')
  assert.deepEqual(declare(world, 'b', { parent: 'nobody' }), ['unknown_program'])
  assert.deepEqual(declare(world, 'b', { parent: 'a', tenant: tenantId('u') }), ['unknown_program'])
  declare(world, 'b', { parent: 'a' })
  declare(world, 'c', { parent: 'b' })
  assert.deepEqual(declare(world, 'd', { parent: 'c' }), ['parent_conflict'])
  assert.equal(world.core.programs.size, 3)
})

test('cancelling a program cancels its sub-agents, and no new one comes under it', () => {
  const world = new World(1)
  declare(world, 'a')
  declare(world, 'b', { parent: 'a' })
  declare(world, 'c', { parent: 'b' })
  const call = world.submit({ claims: { ...CLAIMS, program: 'c' } })
  world.feed({ kind: 'cancelProgram', tenant: T, program: 'a' })
  for (const raw of ['a', 'b', 'c']) assert.equal(named(world, raw).stage.kind, 'cancelled')
  assert.equal(world.core.calls.get(call)?.stage.kind, 'cancelled')
  assert.deepEqual(declare(world, 'd', { parent: 'c' }), ['program_cancelled'])
})

test('a parent is not forgotten before its sub-agents', () => {
  const world = new World(1, { config: { programsMax: 3 } })
  declare(world, 'a')
  declare(world, 'b', { parent: 'a' })
  world.feed({ kind: 'cancelProgram', tenant: T, program: 'a' })
  declare(world, 'c')
  declare(world, 'd')
  assert.deepEqual([...world.core.programs.keys()], ['t/a', 't/c', 't/d'])
  declare(world, 'e')
  assert.deepEqual([...world.core.programs.keys()], ['t/c', 't/d', 't/e'])
  assert.deepEqual(world.replay(), world.core)
})
