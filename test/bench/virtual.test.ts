import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { clairvoyant } from '../../bench/clairvoyant.ts'
import { EventHeap } from '../../bench/event-heap.ts'
import { learning, MIX, scoring, SPEEDS } from '../../bench/orders-plan.ts'
import { planThreads } from '../../bench/virtual-agent.ts'
import { VirtualEngine, type Attempt } from '../../bench/virtual-engine.ts'
import { VirtualWorld, type Outcome } from '../../bench/virtual-world.ts'
import { emptyCore } from '../../src/core/apply.ts'
import { CORE_DEFAULTS, type CoreConfig } from '../../src/core/config.ts'
import { callId } from '../../src/core/ids.ts'
import { withOrder } from '../../src/core/policy/orders.ts'
import type { CoreState } from '../../src/core/state.ts'
import { Draw } from '../../src/eval/draw.ts'
import type { TraceNode } from '../../src/eval/traces.ts'

const ATTEMPT: Attempt = {
  call: callId('a'), attempt: 1, run: 0, epoch: 0, readTokens: 1_000, recomputeTokens: 0, tailTokens: 0, promptTailTokens: 1_000, madeTokens: 0, outputTokens: 11,
}
const call = (parents: readonly number[], promptTokens = 100, newTokens = promptTokens, outputTokens = 10): TraceNode => ({ kind: 'call', parents, promptTokens, newTokens, outputTokens })
const tool = (parents: readonly number[]): TraceNode => ({ kind: 'tool', parents, tool: 'x', waitUs: 1_000 })

describe('the virtual engine', () => {
  test('takes for a call alone what its speeds say: two chunks read, the second making a token, and ten steps', () => {
    const engine = new VirtualEngine(SPEEDS, 1e9)
    engine.start(ATTEMPT, 5)
    const said = endOf(engine)
    const expectedUs = 2 * 12_000 + 1_000 * 100 + 10 * 12_150
    assert.deepEqual([said.atUs, said.residentUs, said.workUs, engine.busyUs], [5 + expectedUs, expectedUs, expectedUs, expectedUs])
  })

  test('divides its busy time over its members, whoever joins, pauses and comes back when', () => {
    const draw = new Draw(3)
    const engine = new VirtualEngine(SPEEDS, 300_000)
    const left = new Map<string, Attempt>()
    let workUs = 0
    let nowUs = 0
    for (let at = 0; at < 200; at += 1) {
      const nextUs = engine.nextUs()
      const comesUs = nowUs + draw.below(400_000)
      if (nextUs !== null && nextUs <= comesUs) {
        nowUs = nextUs
        for (const said of engine.speak(nowUs)) {
          if (said.kind === 'progress') continue
          workUs += said.report.service.useful.workUs + said.report.service.recomputed.workUs
          left.delete(said.of.call)
        }
        continue
      }
      nowUs = comesUs
      const [first] = left.keys()
      if (first !== undefined && draw.unit() < 0.3) engine.pause(callId(first), nowUs)
      else if (left.size < 8) {
        const attempt = { ...ATTEMPT, call: callId(`c${at}`), readTokens: draw.below(2_000), recomputeTokens: 0, outputTokens: 1 + draw.below(60) }
        left.set(attempt.call, attempt)
        engine.start(attempt, nowUs)
      }
    }
    for (let nextUs = engine.nextUs(); nextUs !== null; nextUs = engine.nextUs()) {
      for (const said of engine.speak(nextUs)) if (said.kind !== 'progress') workUs += said.report.service.useful.workUs
    }
    assert.ok(engine.busyUs > 5_000_000)
    assert.ok(workUs <= engine.busyUs && workUs > engine.busyUs * 0.999, `${workUs} of ${engine.busyUs}`)
  })

  function endOf(engine: VirtualEngine): { atUs: number; residentUs: number; workUs: number } {
    for (let nextUs = engine.nextUs(); nextUs !== null; nextUs = engine.nextUs()) {
      for (const said of engine.speak(nextUs)) if (said.kind === 'finished') return { atUs: nextUs, ...said.report.service.useful }
    }
    throw new Error('it never ended')
  }
})

