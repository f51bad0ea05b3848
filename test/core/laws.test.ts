/** Laws stated one by one, each the smallest history that could break it. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { engineId, moveId, tenantId, type CallId } from '../../src/core/ids.ts'
import { emptyLedger, type Capabilities, type Ledger } from '../../src/core/state.ts'
import { E0, kinds, only, Quiet, REPORT } from './quiet.ts'
import { CLAIMS, LANES, SPEEDS } from './world.ts'

const served = (residentUs: number): Ledger => ({ ...emptyLedger(), useful: { residentUs, workUs: residentUs } })
const ONE_LANE = { ...LANES, runningMax: 1, memory: { cells: 1_024, granule: 1_024, sequences: 1 } }

/** A program whose call was paused, with 60 prefilled and 4 decoded tokens, for an older one that came back; and that one. */
function withPaused(engine: Partial<Capabilities> = {}): { at: Quiet; young: CallId; back: CallId } {
  const at = new Quiet(1, { config: { preemptionRestUs: 0 }, engines: [{ ...ONE_LANE, ...engine }] })
  const old = at.waiting('old')
  const young = at.named('young')
  at.measure(young)
  copied(at)
  const back = at.named('old', [`tool-of-${old}`])
  at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: old, tokens: 69 }, renderingWon: null })
  assert.equal(at.core.calls.get(young)?.stage.kind, 'pausing')
  at.feed({ kind: 'paused', engine: E0, reign: 1, call: young, attempt: 1, run: 0, epoch: 1, report: { ...REPORT, tailDecoded: 4, outputTokens: 5 } })
  copied(at)
  assert.equal(at.core.calls.get(back)?.stage.kind, 'running')
  return { at, young, back }
}

function copied(at: Quiet, bytes = 7_000): void {
  for (let [move] = at.core.moves.values(); move !== undefined; [move] = at.core.moves.values()) {
    const { id, engine } = move
    at.feed({ kind: 'moveDone', engine, reign: at.core.reign, move: id, bytes, digest: 'x', copyUs: 5 })
  }
}

const scheduled = (at: Quiet, call: CallId) => only(at.log, 'call.scheduled').findLast((fact) => fact.call === call)
const stateOf = (at: Quiet, call: CallId) => at.core.states.get(at.core.threads.get(at.core.calls.get(call)?.thread as never)?.state as never)

// ---------------------------------------------------------------- attempts and ledgers

test('progress of an old reign is not heard, its speeds neither', () => {
  const at = new Quiet(1)
  const facts = at.feed({ kind: 'progress', engine: E0, reign: 0, speeds: { ...SPEEDS, decodeBaseNs: 1 }, calls: [] })
  assert.deepEqual(kinds(facts), ['result.ignored'])
  assert.equal(at.core.engines.get(E0)?.speeds.decodeBaseNs, SPEEDS.decodeBaseNs)
})

test('a second attempt reports from nothing, and is charged all of it', () => {
  const at = new Quiet(1)
  const call = at.named('p')
  at.measure(call)
  const report = (residentUs: number) => ({ ...REPORT, service: served(residentUs) })
  at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call, attempt: 1, run: 0, epoch: 1, report: report(500) }] })
  at.feed({ kind: 'attemptFailed', engine: E0, reign: 1, call, attempt: 1, run: 0, epoch: 1, retryable: true, why: '' })
  at.end(call, { report: report(300) })
  const ledger = at.core.programs.get(at.core.calls.get(call)?.program as never)?.ledger
  assert.deepEqual([ledger?.retried.residentUs, ledger?.useful.residentUs], [500, 300])
})

test('a call that resumes after a pause reports from nothing, and is charged all of it', () => {
  const { at, young, back } = withPaused()
  at.end(back)
  copied(at)
  assert.equal(at.core.calls.get(young)?.stage.kind, 'running')
  at.end(young, { report: { ...REPORT, service: served(200) } })
  assert.equal(at.core.calls.get(young)?.ledger.useful.residentUs, 700)
})

