import assert from 'node:assert/strict'
import { test } from 'node:test'
import { engineId, moveId, tenantId, type CallId } from '../../src/core/ids.ts'
import { apply, emptyCore } from '../../src/core/apply.ts'
import type { Logged } from '../../src/core/fact.ts'
import { emptyLedger } from '../../src/core/state.ts'
import { E0, kinds, only, Quiet, REPORT } from './quiet.ts'
import { stateText } from './state-text.ts'
import { CLAIMS, LANES } from './world.ts'

test('a late result of an older epoch changes nothing and says why', () => {
  const at = new Quiet(1)
  const call = at.named('p')
  at.measure(call)
  at.feed({ kind: 'cancelProgram', tenant: tenantId('t'), program: 'p' })
  const before = stateText({ ...at.core, seq: 0 })
  const facts = at.end(call, { epoch: 1 })
  assert.deepEqual(kinds(facts), ['result.ignored'])
  assert.match(only(facts, 'result.ignored')[0]?.why ?? '', /epoch 1 is over/)
  assert.equal(stateText({ ...at.core, seq: 0 }), before)
})

test('results of another attempt, another reign, another engine and of a call that is over are ignored, each by its reason', () => {
  const at = new Quiet(1)
  const call = at.named('p')
  at.measure(call)
  const why = (facts: Logged[]): string => only(facts, 'result.ignored')[0]?.why ?? ''
  assert.match(why(at.end(call, { attempt: 7 })), /attempt 7, now 1/)
  assert.match(why(at.end(call, { reign: 0 })), /reign 0, now 1/)
  assert.match(why(at.end(call, { engine: engineId('other') })), /it runs on e0/)
  assert.deepEqual(kinds(at.end(call)).includes('call.completed'), true)
  assert.match(why(at.end(call)), /the call is committed/)
})

test('while a tool runs nobody waits for memory: the KV is preserved, and a time to decide again is set', () => {
  const at = new Quiet(1)
  const call = at.waiting('p')
  const [decided] = only(at.log, 'kv.decided')
  assert.equal(decided?.choice, 'preserve')
  assert.deepEqual(decided?.options.map(({ choice }) => choice), ['preserve', 'offload', 'discard'])
  assert.ok((decided?.reconsiderAtUs ?? 0) > at.nowUs)
  assert.equal(at.core.interrupts.get(`${call}.wait` as never)?.stage.kind, 'waiting')
})

test('a ready call is never stuck behind waiting ones: an idle State gives way, in two phases', () => {
  const at = new Quiet(1)
  for (const program of ['a', 'b', 'c', 'd']) at.waiting(program)
  assert.equal(at.core.engines.get(E0)?.ownedGranules, 4)
  const call = at.named('late')
  const begun = only(at.measure(call), 'kv.offload.begun')
  assert.equal(begun.length, 1)
  assert.equal(at.core.engines.get(E0)?.ownedGranules, 4, 'the owner keeps it until the copy is verified')
  const move = begun[0]?.move ?? moveId('')
  const facts = at.feed({ kind: 'moveDone', engine: E0, reign: 1, move, bytes: 7_000, digest: 'x', copyUs: 5 })
  assert.ok(kinds(facts).includes('call.scheduled'))
  assert.equal(at.core.host.ownedBytes, 7_000)
  assert.equal(at.core.host.reservedBytes, 0)
})

test('a move that fails drops its reservation, the State is discarded and whoever waited for room goes on', () => {
  const at = new Quiet(1)
  for (const program of ['a', 'b', 'c', 'd']) at.waiting(program)
  const call = at.named('late')
  const move = only(at.measure(call), 'kv.offload.begun')[0]?.move ?? moveId('')
  const facts = at.feed({ kind: 'moveFailed', engine: E0, reign: 1, move, why: 'no space', sourceLost: false })
  assert.deepEqual(kinds(facts).filter((kind) => kind.startsWith('kv.') || kind === 'call.scheduled'), ['kv.move.failed', 'kv.discarded', 'call.scheduled'])
  assert.equal(at.core.host.reservedBytes, 0)
})

