import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { explain, type Explanation, type Live } from '../../src/core/explain/explain.ts'
import { columns, duration, explainText, size } from '../../src/core/explain/explain-text.ts'
import type { Fact, Logged } from '../../src/core/fact.ts'
import { bodyId, callId, engineId, interruptId, moveId, programId, stateId, tenantId, threadId } from '../../src/core/ids.ts'
import type { AttemptReport } from '../../src/core/input.ts'
import { PARTS, timelineOf } from '../../src/core/explain/timeline.ts'
import { emptyLedger } from '../../src/core/state.ts'

const tenant = tenantId('default')
const program = programId(tenant, 'p1')
const engine = engineId('e1')
const state = stateId('s1')
const identity = { source: 'explicit', confidence: 100 } as const

const report = (counts: Partial<AttemptReport> & { usefulUs?: number; recomputeUs?: number } = {}): AttemptReport => {
  const { usefulUs = 0, recomputeUs = 0, ...rest } = counts
  const service = emptyLedger()
  service.useful.residentUs = usefulUs
  service.recomputed.residentUs = recomputeUs
  return { service, tailPrefilled: 0, tailDecoded: 0, outputTokens: 0, recomputedTokens: 0, ...rest }
}

const started = (): Fact => ({
  kind: 'program.started', program, tenant, session: null, declared: false, agent: 'walker', identity, priorityClass: 'default', deadlineUs: null, parent: null, steps: null,
})
const arrived = (name: string, thread = 'main', answers: string | null = null): Fact => ({
  kind: 'call.arrived', call: callId(name), program, thread: threadId(program, thread), model: 'm', epoch: 0, band: 'default', payer: tenant, identity, digest: name,
  body: bodyId(name), seed: 1, maxTokens: 64, exactResume: true, promptTokens: 100, parents: [], node: null,
  answers: answers === null ? null : interruptId(callId(answers)), final: false, toolResults: [],
})
const ready = (name: string): Fact => ({ kind: 'call.ready', call: callId(name), level: 0, tie: 0 })
const scheduled = (name: string, attempt = 1, forcedTokens = 0): Fact => ({
  kind: 'call.scheduled', call: callId(name), attempt, engine, state, baseTokens: 0, keepTokens: 40, granules: 1, recomputeTokens: 0,
  forcedTokens, replay: 'exact', rank: 0, expectedWorkUs: 0,
})
const completed = (name: string, parts: readonly [number, number, number, number], finish: 'stop' | 'tool_calls' = 'stop'): Fact => ({
  kind: 'call.completed', call: callId(name), attempt: 1, finish, report: report({ outputTokens: 12, recomputedTokens: 5 }),
  parts: { waitUs: parts[0], recomputeUs: parts[1], prefillUs: parts[2], decodeUs: parts[3] }, spans: [], toolCalls: [], resume: 'none', supersedes: null,
})
const waitStarted = (name: string, toolClass = 'search'): Fact => ({
  kind: 'interrupt.started', interrupt: interruptId(callId(name)), call: callId(name), thread: threadId(program, 'main'), program, epoch: 0,
  of: 'TOOL', toolClass, toolCallIds: ['t'], effect: 'read', effectKey: 'k',
})
const waitCompleted = (name: string, by: string): Fact => ({ kind: 'interrupt.completed', interrupt: interruptId(callId(name)), by: callId(by), waitUs: 0 })
const onboard = (move: string, forCall: string | null): Fact => ({
  kind: 'kv.onboard.begun', move: moveId(move), state, engine, tokens: 100, reservedGranules: 1, forCall: forCall === null ? null : callId(forCall), expectedWorkUs: 0,
})
const moved = (move: string, to: 'device' | 'host' = 'device'): Fact => ({ kind: 'kv.moved', move: moveId(move), state, to, bytes: 3_000_000, engine, digest: 'd', copyUs: 900, dropImage: null })
const ended: Fact = { kind: 'program.completed', program, provisional: true }

/** Facts with their times, as the log would have them. */
const log = (...rows: readonly (readonly [number, Fact])[]): Logged[] => rows.map(([atUs, fact], seq) => ({ seq, atUs, version: 1, fact }))
const quiet = (nowUs: number): Live => ({ nowUs, queued: {} })

const sumOf = (parts: Explanation['parts']): number => PARTS.reduce((sum, part) => sum + parts[part], 0)
const only = (parts: Explanation['parts']): Record<string, number> => Object.fromEntries(Object.entries(parts).filter(([, us]) => us > 0))