describe('the threads of a graph', () => {
  const threadsOf = (...nodes: readonly TraceNode[]): readonly string[] =>
    [...planThreads({ id: 'p', source: 's', sharedTokens: 0, arrivalUs: null, nodes }).values()].map(({ place, thread, continues, tools }) => `${place}:${thread}<${continues}${tools.join('')}`)

  test('a chain is one, and a call before a tool ends in it', () =>
    assert.deepEqual(threadsOf(call([]), tool([0]), call([1]), call([2])), ['0:t0<-1x', '2:t0<0', '3:t0<2']))
  test('of a fork one call goes on in the thread, and a join goes on in the last of its parents\'', () =>
    assert.deepEqual(threadsOf(call([]), call([0]), call([0]), call([1, 2])), ['0:t0<-1', '1:t0<0', '2:t2<-1', '3:t2<2']))
})

describe('a run in virtual time', () => {
  const CONFIG: CoreConfig = { ...CORE_DEFAULTS, exactResume: false, idleMemorySecondMicro: 0, hostBytesMax: Number.MAX_SAFE_INTEGER, callsOpenMax: 10_000, tenantCallsOpenMax: 10_000 }
  const programs = scoring(MIX, { load: 'burst', seed: 1, programsMax: 27, callsMax: 1e9 })
  const run = (config: CoreConfig, cells = 1 << 30, core: CoreState = emptyCore(config)): Outcome =>
    new VirtualWorld(core, { engine: 'e', speeds: SPEEDS, cells, kvBytesPerToken: 131_072 }).run(programs)

  test('ends every program of every trace, under any order and in little memory, and comes out the same again', () => {
    for (const order of ['fcfs', 'plas'] as const) {
      const little = run({ ...CONFIG, order }, 400_000)
      assert.deepEqual(little.programs.map(({ name }) => name).sort(), programs.map(({ name }) => name).sort())
      assert.deepEqual(run({ ...CONFIG, order }, 400_000), little)
    }
  })

  test('costs the engine nothing more where nothing is lost', () => {
    const outcome = run({ ...CONFIG, order: 'fcfs-program' })
    assert.equal(outcome.recomputedTokens, 0)
  })

  test('who knows the future beats who does not', () => {
    const mean = ({ programs: times }: Outcome): number => times.reduce((sum, { timeUs }) => sum + timeUs, 0) / times.length
    const known = run(withOrder(CONFIG, clairvoyant(programs)))
    const share = mean(known) / mean(run({ ...CONFIG, order: 'fcfs' }))
    assert.ok(share < 0.95, String(share))
  })

  test('is scored on no program that was learned from, unless a trace has only one', () => {
    const learned = new Set(learning(MIX).map(({ of }) => `${of.source} ${of.id}`))
    const twice = programs.filter(({ of }) => learned.has(`${of.source} ${of.id}`)).map(({ of }) => of.source)
    assert.deepEqual([...new Set(twice)].sort(), ['lats-hotpot-tree', 'tracelab-example'])
  })

  test('every trace lends the mix as many programs', () => {
    const counts = new Map<string, number>()
    for (const { of } of programs) counts.set(of.source, (counts.get(of.source) ?? 0) + 1)
    assert.deepEqual([...new Set(counts.values())], [3])
  })
})

test('a heap gives the earliest first, and the earlier put first among equals', () => {
  const heap = new EventHeap<number>()
  const draw = new Draw(1)
  const put = Array.from({ length: 300 }, (_, what) => ({ atUs: draw.below(20), what }))
  for (const { atUs, what } of put) heap.put(atUs, what)
  const taken = put.map(() => heap.take()?.what)
  assert.deepEqual(taken, [...put].sort((a, b) => a.atUs - b.atUs || a.what - b.what).map(({ what }) => what))
  assert.equal(heap.take(), null)
})