test('a State on host is brought back for its call, which keeps every token', () => {
  const at = new Quiet(1, { config: { residency: 'always-offload' } })
  const first = at.waiting('p')
  const out = only(at.log, 'kv.offload.begun')[0]
  at.feed({ kind: 'moveDone', engine: E0, reign: 1, move: out?.move ?? moveId(''), bytes: 7_000, digest: 'x', copyUs: 5 })
  const second = at.named('p', [`tool-of-${first}`])
  at.feed({ kind: 'measured', call: second, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
  assert.equal(at.core.calls.get(second)?.stage.kind, 'resuming')
  const back = only(at.log, 'kv.onboard.begun')[0]
  const facts = at.feed({ kind: 'moveDone', engine: E0, reign: 1, move: back?.move ?? moveId(''), bytes: 7_000, digest: 'x', copyUs: 5 })
  const [scheduled] = only(facts, 'call.scheduled')
  assert.deepEqual([scheduled?.baseTokens, scheduled?.keepTokens, scheduled?.recomputeTokens], [69, 69, 0])
  assert.equal(at.core.host.ownedBytes, 0)
})

test('a discarded State is fed again: what is recomputed is said, and ages nobody', () => {
  const at = new Quiet(1, { config: { residency: 'always-discard' } })
  const first = at.waiting('p')
  const second = at.named('p', [`tool-of-${first}`])
  const facts = at.feed({ kind: 'measured', call: second, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
  const [scheduled] = only(facts, 'call.scheduled')
  assert.deepEqual([scheduled?.baseTokens, scheduled?.keepTokens, scheduled?.recomputeTokens, scheduled?.replay], [69, 0, 69, 'exact'])
  const before = at.core.programs.get('t/p' as never)?.ledger.useful.residentUs ?? 0
  const report = { ...REPORT, service: { ...emptyLedger(), recomputed: { residentUs: 9_000, workUs: 9_000 } }, recomputedTokens: 69 }
  at.end(second, { report })
  const { ledger } = at.core.programs.get('t/p' as never) ?? { ledger: emptyLedger() }
  assert.deepEqual([ledger.useful.residentUs, ledger.recomputed.residentUs], [before, 9_000])
})

test('a failed attempt is tried again with its ledger; what it received stays as retried', () => {
  const at = new Quiet(1)
  const call = at.named('p')
  at.measure(call)
  at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call, attempt: 1, run: 0, epoch: 1, report: REPORT }] })
  at.feed({ kind: 'attemptFailed', engine: E0, reign: 1, call, attempt: 1, run: 0, epoch: 1, why: 'broken', retryable: true })
  const { ledger } = at.core.programs.get('t/p' as never) ?? { ledger: emptyLedger() }
  assert.deepEqual([ledger.useful.residentUs, ledger.retried.residentUs], [0, 500])
  assert.equal(at.core.calls.get(call)?.attempt, 2)
  assert.equal(at.core.calls.get(call)?.stage.kind, 'running')
})

test('a call whose attempts are used up fails once, by that name, and frees what it held', () => {
  const at = new Quiet(1, { config: { attemptsMax: 2 } })
  const call = at.submit()
  at.measure(call)
  for (const attempt of [1, 2]) at.feed({ kind: 'attemptFailed', engine: E0, reign: 1, call, attempt, run: 0, epoch: 1, why: 'broken', retryable: true })
  assert.equal(only(at.log, 'call.failed')[0]?.code, 'attempts_exhausted')
  assert.equal(at.core.states.size, 0)
})

test('tool results that this program never asked for, or only some of those it did, are refused by name', () => {
  const at = new Quiet(1)
  const call = at.named('p')
  at.measure(call)
  at.end(call, { finish: 'tool_calls', toolCalls: [{ id: 'one', name: 'a' }, { id: 'two', name: 'b' }] })
  at.named('p', ['never'])
  at.named('p', ['one'])
  assert.deepEqual(only(at.log, 'call.refused').map(({ code }) => code), ['unknown_tool_call', 'missing_tool_results'])
  assert.match(only(at.log, 'call.refused')[1]?.why ?? '', /two/)
})