/** Two calls and a tool between them: queue, two copies, and a resume. */
const TOOL_LOOP = log(
  [1_000, started()], [1_000, arrived('a')], [1_100, ready('a')], [3_000, scheduled('a')],
  [10_000, completed('a', [500, 0, 2_500, 3_000], 'tool_calls')], [10_000, waitStarted('a')],
  [10_000, { kind: 'kv.decided', state, interrupt: interruptId(callId('a')), choice: 'offload', options: [{ choice: 'preserve', cost: 9_000, infeasible: null }, { choice: 'offload', cost: 400, infeasible: null }, { choice: 'discard', cost: 0, infeasible: 'deadline' }], expectedWaitUs: 40_000, reconsiderAtUs: null, because: 'somebody waits for memory', performed: true }],
  [10_100, { kind: 'kv.offload.begun', move: moveId('m1'), state, engine, tokens: 100, reservedBytes: 3_000_000 }], [11_100, moved('m1', 'host')],
  [60_000, waitCompleted('a', 'b')], [60_000, arrived('b', 'main', 'a')], [60_050, ready('b')],
  [61_000, onboard('m2', 'b')], [63_000, moved('m2')], [63_010, scheduled('b')],
  [70_000, completed('b', [0, 1_000, 2_000, 3_000])], [70_000, ended],
)