test('what a failed attempt was served is wasted, and said to be', () => {
  const at = new Quiet(1)
  const call = at.named('p')
  at.measure(call)
  at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call, attempt: 1, run: 0, epoch: 1, report: REPORT }] })
  at.feed({ kind: 'attemptFailed', engine: E0, reign: 1, call, attempt: 1, run: 0, epoch: 1, retryable: false, why: 'no' })
  const { ledger } = at.core.calls.get(call) ?? {}
  assert.deepEqual([ledger?.useful.workUs, ledger?.retried.workUs], [0, 400])
})

test('a running call is never taken to a better level by its own service', () => {
  const at = new Quiet(1, { config: { order: 'plas', levelQuantumUs: 100 } })
  const call = at.named('p')
  at.measure(call)
  const progress = (residentUs: number) => at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call, attempt: 1, run: 0, epoch: 1, report: { ...REPORT, service: served(residentUs) } }] })
  assert.equal(only(progress(150), 'call.demoted').length, 1)
  assert.equal(only(progress(160), 'call.demoted').length, 0)
  assert.equal(only(progress(10), 'call.demoted').length, 0)
})

test('a prompt that no engine can hold is refused when it is measured', () => {
  const at = new Quiet(1)
  const call = at.named('p')
  assert.equal(only(at.measure(call, 5_000), 'call.failed')[0]?.code, 'context_too_long')
})

// ---------------------------------------------------------------- KV

test('KV that was half recomputed when its call was paused is not kept: it is less than its State says', () => {
  const at = new Quiet(1, { config: { residency: 'always-discard', preemptionRestUs: 0 }, engines: [{ ...LANES, runningMax: 1, offload: false, onboard: false }] })
  const [old, young] = [at.waiting('old'), at.waiting('young')]
  const next = (program: string, first: CallId): CallId => {
    const call = at.named(program, [`tool-of-${first}`])
    at.feed({ kind: 'measured', call, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
    return call
  }
  const again = next('young', young)
  assert.equal(scheduled(at, again)?.recomputeTokens, 69)
  const back = next('old', old)
  assert.equal(at.core.calls.get(again)?.stage.kind, 'pausing')
  at.feed({ kind: 'paused', engine: E0, reign: 1, call: again, attempt: 1, run: 0, epoch: 1, report: { ...REPORT, recomputedTokens: 30, tailPrefilled: 0, tailDecoded: 0, outputTokens: 0 } })
  at.end(back)
  const { keepTokens, recomputeTokens } = scheduled(at, again) ?? {}
  assert.deepEqual([keepTokens, recomputeTokens], [0, 69])
})

test('KV that was half recomputed when its attempt failed is not kept', () => {
  const at = new Quiet(1, { config: { residency: 'always-discard' } })
  const first = at.waiting('p')
  const next = at.named('p', [`tool-of-${first}`])
  at.feed({ kind: 'measured', call: next, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
  assert.equal(scheduled(at, next)?.recomputeTokens, 69)
  const facts = at.feed({ kind: 'attemptFailed', engine: E0, reign: 1, call: next, attempt: 1, run: 0, epoch: 1, retryable: true, why: '' })
  assert.equal(only(facts, 'kv.discarded').length, 1)
  assert.equal(scheduled(at, next)?.recomputeTokens, 69)
  assert.equal(scheduled(at, next)?.keepTokens, 0)
})

test('what is fed again is counted once in its State', () => {
  const { at, young, back } = withPaused({ offload: false, onboard: false })
  at.end(back)
  const fact = scheduled(at, young)
  assert.equal(fact?.recomputeTokens, 64)
  assert.deepEqual(stateOf(at, young)?.tail, { prefilled: 0, decoded: 0 })
  at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call: young, attempt: 1, run: 1, epoch: 1, report: { ...REPORT, tailPrefilled: 10, tailDecoded: 0 } }] })
  assert.deepEqual(stateOf(at, young)?.tail, { prefilled: 10, decoded: 0 })
})