test('the same tool results with another history are a fork: a new thread of the same program', () => {
  const at = new Quiet(1)
  const call = at.waiting('p')
  const first = at.named('p', [`tool-of-${call}`])
  const second = at.named('p', [`tool-of-${call}`])
  assert.notEqual(at.core.calls.get(first)?.thread, at.core.calls.get(second)?.thread)
  assert.equal(at.core.calls.get(first)?.program, at.core.calls.get(second)?.program)
})

test('a tool call that was cut by its token limit may be answered all the same: its thread goes on', () => {
  const at = new Quiet(1)
  const call = at.named('p')
  at.measure(call)
  at.end(call, { finish: 'length', toolCalls: [{ id: 'cut', name: 'search' }] })
  const next = at.named('p', ['cut'])
  assert.equal(only(at.log, 'call.refused').length, 0)
  assert.equal(at.core.calls.get(next)?.thread, at.core.calls.get(call)?.thread)
  assert.equal(only(at.log, 'interrupt.started').length, 0)
})

test('a second call of a named thread waits for the first, and fails with it where it does not commit', () => {
  const at = new Quiet(1)
  const claims = { ...CLAIMS, program: 'p', thread: 'one' }
  const first = at.submit({ claims })
  const second = at.submit({ claims })
  at.measure(first)
  assert.equal(at.core.calls.get(second)?.stage.kind, 'arrived')
  at.feed({ kind: 'hangUp', call: first })
  assert.equal(only(at.log, 'call.failed').find(({ call }) => call === second)?.code, 'parent_failed')
})

test('the same id under two credentials is two programs, and a body of one never attaches to the other', () => {
  const at = new Quiet(1)
  const mine = at.named('p', [], { digest: 'd' })
  const other = at.named('p', [], { digest: 'd', tenant: tenantId('u') })
  assert.notEqual(at.core.calls.get(mine)?.program, at.core.calls.get(other)?.program)
})

test('a program ends with the last of its calls, where the one that its runtime called final committed before', () => {
  const at = new Quiet(1)
  const claims = { ...CLAIMS, program: 'p', identity: { source: 'explicit', confidence: 100 } } as const
  const [final, other] = [at.submit({ claims: { ...claims, final: true } }), at.submit({ claims })]
  for (const call of [final, other]) at.measure(call)
  at.end(final)
  assert.equal(only(at.log, 'program.completed').length, 0)
  at.end(other)
  assert.deepEqual(only(at.log, 'program.completed').map(({ provisional }) => provisional), [false])
})

test('who has said the last word has answered: a call beside it that fails afterwards does not fail its program', () => {
  const at = new Quiet(1)
  const claims = { ...CLAIMS, session: 's', identity: { source: 'derived', confidence: 70 } } as const
  const [final, other] = [at.submit({ claims: { ...claims, final: true } }), at.submit({ claims })]
  for (const call of [final, other]) at.measure(call)
  at.end(final)
  at.feed({ kind: 'attemptFailed', engine: E0, reign: 1, call: other, attempt: 1, run: 0, epoch: 1, retryable: false, why: 'it cannot' })
  assert.equal(only(at.log, 'call.failed').length, 1)
  assert.equal(only(at.log, 'program.failed').length, 0)
  assert.deepEqual(only(at.log, 'program.completed').map(({ provisional }) => provisional), [false])
})

test('at callsPerProgramMax a call is refused by a name that says that waiting does not help', () => {
  const at = new Quiet(1, { config: { callsPerProgramMax: 1 } })
  const call = at.named('p')
  at.measure(call)
  at.end(call)
  at.named('p')
  assert.equal(only(at.log, 'call.refused')[0]?.code, 'program_full')
})

test('a declared program of which nothing is open ends by itself after programIdleUs', () => {
  const at = new Quiet(1, { config: { programIdleUs: 5_000_000 } })
  const call = at.named('p')
  at.measure(call)
  at.end(call)
  at.run(at.nowUs + 4_000_000)
  assert.equal(only(at.log, 'program.completed').length, 0)
  at.run(at.nowUs + 2_000_000)
  assert.deepEqual(only(at.log, 'program.completed').map(({ provisional }) => provisional), [false])
  at.named('p')
  assert.equal(only(at.log, 'call.refused')[0]?.code, 'program_ended')
})