describe('explain', () => {
  test('divides the wall time of a tool loop into its parts, exactly', () => {
    const explained = explain(TOOL_LOOP, quiet(99_000))
    assert.equal(explained.stage, 'completed')
    assert.equal(explained.wallUs, 69_000)
    assert.deepEqual(only(explained.parts), {
      queue: 2_000 + 1_000 + 10, copy: 2_000, recompute: 1_000, engineWait: 1_500 + 990, prefill: 4_500, decode: 6_000, toolWait: 50_000,
    })
    assert.equal(sumOf(explained.parts), explained.wallUs)
    assert.deepEqual(explained.calls.map((call) => only(call.parts)), [
      { queue: 2_000, engineWait: 1_500, prefill: 2_500, decode: 3_000 },
      { queue: 1_010, copy: 2_000, engineWait: 990, recompute: 1_000, prefill: 2_000, decode: 3_000 },
    ])
  })

  test('lists decisions with every cost and what the wait turned out to be, and copies with their outcome', () => {
    const explained = explain(TOOL_LOOP, quiet(99_000))
    const [decision] = explained.decisions
    assert.equal(decision?.choice, 'offload')
    assert.equal(decision?.costMicro, 400)
    assert.equal(decision?.expectedWaitUs, 40_000)
    assert.equal(decision?.waitUs, 50_000)
    assert.equal(decision?.after, 'a')
    assert.deepEqual(explained.moves.map((move) => [move.direction, move.outcome, move.bytes, move.forCall]), [
      ['offload', 'moved', 3_000_000, null], ['onboard', 'moved', 3_000_000, 'b'],
    ])
    assert.equal(explained.recomputedTokens, 10)
  })

  test('gives an instant of two threads to the busier of them', () => {
    const explained = explain(log(
      [0, started()], [0, arrived('a', 'one')], [0, scheduled('a')], [0, arrived('b', 'two')],
      [100, completed('a', [0, 0, 40, 60])], [150, scheduled('b')], [200, completed('b', [0, 0, 0, 50])], [200, ended],
    ), quiet(200))
    assert.deepEqual(only(explained.parts), { prefill: 40, decode: 110, queue: 50 })
  })

  test('clips parts that claim more than the attempt had', () => {
    const explained = explain(log([0, started()], [0, arrived('a')], [10, scheduled('a')], [60, completed('a', [900, 900, 30, 40])], [60, ended]), quiet(60))
    assert.deepEqual(only(explained.parts), { queue: 10, prefill: 10, decode: 40 })
  })

  test('reads an attempt that has not committed from its reports', () => {
    const explained = explain(log(
      [0, started()], [0, arrived('a')], [0, scheduled('a')],
      [100, { kind: 'call.progressed', call: callId('a'), attempt: 1, report: report({ tailPrefilled: 64, recomputedTokens: 32, recomputeUs: 50, usefulUs: 30 }) }],
      [200, { kind: 'call.progressed', call: callId('a'), attempt: 1, report: report({ tailPrefilled: 64, recomputedTokens: 32, recomputeUs: 50, usefulUs: 130, outputTokens: 9, tailDecoded: 9 }) }],
      [250, { kind: 'call.preempted', call: callId('a'), engine, by: callId('z'), gainUs: 5, restsUntilUs: 9, why: 'a better rank' }],
      [260, { kind: 'call.paused', call: callId('a'), report: report({ tailPrefilled: 64, recomputedTokens: 32, recomputeUs: 50, usefulUs: 190, outputTokens: 15, tailDecoded: 15 }) }],
      [300, scheduled('a', 1, 15)], [340, completed('a', [0, 0, 0, 40])], [340, ended],
    ), quiet(400))
    assert.deepEqual(only(explained.parts), { engineWait: 20, recompute: 50, prefill: 30, decode: 200, queue: 40 })
    assert.deepEqual(explained.events.map(({ what, why }) => [what, why]), [['preempted', 'by z: a better rank']])
  })

  test('counts a wasted attempt as it was spent, and lists the retry', () => {
    const explained = explain(log(
      [0, started()], [0, arrived('a')], [10, scheduled('a')],
      [50, { kind: 'call.retried', call: callId('a'), attempt: 2, why: 'engine lost' }],
      [70, scheduled('a', 2)], [90, completed('a', [0, 0, 5, 15])], [90, ended],
    ), quiet(90))
    assert.deepEqual(only(explained.parts), { queue: 30, engineWait: 40, prefill: 5, decode: 15 })
    assert.deepEqual(explained.events.map(({ what, why }) => [what, why]), [['retried', 'attempt 2: engine lost']])
  })

  test('gives the time between a provisional end and the call that reopens to the client', () => {
    const explained = explain(log(
      [0, started()], [0, arrived('a')], [0, scheduled('a')], [10, completed('a', [0, 0, 0, 10])], [10, ended],
      [500, { kind: 'program.reopened', program }], [500, arrived('b')], [500, scheduled('b')], [520, completed('b', [0, 0, 0, 20])], [520, ended],
      [900, { kind: 'program.closed', program }],
    ), quiet(1_000))
    assert.equal(explained.wallUs, 520)
    assert.deepEqual(only(explained.parts), { decode: 30, other: 490 })
  })

  test('says that it has ended also where none of its facts is kept any more, and waits for nothing then', () => {
    const known = { program: 'p', stage: 'failed', why: 'nobody answered' } as const
    const explained = explain([], { ...quiet(90), known })
    assert.deepEqual([explained.program, explained.stage, explained.why, explained.waiting, explained.whole], ['p', 'failed', 'nobody answered', [], false])
    assert.match(explainText(explained), /^p {2}failed after 0/)
    const open = explain(log([50, { kind: 'program.reopened', program }]), { ...quiet(90), known: { ...known, stage: 'open' } })
    assert.equal(open.stage, 'open')
  })

  test('is open again once it is reopened', () => {
    const explained = explain(log([0, started()], [10, ended], [50, { kind: 'program.reopened', program }]), quiet(90))
    assert.deepEqual([explained.stage, explained.wallUs, explained.waiting.length], ['open', 90, 1])
  })

  test('takes outputs that are fed again for recompute, not for decoding', () => {
    const explained = explain(log(
      [0, started()], [0, arrived('a')], [0, scheduled('a', 2, 15)],
      [100, { kind: 'call.progressed', call: callId('a'), attempt: 2, report: report({ outputTokens: 15, recomputedTokens: 80 }) }],
      [160, { kind: 'call.progressed', call: callId('a'), attempt: 2, report: report({ outputTokens: 16, recomputedTokens: 80 }) }],
    ), quiet(160))
    assert.deepEqual(only(explained.parts), { recompute: 100, decode: 60 })
  })

  test('ends a copy with its own move, and a call with its first end', () => {
    const explained = explain(log(
      [0, started()], [0, arrived('a')], [10, onboard('m1', 'a')], [20, onboard('m2', null)], [30, moved('m2')], [50, moved('m1')],
      [60, scheduled('a')], [80, completed('a', [0, 0, 0, 20])], [95, { kind: 'call.cancelled', call: callId('a'), why: 'late' }],
    ), quiet(100))
    assert.deepEqual(only(explained.parts), { queue: 20, copy: 40, decode: 20, other: 20 })
    assert.deepEqual(explained.calls.map(({ end, endedUs }) => [end, endedUs]), [['stop', 80]])
  })

  test('gives the time without a client to the client, until its retry is ready', () => {
    const explained = explain(log(
      [0, started()], [0, arrived('a')], [10, { kind: 'call.detached', call: callId('a') }], [40, ready('a')], [45, scheduled('a')], [50, completed('a', [0, 0, 0, 5])],
    ), quiet(50))
    assert.deepEqual(only(explained.parts), { queue: 15, other: 30, decode: 5 })
  })

  test('says that its record begins late', () => {
    const explained = explain(TOOL_LOOP.slice(5), quiet(99_000))
    assert.equal(explained.whole, false)
    assert.equal(sumOf(explained.parts), explained.wallUs)
    assert.equal(explain(TOOL_LOOP, quiet(99_000)).whole, true)
  })
})