test('a call that continues an earlier point of its thread cuts the spans after it, and their Segments go', () => {
  const at = new Quiet(1)
  const first = at.named('p')
  at.measure(first)
  at.end(first)
  const next = at.named('p')
  at.feed({ kind: 'measured', call: next, promptTokens: 80, matched: { record: first, tokens: 40 }, renderingWon: null })
  assert.equal(scheduled(at, next)?.baseTokens, 40)
  assert.deepEqual(stateOf(at, next)?.spans.map(({ tokens }) => tokens), [40])
  assert.equal(at.core.segments.size, 1)
})

test('a new turn adopts the prefix that its prompt continues, and no other', () => {
  const at = new Quiet(1)
  const claims = { ...CLAIMS, session: 's', identity: { source: 'explicit', confidence: 100 } } as const
  const [one, other] = [at.submit({ claims }), at.submit({ claims })]
  for (const call of [one, other]) at.measure(call)
  for (const call of [one, other]) at.end(call)
  const next = at.submit({ claims })
  const facts = at.feed({ kind: 'measured', call: next, promptTokens: 80, matched: { record: other, tokens: 69 }, renderingWon: null })
  const adopted = only(facts, 'kv.adopted')[0]?.state
  assert.equal(at.core.states.get(adopted as never)?.record, other)
  const stranger = at.submit({ claims, tenant: tenantId('u') })
  assert.equal(only(at.feed({ kind: 'measured', call: stranger, promptTokens: 80, matched: { record: one, tokens: 69 }, renderingWon: null }), 'kv.adopted').length, 0)
})

test('a corrupt image is not tried a second time: its State is fed again', () => {
  const at = new Quiet(1, { config: { residency: 'always-offload' } })
  const call = at.waiting('p')
  copied(at)
  const next = at.named('p', [`tool-of-${call}`])
  at.feed({ kind: 'measured', call: next, promptTokens: 80, matched: { record: call, tokens: 69 }, renderingWon: null })
  const move = only(at.log, 'kv.onboard.begun')[0]?.move ?? moveId('')
  const facts = at.feed({ kind: 'moveFailed', engine: E0, reign: 1, move, why: 'its digest is another', sourceLost: true })
  assert.equal(only(facts, 'kv.move.failed')[0]?.dropImage !== null, true)
  assert.equal(scheduled(at, next)?.recomputeTokens, 69)
  assert.equal(at.core.host.ownedBytes, 0)
})

test('who may report a copy: the engine that makes it, in this reign, and no larger than its room', () => {
  const at = new Quiet(1, { config: { residency: 'always-offload' } })
  at.waiting('p')
  const move = [...at.core.moves.keys()][0] ?? moveId('')
  const done = (more: object) => at.feed({ kind: 'moveDone', engine: E0, reign: 1, move, bytes: 7_000, digest: 'x', copyUs: 5, ...more })
  assert.deepEqual(kinds(done({ reign: 0 })), ['result.ignored'])
  assert.deepEqual(kinds(done({ engine: engineId('e9') })), ['result.ignored'])
  assert.match(only(done({ bytes: 190_000 }), 'kv.move.failed')[0]?.why ?? '', /190000 bytes/)
})

test('images give way for others only as far as their room is needed, and what does not fit is not begun', () => {
  const at = new Quiet(1, { config: { residency: 'always-offload', hostBytesMax: 160_000 } })
  for (const program of ['a', 'b', 'c', 'd']) {
    at.waiting(program)
    assert.ok(at.core.host.ownedBytes + at.core.host.reservedBytes <= 160_000)
    copied(at)
  }
  assert.equal([...at.core.states.values()].filter(({ host }) => host !== null).length > 1, true)
})