test('at callsOpenMax a call is refused and nothing else changes', () => {
  const at = new Quiet(1, { config: { callsOpenMax: 2 } })
  at.submit()
  at.submit()
  const before = at.core.calls.size
  at.submit()
  assert.equal(only(at.log, 'call.refused')[0]?.code, 'queue_full')
  assert.equal(at.core.calls.size, before)
})

test('at its own limits of calls and of programs a tenant is refused by their names, and another is served', () => {
  const at = new Quiet(1, { config: { tenantCallsOpenMax: 2, tenantProgramsMax: 3 } })
  const other = { tenant: tenantId('u') }
  const refusals = (): readonly string[] => only(at.log, 'call.refused').map(({ code, why }) => `${code}: ${why}`)
  at.named('a')
  at.named('b')
  at.named('a')
  assert.deepEqual(refusals(), ['tenant_full: 2 of its calls are open, and tenantCallsOpenMax is 2'])
  at.named('a', [], other)
  assert.equal(refusals().length, 1)
  at.feed({ kind: 'cancelProgram', tenant: tenantId('t'), program: 'a' })
  at.feed({ kind: 'cancelProgram', tenant: tenantId('t'), program: 'b' })
  const declare = (program: string): void => {
    at.feed({ kind: 'declareProgram', tenant: tenantId('t'), program, session: null, agent: 'x', priorityClass: 'default', deadlineUs: null, parent: null, steps: null })
  }
  for (const program of ['c', 'd', 'e', 'f']) declare(program)
  assert.deepEqual(only(at.log, 'program.refused').map(({ program, code, why }) => [program, code, why]),
    [['f', 'tenant_full', '3 of its programs are not over, and tenantProgramsMax is 3']], 'what is over does not count')
  at.named('g')
  assert.equal(refusals().at(-1), 'tenant_full: 3 of its programs are not over, and tenantProgramsMax is 3')
  at.feed({ kind: 'finishProgram', tenant: tenantId('t'), program: 'c' })
  declare('f')
  assert.equal(only(at.log, 'program.refused').length, 1)
})

test('at a limit of programs the longest ended of those that may be reopened gives way, and one that is at work does not', () => {
  for (const config of [{ tenantProgramsMax: 2 }, { programsMax: 2 }]) {
    const at = new Quiet(1, { config })
    const answered = (): void => {
      const call = at.submit()
      at.measure(call)
      at.end(call)
    }
    answered()
    answered()
    const [first] = at.core.programs.keys()
    answered()
    assert.equal(only(at.log, 'program.closed')[0]?.program, first)
    assert.equal(only(at.log, 'call.refused').length, 0)
    at.named('a')
    at.named('b')
    at.named('c')
    assert.equal(only(at.log, 'call.refused').length, 1, 'two are at work')
  }
})

test('a wait that expires beside an answer that was the last does not fail the program', () => {
  const at = new Quiet(1)
  const claims = { ...CLAIMS, program: 'p', identity: { source: 'explicit' as const, confidence: 100 } }
  const tool = at.submit({ claims: { ...claims, thread: 'tool' } })
  at.measure(tool)
  at.endWithTool(tool)
  const last = at.submit({ claims: { ...claims, thread: 'answer', final: true } })
  at.measure(last)
  at.end(last)
  const timer = `expire:${tool}.wait`
  at.nowUs = at.core.timers.get(timer) ?? at.nowUs
  at.feed({ kind: 'due', timer })
  assert.equal([...at.core.programs.values()][0]?.stage.kind, 'ended')
  assert.equal(only(at.log, 'program.failed').length, 0)
})

