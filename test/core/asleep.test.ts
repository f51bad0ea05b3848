import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { must } from '../../src/core/assert.ts'
import type { ProgramId } from '../../src/core/ids.ts'
import { allAwake, emptyRecords, programOf, putToSleep } from '../../src/core/asleep/asleep.ts'
import { checkInvariants } from '../../src/core/invariants.ts'
import { nothingSeen } from '../../src/core/invariants/law.ts'
import { textOf, wholeOf, type WholeProgram } from '../../src/core/asleep/program-text.ts'
import type { CoreState } from '../../src/core/state.ts'
import { stateText } from './state-text.ts'
import { LANES, BLOCKS, World } from './world.ts'

function lived(seed: number, programsAwakeMax: number, seconds = 25): World {
  const world = new World(seed, { config: { order: 'mlfq', programsAwakeMax }, engines: [LANES, BLOCKS], faults: 0.4 })
  world.agents(12)
  for (let second = 2; second < seconds; second += 1) {
    world.run(second * 1_000_000)
    world.disturb()
  }
  return world
}

const wholesOf = ({ programs, threads, calls }: CoreState): WholeProgram[] => [...programs.values()].map((program) => ({
  program, threads: program.threads.map((id) => must(threads, id)), calls: program.calls.map((id) => must(calls, id)),
}))

test('a program, its threads and its calls come back from their text as they were, at every moment of a life', () => {
  let calls = 0
  for (const seconds of [3, 4, 6, 9, 14, 25]) {
    for (const whole of wholesOf(lived(21, 512, seconds).core)) {
      assert.deepEqual(wholeOf(whole.program.id, textOf(whole)), whole)
      calls += whole.calls.length
    }
  }
  assert.ok(calls > 100, `${calls} calls`)
})

const text = fc.oneof(fc.string({ unit: 'binary', minLength: 1 }), fc.string({ minLength: 1 }), fc.constantFrom('\u0000', '"', '\\', '\\u0000', '[2,0]', '0', 'null', 't/p'))
const number = fc.oneof(fc.integer(), fc.maxSafeInteger(), fc.double({ noNaN: true, noDefaultInfinity: true }).filter((value) => !Object.is(value, -0)))

test('whatever ids, texts and numbers its records hold, they come back', () => {
  const wholes = wholesOf(lived(22, 512, 9).core)
  const drawn = fc.tuple(fc.nat(wholes.length - 1), fc.array(text, { minLength: 1, maxLength: 5 }), fc.array(number, { minLength: 1, maxLength: 5 }))
  fc.assert(fc.property(drawn, ([which, texts, numbers]) => {
    let drawn = 0
    const strange = (value: unknown): unknown => {
      drawn += 1
      if (typeof value === 'string') return texts[drawn % texts.length]
      if (typeof value === 'number') return numbers[drawn % numbers.length]
      if (Array.isArray(value)) return value.map(strange)
      if (typeof value !== 'object' || value === null) return value
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, strange(inner)]))
    }
    const { program, threads, calls } = strange(wholes[which]) as WholeProgram
    const whole = { program: { ...program, threads: threads.map(({ id }) => id), calls: calls.map(({ id }) => id) }, threads, calls }
    assert.deepEqual(wholeOf(program.id, textOf(whole)), whole)
  }))
})

test('who sleeps changes nothing: the same world decides the same, and its state reads the same', () => {
  for (const seed of [23, 24]) {
    const [asleep, awake] = [lived(seed, 0), lived(seed, 512)]
    assert.deepEqual(asleep.log, awake.log)
    assert.equal(stateText(asleep.core), stateText(awake.core))
  }
})

/** The same records, all awake, in the order of arrival. */
function recordsOf(core: CoreState): ReturnType<typeof emptyRecords> {
  const records = emptyRecords()
  for (const { program, threads, calls } of wholesOf(core)) {
    records.programs.set(program.id, program)
    for (const thread of threads) records.threads.set(thread.id, thread)
    for (const call of calls) records.calls.set(call.id, call)
  }
  return records
}

test('beyond the limit those longest awake sleep, and nobody who is at work', () => {
  const { core } = lived(26, 512, 9)
  const records = recordsOf(core)
  const programs = [...core.programs.values()]
  const atWork = programs.filter(({ calls }) => calls.some((id) => ['arrived', 'resuming', 'running', 'pausing'].includes(core.calls.get(id)?.stage.kind ?? '')))
  const others = programs.filter((program) => !atWork.includes(program))
  assert.ok(atWork.length > 0 && others.length > 4, `${atWork.length} at work, ${others.length} not`)
  for (let turn = 0; turn < programs.length; turn += 1) putToSleep(records, 2)
  // Who is asked for is awake again.
  const stayed = programs.filter((program) => records.programs.get(program.id) === program)
  assert.deepEqual(new Set(stayed), new Set([...atWork, ...others.slice(-2)]))
})