test('a session keeps no more prefixes than sessionStatesMax, the newest; and goes with the last', () => {
  const at = new Quiet(1, { config: { sessionStatesMax: 2, programsMax: 3 } })
  const turn = (): CallId => {
    const call = at.submit({ claims: { ...CLAIMS, session: 's', identity: { source: 'explicit', confidence: 100 } } })
    at.measure(call)
    at.end(call)
    return call
  }
  const calls = [turn(), turn(), turn()]
  assert.deepEqual([...at.core.states.values()].map(({ record }) => record), calls.slice(1))
  at.run(at.nowUs + 4_000_000_000)
  for (let count = 0; count < 4; count += 1) at.named(`later-${count}`)
  assert.equal(at.core.sessions.size, 0)
})

test('with two engines the one that is lost takes only its own: calls, copies and KV', () => {
  const at = new Quiet(1, { engines: [ONE_LANE, ONE_LANE] })
  const [first, second] = [at.named('a'), at.named('b')]
  for (const call of [first, second]) at.measure(call)
  const engineOf = (call: CallId) => { const { stage } = at.core.calls.get(call) ?? {}; return stage?.kind === 'running' ? stage.engine : null }
  const kept = engineOf(first)
  at.feed({ kind: 'engineLost', engine: engineOf(second) as never, reign: 1, why: 'killed' })
  assert.equal(engineOf(first), kept)
  assert.equal(at.core.calls.get(second)?.stage.kind, 'ready')
  assert.equal(stateOf(at, second)?.device, null)
})

test('a copy from an engine that is lost ends with it, and its room on host is free again', () => {
  const at = new Quiet(1, { config: { residency: 'always-offload' } })
  at.waiting('p')
  assert.equal(at.core.moves.size, 1)
  at.feed({ kind: 'engineLost', engine: E0, reign: 1, why: 'killed' })
  assert.equal(at.core.moves.size, 0)
  assert.equal(at.core.host.reservedBytes, 0)
})

test('who joins, or is lost, in a reign that is over, is not heard', () => {
  const at = new Quiet(1)
  const joins = at.feed({ kind: 'engineJoined', engine: engineId('e9'), reign: 0, capabilities: LANES, speeds: SPEEDS })
  const loses = at.feed({ kind: 'engineLost', engine: E0, reign: 0, why: 'killed' })
  assert.deepEqual(kinds([...joins, ...loses]), ['result.ignored', 'result.ignored'])
  assert.deepEqual([...at.core.engines.values()].map(({ id, stage }) => [id, stage]), [[E0, 'joined']])
})

test('a call that comes back is told what it has shown already, and its memory is reserved before its copy begins', () => {
  const { at, young, back } = withPaused()
  at.end(back)
  for (let [move] = at.core.moves.values(); move?.from === 'device'; [move] = at.core.moves.values()) {
    at.feed({ kind: 'moveDone', engine: E0, reign: 1, move: move.id, bytes: 7_000, digest: 'x', copyUs: 5 })
  }
  assert.equal(at.core.calls.get(young)?.stage.kind, 'resuming')
  assert.equal(at.core.engines.get(E0)?.reservedGranules, 1)
  copied(at)
  const { forcedTokens, keepTokens } = scheduled(at, young) ?? {}
  assert.deepEqual([forcedTokens, keepTokens], [5, 64])
})

// ---------------------------------------------------------------- who may say what

test('a tool result is no way into the program of another', () => {
  const at = new Quiet(1)
  const call = at.waiting('p')
  at.named('q')
  at.named('q', [`tool-of-${call}`])
  assert.deepEqual(only(at.log, 'call.refused').map(({ code }) => code), ['unknown_tool_call'])
  at.named('p', [`tool-of-${call}`], { tenant: tenantId('u') })
  assert.equal(only(at.log, 'call.arrived').at(-1)?.answers, null)
})