test('at a limit of calls one whose client is gone gives way, the longest gone first, and a retry of it comes back as itself', () => {
  for (const config of [{ tenantCallsOpenMax: 2 }, { callsOpenMax: 2 }]) {
    const at = new Quiet(1, { config })
    const [first, second] = [at.submit(), at.submit()] as const
    at.restart()
    assert.deepEqual([...at.core.detached], [first, second])
    at.run(at.nowUs + 1_000_000)
    at.submit({ digest: 'd2', call: 'again' as CallId })
    assert.equal(only(at.log, 'call.attached').at(-1)?.as, second)
    const third = at.submit()
    assert.equal(at.core.calls.get(first)?.stage.kind, 'cancelled')
    assert.ok(at.core.calls.has(third))
    at.submit()
    assert.equal(only(at.log, 'call.refused').length, 1, 'two are wanted')
  }
})

test('at its own limit a tenant gets the place of none of another one\'s calls, whoever is gone', () => {
  const at = new Quiet(1, { config: { tenantCallsOpenMax: 1 } })
  const others = at.submit({ tenant: tenantId('other') })
  at.restart()
  at.run(at.nowUs + 1_000_000)
  const own = at.submit()
  const full = at.submit()
  assert.deepEqual(only(at.log, 'call.refused').map(({ call, code }) => [call, code]), [[full, 'tenant_full']])
  assert.deepEqual([others, own].map((call) => at.core.calls.get(call)?.stage.kind), ['detached', 'arrived'])
})

test('an unknown model is refused with the names of those served', () => {
  const at = new Quiet(1)
  at.submit({ model: 'gpt-9' })
  assert.match(only(at.log, 'call.refused')[0]?.why ?? '', /gpt-9; served: m/)
})

test('a better call takes the place of a running one: paused, moved away, and resumed with what it had', () => {
  const at = new Quiet(1, { engines: [{ ...LANES, memory: { cells: 1_024, granule: 1_024, sequences: 1 } }] })
  const old = at.waiting('old')
  const young = at.named('young')
  at.measure(young)
  const out = only(at.log, 'kv.offload.begun')[0]
  at.feed({ kind: 'moveDone', engine: E0, reign: 1, move: out?.move ?? moveId(''), bytes: 7_000, digest: 'x', copyUs: 5 })
  assert.equal(at.core.calls.get(young)?.stage.kind, 'running')
  const back = at.named('old', [`tool-of-${old}`])
  const preempted = at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: old, tokens: 69 }, renderingWon: null })
  assert.equal(only(preempted, 'call.preempted')[0]?.call, young)
  const facts = at.feed({ kind: 'paused', engine: E0, reign: 1, call: young, attempt: 1, run: 0, epoch: 1, report: REPORT })
  assert.ok(kinds(facts).includes('kv.offload.begun'))
  const state = [...at.core.states.values()].find(({ tail }) => tail.decoded > 0)
  assert.deepEqual(state?.tail, { prefilled: 60, decoded: 9 })
})

test('a call paused after it reported progress keeps its KV', () => {
  const at = new Quiet(1, { engines: [{ ...LANES, memory: { cells: 1_024, granule: 1_024, sequences: 1 } }] })
  const old = at.waiting('old')
  const young = at.named('young')
  at.measure(young)
  at.feed({ kind: 'moveDone', engine: E0, reign: 1, move: only(at.log, 'kv.offload.begun')[0]?.move ?? moveId(''), bytes: 7_000, digest: 'x', copyUs: 5 })
  at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call: young, attempt: 1, run: 0, epoch: 1, report: { ...REPORT, tailDecoded: 3, outputTokens: 4 } }] })
  const back = at.named('old', [`tool-of-${old}`])
  at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: old, tokens: 69 }, renderingWon: null })
  const facts = at.feed({ kind: 'paused', engine: E0, reign: 1, call: young, attempt: 1, run: 0, epoch: 1, report: REPORT })
  assert.equal(only(facts, 'kv.discarded').length, 0)
  assert.ok(kinds(facts).includes('kv.offload.begun'))
})

