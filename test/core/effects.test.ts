/** What tools do to the world: told by kind and key, committed once, listed by cancel, never asked for twice by us. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { CallId } from '../../src/core/ids.ts'
import { kinds, only, Quiet } from './quiet.ts'
import { stateText } from './state-text.ts'
import { World } from './world.ts'

const PAYS = { config: { toolEffects: { pay: 'irreversible', note: 'idempotent' } } } as const

/** A program whose call asks for these tools and waits. */
function asking(names: readonly string[], digest = 'd'): { at: Quiet; call: CallId } {
  const at = new Quiet(1, PAYS)
  const call = at.named('p', [], { digest })
  at.measure(call)
  at.end(call, { finish: 'tool_calls', toolCalls: names.map((name, index) => ({ id: `${name}-${index}`, name })) })
  return { at, call }
}

const commit = (at: Quiet, toolCall: string, record: string | null = null, program = 'p', tenant = at.tenant) =>
  at.feed({ kind: 'commitEffect', tenant, program, toolCall, record })

test('an interrupt carries the worst effect of its tools, as the configuration says it, and a key that is its call\'s', () => {
  for (const [names, effect] of [[['look'], 'read'], [['look', 'note'], 'idempotent'], [['note', 'pay', 'look'], 'irreversible'], [['constructor'], 'read']] as const) {
    const { at, call } = asking(names)
    const [started] = only(at.log, 'interrupt.started')
    assert.deepEqual([started?.effect, started?.effectKey], [effect, call])
  }
})

test('a retry of a call whose tools wait or were done is shown the same tool calls: the key is the same, and nothing runs', () => {
  const { at, call } = asking(['pay'])
  assert.deepEqual(kinds(at.feed(retried(at))), ['call.replayed'])
  at.named('p', ['pay-0'])
  assert.equal(at.core.interrupts.get(`${call}.wait` as never)?.stage.kind, 'completed')
  const facts = at.feed(retried(at))
  assert.deepEqual(facts.map(({ fact }) => fact.kind === 'call.replayed' ? fact.as : fact.kind), [call])
})

test('a retry of a call whose tools only read, after they were answered, is a new call: there is nothing to repeat', () => {
  const { at } = asking(['look'])
  at.named('p', ['look-0'])
  assert.equal(only(at.feed(retried(at)), 'call.arrived').length, 1)
})

test('a turn that ended by itself still shows what its tools have done to who brings their results, and is a new turn in other words', () => {
  const at = new Quiet(1, PAYS)
  const said = (results: readonly string[], digest: string) =>
    ({ claims: { ...at.claims(null), session: 's', toolResults: results }, digest })
  const run = (call: CallId, tool: string | null): CallId => {
    at.measure(call)
    at.end(call, tool === null ? {} : { finish: 'tool_calls', toolCalls: [{ id: `${tool}-0`, name: tool }] })
    return call
  }
  const noting = run(at.submit(said([], 'first')), 'note')
  const paying = run(at.submit(said(['note-0'], 'second')), 'pay')
  run(at.submit(said(['pay-0'], 'third')), null)
  assert.equal(at.core.programs.get(at.core.calls.get(paying)?.program as never)?.stage.kind, 'ended')
  const again = (results: readonly string[], digest: string) =>
    at.feed({ ...retried(at), ...said(results, digest) }).map(({ fact }) => fact.kind === 'call.replayed' ? fact.as : fact.kind)
  assert.deepEqual(again(['note-0'], 'second'), [paying])
  const anew = again([], 'first')
  assert.ok(anew.includes('call.arrived') && !anew.includes(noting), anew.join())
})

let retries = 0
function retried(at: Quiet) {
  retries += 1
  const call = `again-${retries}` as CallId
  return {
    kind: 'submit', tenant: at.tenant, call, body: `body:${call}` as never, freshProgram: `fresh-${call}`, claims: at.claims('p'), model: 'm', digest: 'd', seed: 1,
    promptTokensEstimate: 10, maxTokens: 10, exactResume: null, priorityClass: 'default', deadlineUs: null,
  } as const
}