describe('a program that waits', () => {
  const waits = (facts: Logged[], live: Live) => explain(facts, live).waiting

  test('in the queue says behind whom', () => {
    const facts = log([0, started()], [0, arrived('a')], [5, ready('a')])
    const queued = { what: 'needs 2 lanes, 1 is free', behind: { programs: ['p0'], others: 2 } }
    assert.deepEqual(waits(facts, { nowUs: 50, queued: { a: queued } }), [{ kind: 'queue', call: 'a', sinceUs: 0, queued }])
    assert.deepEqual(waits(facts, quiet(50)), [{ kind: 'queue', call: 'a', sinceUs: 0, queued: null }])
  })
  test('for a tool names it', () => {
    assert.deepEqual(waits(TOOL_LOOP.slice(0, 9), quiet(50_000)), [{ kind: 'tool', of: 'TOOL', toolClass: 'search', after: 'a', sinceUs: 10_000 }])
  })
  test('for a copy, on the engine, and for its client', () => {
    assert.deepEqual(waits(TOOL_LOOP.slice(0, 13), quiet(62_000)).map(({ kind }) => kind), ['copy'])
    assert.deepEqual(waits(TOOL_LOOP.slice(0, 15), quiet(64_000)).map(({ kind }) => kind), ['engine'])
    assert.deepEqual(waits(TOOL_LOOP.slice(0, 16), quiet(80_000)).map(({ kind, sinceUs }) => [kind, sinceUs]), [['client', 70_000]])
    assert.deepEqual(waits(log([0, started()]), quiet(9)).map(({ kind, sinceUs }) => [kind, sinceUs]), [['client', 0]])
  })
  test('no longer waits once it ended', () => {
    assert.deepEqual(waits(TOOL_LOOP, quiet(99_000)), [])
  })
})

// ---------------------------------------------------------------- any sequence of facts

const names = fc.constantFrom('a', 'b', 'c')
const us = fc.integer({ min: 0, max: 400 })
const anyReport = fc.record({ usefulUs: us, recomputeUs: us, outputTokens: us, recomputedTokens: us, tailPrefilled: us }).map(report)
/** Facts in no sensible order: an explanation must hold whatever the record says, also a record that begins late. */
const anyFact: fc.Arbitrary<Fact> = fc.oneof(
  fc.constant(started()), fc.constant(ended), fc.constant<Fact>({ kind: 'program.reopened', program }),
  fc.constant<Fact>({ kind: 'program.failed', program, why: 'x' }),
  fc.tuple(names, fc.constantFrom('one', 'two')).map(([name, thread]) => arrived(name, thread)),
  names.map(ready), names.map((name) => scheduled(name)),
  fc.tuple(names, us, us, us, us).map(([name, ...parts]) => completed(name, parts)),
  fc.tuple(names, anyReport).map(([name, each]): Fact => ({ kind: 'call.progressed', call: callId(name), attempt: 1, report: each })),
  fc.tuple(names, anyReport).map(([name, each]): Fact => ({ kind: 'call.paused', call: callId(name), report: each })),
  names.map((name): Fact => ({ kind: 'call.retried', call: callId(name), attempt: 2, why: 'x' })),
  names.map((name): Fact => ({ kind: 'call.detached', call: callId(name) })),
  names.map((name): Fact => ({ kind: 'call.cancelled', call: callId(name), why: 'x' })),
  names.map((name) => waitStarted(name)), names.map((name) => waitCompleted(name, 'b')),
  fc.tuple(names, names).map(([move, name]) => onboard(move, name)), names.map((move) => moved(move)),
)
const anyLog = fc.array(fc.tuple(fc.integer({ min: 0, max: 200 }), anyFact), { maxLength: 60 }).map((rows) => {
  let atUs = 1_000
  return log(...rows.map(([gapUs, fact]) => [atUs += gapUs, fact] as const))
})