test('what a call fed that comes to nothing is nobody\'s: the next call of its thread keeps none of it', () => {
  const at = new Quiet(1, { engines: [{ ...LANES, memory: { cells: 1_024, granule: 1_024, sequences: 1 } }] })
  const old = at.waiting('old')
  const young = at.named('young')
  at.measure(young)
  at.feed({ kind: 'moveDone', engine: E0, reign: 1, move: only(at.log, 'kv.offload.begun')[0]?.move ?? moveId(''), bytes: 7_000, digest: 'x', copyUs: 5 })
  const back = at.named('old', [`tool-of-${old}`])
  at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: old, tokens: 69 }, renderingWon: null })
  at.feed({ kind: 'paused', engine: E0, reign: 1, call: young, attempt: 1, run: 0, epoch: 1, report: REPORT })
  at.feed({ kind: 'hangUp', call: young })
  for (const { move } of only(at.log, 'kv.offload.begun').slice(1)) {
    at.feed({ kind: 'moveDone', engine: E0, reign: 1, move, bytes: 7_000, digest: 'x', copyUs: 5 })
  }
  const state = [...at.core.states.values()].find((one) => one.owner.kind === 'thread' && one.owner.thread.startsWith('t/young'))
  assert.ok(state === undefined || (state.device === null && state.host === null && state.tail.prefilled === 0), JSON.stringify(state))
  const next = at.named('young')
  at.measure(next, 300)
  at.end(back)
  const scheduled = only(at.log, 'call.scheduled').findLast(({ call }) => call === next)
  assert.equal(scheduled?.keepTokens ?? 0, 0)
})

test('a copy made of a call while it was paused goes with the call', () => {
  const at = new Quiet(1, { engines: [{ ...LANES, memory: { cells: 1_024, granule: 1_024, sequences: 1 } }] })
  const old = at.waiting('old')
  const young = at.named('young')
  at.measure(young)
  const done = (): void => { for (const { id } of [...at.core.moves.values()]) at.feed({ kind: 'moveDone', engine: E0, reign: 1, move: id, bytes: 7_000, digest: 'x', copyUs: 5 }) }
  done()
  const back = at.named('old', [`tool-of-${old}`])
  at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: old, tokens: 69 }, renderingWon: null })
  at.feed({ kind: 'paused', engine: E0, reign: 1, call: young, attempt: 1, run: 0, epoch: 1, report: REPORT })
  done()
  const state = at.core.states.get(at.core.threads.get(at.core.calls.get(young)?.thread as never)?.state as never)
  assert.ok(state?.host != null, 'it was copied to host while paused')
  at.feed({ kind: 'hangUp', call: young })
  assert.equal(state.host, null)
})

test('running calls that cannot grow do not wait for each other for ever: the worst gives way', () => {
  const at = new Quiet(1, { config: { order: 'fcfs', grantTokens: 32 }, engines: [{ ...LANES, memory: { cells: 192, granule: 32, sequences: 8 }, contextTokens: 192 }] })
  const calls = [at.submit({ maxTokens: 100 }), at.submit({ maxTokens: 100 })]
  for (const call of calls) at.measure(call, 60)
  assert.deepEqual(calls.map((call) => at.core.calls.get(call)?.stage.kind), ['running', 'running'])
  const facts = calls.flatMap((call) => at.feed({
    kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call, attempt: 1, run: 0, epoch: 1, report: { ...REPORT, tailDecoded: 35, outputTokens: 36 } }],
  }))
  assert.equal(only(facts, 'call.preempted')[0]?.call, calls[1])
})

test('a host tier that is smaller after a restart is drained to its size', () => {
  const at = new Quiet(1, { config: { residency: 'always-offload' } })
  for (const program of ['a', 'b']) at.waiting(program)
  const moves = only(at.log, 'kv.offload.begun').map(({ move }) => move)
  for (const move of moves) at.feed({ kind: 'moveDone', engine: E0, reign: 1, move, bytes: 7_000, digest: 'x', copyUs: 5 })
  const smaller = new Quiet(1, { config: { hostBytesMax: 8_000 } })
  smaller.history = null
  smaller.core = emptyCore({ ...at.config, hostBytesMax: 8_000 })
  for (const logged of at.log) apply(smaller.core, logged)
  smaller.nowUs = at.nowUs
  smaller.feed({ kind: 'restart', reign: 9, wallOffsetUs: 0, images: moves })
  assert.equal(smaller.core.host.ownedBytes, 7_000)
})