test('a tool call id that an engine gives twice belongs to the later call, also when the earlier program is forgotten', () => {
  const at = new Quiet(1, { config: { programsMax: 2 } })
  const [first, second] = [at.named('a'), at.named('b')]
  for (const call of [first, second]) {
    at.measure(call)
    at.end(call, { finish: 'tool_calls', toolCalls: [{ id: 'same', name: 'search' }] })
  }
  at.feed({ kind: 'cancelProgram', tenant: tenantId('t'), program: 'a' })
  at.named('c')
  assert.equal(only(at.log, 'program.forgotten').length, 1)
  assert.equal(at.core.toolCalls.get('t/same')?.call, second)
  at.feed({ kind: 'cancelProgram', tenant: tenantId('t'), program: 'b' })
  at.named('d')
  assert.equal(at.core.toolCalls.size, 0)
})

test('an interrupt carries the worst effect of its tools', () => {
  const at = new Quiet(1, { config: { toolEffects: { look: 'read', pay: 'irreversible', note: 'idempotent' } } })
  const call = at.named('p')
  at.measure(call)
  at.end(call, { finish: 'tool_calls', toolCalls: ['look', 'pay', 'note'].map((name) => ({ id: `of-${name}`, name })) })
  assert.equal(only(at.log, 'interrupt.started')[0]?.effect, 'irreversible')
})

// ---------------------------------------------------------------- memory, order and time

const BLOCKS_16 = { ...LANES, runningMax: 4, memory: { cells: 256, granule: 16, sequences: 4 } }

test('memory that is kept for a call is not given to a worse one, and goes to it when there is enough', () => {
  const at = new Quiet(1, { config: { order: 'fcfs' }, engines: [BLOCKS_16] })
  const [large, wide, small] = [at.named('a'), at.named('b'), at.named('c')]
  at.measure(large, 120)
  at.measure(wide, 120)
  at.measure(small, 40)
  assert.deepEqual([large, wide, small].map((call) => at.core.calls.get(call)?.stage.kind), ['running', 'ready', 'ready'])
  at.end(large)
  at.feed({ kind: 'finishProgram', tenant: tenantId('t'), program: 'a' })
  copied(at)
  assert.deepEqual([wide, small].map((call) => at.core.calls.get(call)?.stage.kind), ['running', 'running'])
})

test('no engine holds more sequences than it says it can, however small they are', () => {
  const at = new Quiet(1, { config: { order: 'fcfs' }, engines: [{ ...BLOCKS_16, memory: { cells: 4_096, granule: 16, sequences: 2 } }] })
  const calls = [at.named('a'), at.named('b'), at.named('c')]
  for (const call of calls) at.measure(call, 20)
  assert.deepEqual(calls.map((call) => at.core.calls.get(call)?.stage.kind), ['running', 'running', 'ready'])
})

test('recomputing what was evicted ages nobody: not the program, not its level, not its place among others', () => {
  const at = new Quiet(1, { config: { order: 'plas', levelQuantumUs: 100 } })
  const call = at.named('p')
  at.measure(call)
  const service = { ...emptyLedger(), recomputed: { residentUs: 90_000, workUs: 80_000 } }
  const facts = at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call, attempt: 1, run: 0, epoch: 1, report: { ...REPORT, service } }] })
  assert.equal(only(facts, 'call.demoted').length, 0)
  const program = at.core.programs.get(at.core.calls.get(call)?.program as never)
  assert.deepEqual([program?.standing.servedUs, program?.ledger.recomputed.workUs], [0, 80_000])
})

test('a timer that was set anew is not due at its old time', () => {
  const at = new Quiet(1)
  const call = at.waiting('p')
  const timer = `expire:${call}.wait`
  assert.deepEqual(at.feed({ kind: 'due', timer }), [])
  assert.equal(at.core.timers.has(timer), true)
})

test('of many engines a few are looked at, but never so few that a call finds none that could hold it', () => {
  const small = { ...LANES, memory: { cells: 128, granule: 16, sequences: 4 } }
  for (let place = 0; place < 6; place += 1) {
    const engines = Array.from({ length: 6 }, (_, index) => (index === place ? LANES : small))
    const at = new Quiet(1, { config: { placementEnginesMax: 2 }, engines })
    const call = at.named('p')
    at.measure(call, 800)
    assert.equal(at.core.calls.get(call)?.stage.kind, 'running', `the large one is e${place}`)
  }
})