describe('whatever the facts', () => {
  test('the precedence is the one stated', () => {
    assert.deepEqual([...PARTS], ['decode', 'prefill', 'recompute', 'copy', 'engineWait', 'queue', 'toolWait', 'other'])
  })

  test('the parts add up to the wall time, of the program and of each call', () => {
    fc.assert(fc.property(anyLog, fc.integer({ min: 0, max: 30_000 }), (facts, nowUs) => {
      const explained = explain(facts, quiet(nowUs))
      assert.equal(sumOf(explained.parts), explained.wallUs)
      assert.ok(PARTS.every((part) => Number.isInteger(explained.parts[part]) && explained.parts[part] >= 0))
      for (const call of explained.calls) {
        assert.ok(PARTS.every((part) => call.parts[part] >= 0))
        assert.equal(sumOf(call.parts), (call.endedUs ?? Math.max(explained.endUs, call.arrivedUs)) - call.arrivedUs)
      }
    }), { numRuns: 2_000 })
  })

  test('each instant counts as the first part in the order of precedence that any thread is in', () => {
    fc.assert(fc.property(anyLog, (facts) => {
      const explained = explain(facts, quiet(0))
      const { calls, waits } = timelineOf(facts, explained.endUs)
      const spans = [...calls.values()].flatMap((call) => call.spans)
      for (const wait of waits.values()) spans.push({ part: 'toolWait', fromUs: wait.startedUs, toUs: wait.endedUs ?? explained.endUs })
      const slow = Object.fromEntries(PARTS.map((part) => [part, 0]))
      for (let us = explained.startUs; us < explained.endUs; us++) {
        const here = PARTS.find((part) => spans.some((span) => span.part === part && span.fromUs <= us && us < span.toUs)) ?? 'other'
        slow[here] = (slow[here] ?? 0) + 1
      }
      assert.deepEqual(slow, Object.fromEntries(PARTS.map((part) => [part, explained.parts[part]])))
    }), { numRuns: 200 })
  })

  test('the parts shown add up to the total shown', () => {
    fc.assert(fc.property(anyLog, fc.integer({ min: 0, max: 200_000_000 }), (facts, nowUs) => {
      const lines = explainText(explain(facts, quiet(nowUs))).split('\n')
      const begin = lines.indexOf('where the time went')
      const figures = lines.slice(begin + 1, lines.findIndex((line) => line.startsWith('  total')) + 1)
        .map((line) => Math.round(Number(/ (\d+\.\d+) m?s/.exec(line)?.[1]) * 100))
      const total = figures.pop()
      assert.equal(figures.reduce((sum, figure) => sum + figure, 0), total)
    }), { numRuns: 1_000 })
  })
})

describe('the text', () => {
  test('of a tool loop', () => {
    const text = explainText(explain(TOOL_LOOP, quiet(99_000)))
    assert.match(text, /^p1 {2}completed after 69 ms, 2 calls in 1 thread, agent walker\n/)
    assert.match(text, /\n {2}tool wait +50\.0 ms +72 % +█+ +its tools ran\n/)
    assert.match(text, /\n {2}total +69\.0 ms +100 %\n/)
    assert.match(text, /\+9\.0 ms +a +offload +preserve 0\.009000, offload 0\.000400, discard no \(deadline\) +40 ms +50 ms +somebody waits for memory/)
    assert.match(text, /\n +\+60 ms +onboard +100 tokens +2\.9 MiB +900 µs +for b/)
  })
  test('of one that waits says for what and behind whom', () => {
    const facts = log([0, started()], [0, arrived('a')])
    const says = (programs: string[], others: number): string =>
      explainText(explain(facts, { nowUs: 2_500_000, queued: { a: { what: 'its turn', behind: { programs, others } } } }))
    assert.match(says(['p0', 'p1'], 0), /\n  a is in the queue \(2\.50 s so far\): its turn\n +behind p0, p1\n/)
    assert.match(says(['p0', 'p1', 'p2', 'p3', 'p4', 'p5', 'p6'], 3), /behind p0, p1, p2, p3, p4, 5 more\n/)
    assert.match(says([], 3), /behind 3 of others\n/)
  })
  test('has lengths of time and sizes that a person reads', () => {
    assert.deepEqual([0, 850, 1_500, 12_345, 3_420_000, 125_000_000, 7_260_000_000].map(duration),
      ['0', '850 µs', '1.5 ms', '12 ms', '3.42 s', '2 min 05 s', '2 h 01 min'])
    assert.deepEqual([12, 2_048, 3 << 20, 5 * 2 ** 30].map(size), ['12 B', '2.0 KiB', '3.0 MiB', '5.00 GiB'])
  })
  test('has aligned columns', () => {
    assert.deepEqual(columns([['a', '1'], ['bb', '10']], 'lr'), ['  a    1', '  bb  10'])
  })
})