test('the KV of a call that waits for its turn is not decided about, though its thread never waited for a tool', () => {
  const at = new Quiet(1, { engines: [{ ...LANES, runningMax: 1 }] })
  const claims = { ...CLAIMS, program: 'p', thread: 'one' }
  const first = at.submit({ claims })
  at.measure(first)
  at.end(first)
  at.measure(at.named('busy'))
  const second = at.submit({ claims })
  at.feed({ kind: 'measured', call: second, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
  const before = at.log.length
  at.nowUs += 3_000_000_000
  for (const timer of [...at.core.timers.keys()]) if (timer.startsWith('reconsider:')) at.feed({ kind: 'due', timer })
  assert.equal(only(at.log.slice(before), 'kv.decided').length, 0)
  assert.equal(at.core.calls.get(second)?.stage.kind, 'ready')
})

test('a named thread that goes on without its tool results abandons the wait, and the program lives', () => {
  const at = new Quiet(1)
  const claims = { ...CLAIMS, program: 'p', thread: 'one' }
  const first = at.submit({ claims })
  at.measure(first)
  at.endWithTool(first)
  const facts: Logged[] = []
  const before = at.log.length
  at.submit({ claims })
  facts.push(...at.log.slice(before))
  assert.equal(only(facts, 'interrupt.cancelled').length, 1)
  assert.equal([...at.core.timers.keys()].some((timer) => timer.startsWith('expire:')), false)
})

test('a restart takes a higher reign, detaches open calls, keeps waits and their timers, and uses the images that verify', () => {
  const at = new Quiet(1, { config: { residency: 'always-offload' } })
  at.waiting('kept')
  at.waiting('lost')
  const moves = only(at.log, 'kv.offload.begun').map(({ move }) => move)
  for (const move of moves) at.feed({ kind: 'moveDone', engine: E0, reign: 1, move, bytes: 7_000, digest: 'x', copyUs: 5 })
  const open = at.named('open')
  at.feed({ kind: 'restart', reign: 2, wallOffsetUs: 0, images: [moves[0] ?? ''] })
  assert.equal(at.core.calls.get(open)?.stage.kind, 'detached')
  assert.deepEqual([...at.core.states.values()].map(({ residence }) => residence.kind).sort(), ['gone', 'suspended'])
  assert.equal([...at.core.interrupts.values()].every(({ stage }) => stage.kind === 'waiting'), true)
  assert.deepEqual(kinds(at.feed({ kind: 'restart', reign: 2, wallOffsetUs: 0, images: [] })), ['result.ignored'])
})

test('cancel names the effects that remain and releases a copy under way as soon as it is quiet', () => {
  const at = new Quiet(1, { config: { residency: 'always-offload' } })
  const call = at.named('p')
  at.measure(call)
  at.end(call, { finish: 'tool_calls', toolCalls: [{ id: 'pay', name: 'pay' }], toolEffect: 'irreversible' })
  const move = only(at.log, 'kv.offload.begun')[0]?.move ?? moveId('')
  const facts = at.feed({ kind: 'cancelProgram', tenant: tenantId('t'), program: 'p' })
  assert.deepEqual(only(facts, 'program.cancelled')[0]?.effectsRemaining, [
    { interrupt: `${call}.wait`, effect: 'irreversible', effectKey: call, committed: [], unknown: ['pay'] },
  ])
  assert.equal(at.core.states.size, 1, 'isolated while its transfer runs')
  at.feed({ kind: 'moveDone', engine: E0, reign: 1, move, bytes: 7_000, digest: 'x', copyUs: 5 })
  assert.equal(at.core.states.size, 0)
  assert.equal(at.core.host.ownedBytes + at.core.host.reservedBytes, 0)
})

test('time that runs backwards stands still', () => {
  const at = new Quiet(1)
  at.submit()
  const { nowUs } = at.core
  at.nowUs = 5
  at.submit()
  assert.equal(at.core.nowUs, nowUs)
})