test('KV of a call whose client is gone is kept from nobody', () => {
  const engine = { ...ONE_LANE, inventory: true }
  const at = new Quiet(1, { config: { residency: 'always-preserve' }, engines: [engine] })
  const first = at.waiting('old')
  const next = at.named('old', [`tool-of-${first}`])
  const young = at.named('young')
  const [state] = at.core.states.keys()
  at.feed({ kind: 'restart', reign: 2, wallOffsetUs: 0, images: [] })
  assert.equal(at.core.calls.get(next)?.stage.kind, 'detached')
  at.feed({
    kind: 'engineJoined', engine: E0, reign: 2, capabilities: engine, speeds: SPEEDS, inventory: [{ state: state as never, epoch: 1, tokens: 69, digest: 'b' }],
  })
  assert.equal(at.core.states.get(state as never)?.residence.kind, 'suspended')
  at.submit({ call: 'again' as CallId, digest: at.core.calls.get(young)?.digest ?? '', claims: { ...CLAIMS, program: 'young', identity: { source: 'explicit', confidence: 100 } } })
  at.measure(young)
  copied(at)
  assert.equal(at.core.calls.get(young)?.stage.kind, 'running')
})

test('one call at a time gives up its place on an engine, however many better ones wait', () => {
  const at = new Quiet(1, { config: { preemptionRestUs: 0, residency: 'always-discard' }, engines: [{ ...LANES, runningMax: 2 }] })
  const olds = [at.waiting('old-1'), at.waiting('old-2')]
  const youngs = [at.named('young-1'), at.named('young-2')]
  for (const call of youngs) at.measure(call)
  for (const [index, first] of olds.entries()) {
    const call = at.named(`old-${index + 1}`, [`tool-of-${first}`])
    at.feed({ kind: 'measured', call, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
  }
  assert.equal(only(at.log, 'call.preempted').length, 1)
  const [worst] = only(at.log, 'call.preempted').map(({ call }) => call)
  at.feed({ kind: 'paused', engine: E0, reign: 1, call: worst ?? youngs[0] as CallId, attempt: 1, run: 0, epoch: 1, report: REPORT })
  assert.equal(only(at.log, 'call.preempted').length, 2)
})

test('who waited for KV that was kept for a call is looked at when that call fails before it was ready', () => {
  const at = new Quiet(1, { config: { order: 'fcfs-program', residency: 'always-preserve' }, engines: [ONE_LANE] })
  const first = at.waiting('old')
  const next = at.named('old', [`tool-of-${first}`])
  const young = at.named('young')
  at.measure(young)
  assert.equal(at.core.calls.get(young)?.stage.kind, 'ready')
  at.feed({ kind: 'measureFailed', call: next, code: 'bad_body', why: '' })
  copied(at)
  assert.equal(at.core.calls.get(young)?.stage.kind, 'running')
})

test('room on host that comes free lets KV give way that could not before', () => {
  const at = new Quiet(1, { config: { order: 'fcfs-program', hostBytesMax: 80_000 }, engines: [{ ...LANES, runningMax: 2, memory: { cells: 2_048, granule: 1_024, sequences: 2 } }] })
  at.waiting('hosted')
  const [runs, idle] = [at.named('runs'), at.named('idle')]
  at.measure(runs)
  at.measure(idle)
  copied(at, 70_000)
  assert.equal(at.core.host.ownedBytes > 0, true)
  at.endWithTool(idle)
  const young = at.named('young')
  at.measure(young)
  assert.equal(at.core.calls.get(young)?.stage.kind, 'ready')
  assert.equal(at.core.moves.size, 0)
  at.feed({ kind: 'cancelProgram', tenant: tenantId('t'), program: 'hosted' })
  assert.equal(at.core.moves.size, 1)
  copied(at)
  assert.equal(at.core.calls.get(young)?.stage.kind, 'running')
})