test('who is asked for wakes whole: its records are the ones that are kept, and what is written to them is there after it slept again', () => {
  const { core } = lived(26, 512, 9)
  const ids = [...core.calls.keys()]
  for (const id of ids) {
    const records = recordsOf(core)
    for (let turn = 0; turn < 3; turn += 1) putToSleep(records, 0)
    const call = must(records.calls, id)
    const program = must(records.programs, call.program)
    assert.equal(records.calls.get(id), call)
    assert.equal(records.programs.get(call.program), program)
    assert.equal(programOf(records, id), call.program)
    call.outputTokens += 1
    program.standing.servedUs += 1
    const written = [call.outputTokens, program.standing.servedUs]
    for (let turn = 0; turn < 3; turn += 1) putToSleep(records, 0)
    assert.equal(programOf(records, id), call.program)
    assert.deepEqual([records.calls.get(id)?.outputTokens, records.programs.get(call.program)?.standing.servedUs], written)
    call.outputTokens -= 1
    program.standing.servedUs -= 1
  }
})

test('worlds whose laws are held meet programs asleep', () => {
  const world = lived(27, 0, 9)
  const before = [...world.core.programs.keys()].map((id) => world.core.programs.get(id))
  putToSleep(world.core, 0)
  world.core.programs.keys()
  const [some] = [...allAwake(world.core).programs.keys()]
  assert.ok(some !== undefined && before.length > 3)
  putToSleep(world.core, 0)
  checkInvariants(world.core, nothingSeen())
  assert.ok(before.some((program) => program !== undefined && world.core.programs.get(program.id) !== program), 'somebody slept through the laws')
})

test('records of one that sleeps are set and deleted as those of one that is awake, and all at once never', () => {
  const { core } = lived(26, 512, 9)
  const records = recordsOf(core)
  for (let turn = 0; turn < 3; turn += 1) putToSleep(records, 0)
  const sizes = [records.threads.size, records.calls.size]
  const [call, thread] = [[...records.calls.values()][0], [...records.threads.values()][0]]
  assert.ok(call !== undefined && thread !== undefined)
  records.threads.set(thread.id, thread)
  records.calls.set(call.id, call)
  assert.deepEqual([records.threads.size, records.calls.size], sizes)
  assert.equal(records.threads.get(thread.id), thread)
  assert.equal(records.calls.get(call.id), call)
  assert.ok(records.threads.delete(thread.id))
  assert.ok(records.calls.delete(call.id))
  assert.equal(records.threads.get(thread.id), undefined)
  assert.equal(records.calls.get(call.id), undefined)
  assert.throws(() => records.programs.clear(), /one by one/)
})

test('what is walked is in the order of arrival and wakes nobody; a program asleep is counted, found and deleted whole', () => {
  const { core } = lived(26, 512, 9)
  const records = recordsOf(core)
  const read = (): unknown => [[...records.programs], [...records.threads], [...records.calls]]
  const before = read()
  const sizes = [records.programs.size, records.threads.size, records.calls.size]
  for (let turn = 0; turn < core.programs.size; turn += 1) putToSleep(records, 0)
  assert.deepEqual(read(), before)
  assert.deepEqual([records.programs.size, records.threads.size, records.calls.size], sizes)
  const [program] = [...core.programs.values()].filter(({ threads }) => threads.length > 0)
  const [thread = '' as never] = program?.threads ?? []
  const id = program?.id ?? '' as ProgramId
  assert.notEqual(records.programs.get(id), program)
  assert.deepEqual(records.programs.get(id), program)
  assert.ok(records.threads.has(thread))
  assert.ok(!records.threads.has(`${thread}/none` as never))
  putToSleep(records, 0)
  assert.ok(records.programs.delete(id))
  assert.equal(records.programs.get(id), undefined)
  assert.ok(!records.programs.has(id))
})

test('a thread that no program knows is found out, whoever sleeps', () => {
  const { core } = lived(24, 0, 9)
  putToSleep(core, 0)
  checkInvariants(core, nothingSeen())
  const [thread] = core.threads.values()
  assert.ok(thread !== undefined)
  const stray = `${thread.program}/stray` as typeof thread.id
  core.threads.set(stray, { ...thread, id: stray })
  assert.throws(() => checkInvariants(core, nothingSeen()), /invariant 14: /)
})

test('who has a thread that its id does not lead to, as in old logs, stays awake', () => {
  const records = recordsOf(lived(26, 512, 9).core)
  const program = [...records.programs.values()].find(({ threads }) => threads.length > 0)
  const [thread] = program?.threads.map((id) => must(records.threads, id)) ?? []
  assert.ok(program !== undefined && thread !== undefined)
  const id = `${program.id}/a/b` as typeof thread.id
  records.threads.set(id, { ...thread, id, active: null })
  program.threads = [...program.threads, id]
  for (let turn = 0; turn < records.programs.size; turn += 1) putToSleep(records, 0)
  assert.equal(records.programs.get(program.id), program)
  assert.ok(records.threads.has(id))
})