test('results that come back commit what their tools did; reads leave nothing to remember', () => {
  const { at, call } = asking(['pay', 'note'])
  at.named('p', ['pay-0', 'note-1'])
  assert.deepEqual(at.core.interrupts.get(`${call}.wait` as never)?.commits.map(({ toolCall }) => toolCall), ['pay-0', 'note-1'])
  const read = asking(['look'])
  read.at.named('p', ['look-0'])
  assert.equal(only(read.at.log, 'effect.committed').length, 0)
})

test('an effect is committed once: said again, by its runtime or by the results, the first record stands', () => {
  const { at, call } = asking(['pay'])
  commit(at, 'pay-0', 'payment 17')
  const before = stateText({ ...at.core, seq: 0 })
  assert.deepEqual(only(commit(at, 'pay-0', 'payment 18'), 'effect.committed')[0]?.record, 'payment 17')
  assert.equal(stateText({ ...at.core, seq: 0 }), before)
  at.named('p', ['pay-0'])
  assert.deepEqual(at.core.interrupts.get(`${call}.wait` as never)?.commits.map(({ record }) => record), ['payment 17'])
})

test('cancel lists every effect of the program: what is known to be done, and what only its runtime can know', () => {
  const { at, call } = asking(['pay', 'note'])
  commit(at, 'pay-0', 'payment 17')
  const facts = at.feed({ kind: 'cancelProgram', tenant: at.tenant, program: 'p' })
  const remaining = { interrupt: `${call}.wait`, effect: 'irreversible', effectKey: call, committed: ['pay-0'], unknown: ['note-1'] }
  assert.deepEqual(only(facts, 'program.cancelled')[0]?.effectsRemaining, [remaining])
  const [cancelled] = only(facts, 'interrupt.cancelled')
  assert.deepEqual([cancelled?.effectKey, cancelled?.toolCallIds], [call, ['pay-0', 'note-1']], 'its runtime hears which tools to stop')
})

test('cancel lists what a runtime said was done, also of a tool of which nobody knew that it does more than read', () => {
  const { at, call } = asking(['look', 'peek'])
  commit(at, 'look-0', 'it wrote')
  const facts = at.feed({ kind: 'cancelProgram', tenant: at.tenant, program: 'p' })
  assert.deepEqual(only(facts, 'program.cancelled')[0]?.effectsRemaining, [{ interrupt: `${call}.wait`, effect: 'read', effectKey: call, committed: ['look-0'], unknown: [] }])
})

test('what was done before is listed too when a later step is cancelled', () => {
  const { at, call } = asking(['pay'])
  at.named('p', ['pay-0'])
  const facts = at.feed({ kind: 'cancelProgram', tenant: at.tenant, program: 'p' })
  assert.deepEqual(only(facts, 'program.cancelled')[0]?.effectsRemaining.map(({ interrupt, committed }) => [interrupt, committed]), [[`${call}.wait`, ['pay-0']]])
})

test('what is done is done: a commit after the cancel is kept, and starts nothing', () => {
  const { at, call } = asking(['pay'])
  at.feed({ kind: 'cancelProgram', tenant: at.tenant, program: 'p' })
  assert.deepEqual(kinds(commit(at, 'pay-0', 'too late')), ['effect.committed'])
  assert.equal(at.core.interrupts.get(`${call}.wait` as never)?.stage.kind, 'cancelled')
  assert.equal(at.core.openCalls, 0)
})

test('an effect of another program, of another tenant or of nobody is refused by name', () => {
  const { at } = asking(['pay'])
  at.waiting('q')
  const code = (facts: ReturnType<typeof commit>) => only(facts, 'program.refused')[0]?.code
  assert.equal(code(commit(at, 'never')), 'unknown_tool_call')
  assert.equal(code(commit(at, 'pay-0', null, 'q')), 'unknown_tool_call')
  assert.equal(code(commit(at, 'pay-0', null, 'p', 'u' as never)), 'unknown_program')
})

test('a world of irreversible tools replays and restarts with every commit kept', () => {
  const world = new World(7, { config: { toolEffects: { search: 'irreversible' } }, faults: 0.3 })
  world.agents(10)
  for (let second = 2; second < 40; second += 1) {
    world.run(second * 1_000_000)
    world.disturb()
  }
  assert.ok((world.counts.get('effect.committed') ?? 0) > 3)
  assert.deepEqual(world.replay(), world.core)
})
