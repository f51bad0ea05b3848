import assert from 'node:assert/strict'
import { test } from 'node:test'
import { explain } from '../../src/core/explain/explain.ts'
import { explainText } from '../../src/core/explain/explain-text.ts'
import { engineId, type CallId } from '../../src/core/ids.ts'
import { stateOf } from '../../src/core/kv/kv-read.ts'
import { candidatesFor } from '../../src/core/policy/placements.ts'
import { leastSeconds } from '../../src/core/policy/placement/least-seconds.ts'
import { mostRoom } from '../../src/core/policy/placement/most-room.ts'
import type { Candidate } from '../../src/core/policy/placement/placement.ts'
import { sitesOf } from '../../src/core/site.ts'
import type { Capabilities, CoreState } from '../../src/core/state.ts'
import { Quiet, REPORT, kinds, only } from './quiet.ts'
import { BLOCKS, LANES, SPEEDS, World, random } from './world.ts'

const E1 = engineId('e1')
const NOBODY = new Map()
const ONE: Capabilities = { ...LANES, memory: { cells: 1_024, granule: 1_024, sequences: 1 }, runningMax: 1 }

const whereOf = (at: World, call: CallId): string | null => {
  const stage = at.core.calls.get(call)?.stage
  return stage?.kind === 'running' || stage?.kind === 'resuming' ? stage.engine : null
}
const totalUs = (one: Candidate): number => one.queueUs + one.prefillUs + one.transferUs + one.criticalUs + one.pressureUs
const done = (at: World): void => {
  for (const { id, engine } of [...at.core.moves.values()]) at.feed({ kind: 'moveDone', engine, reign: at.core.reign, move: id, bytes: 7_000, digest: 'x', copyUs: 5 })
}
function priced(core: CoreState, id: CallId, ahead = NOBODY): Candidate[] {
  const call = core.calls.get(id)
  assert.ok(call !== undefined)
  const state = stateOf(core, call)
  return leastSeconds.priced(core, call, state, candidatesFor(core, call, state, sitesOf(core, call.model)), ahead)
}
/** The next call of a program whose State lies on the first engine, where other calls now run. */
function returning(at: Quiet, more: Parameters<Quiet['feed']>[0] | null = null): CallId {
  const first = at.waiting('home')
  if (more !== null) at.feed(more)
  at.measure(at.named('busy'))
  const back = at.named('home', [`tool-of-${first}`])
  at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
  return back
}

test('a decision among engines says every term of every one that was looked at, and the least sum is taken', () => {
  const at = new Quiet(1, { engines: [LANES, LANES] })
  at.measure(at.named('first'))
  const second = at.named('second')
  at.measure(second)
  const placed = only(at.log, 'call.placed').find(({ call }) => call === second)
  assert.deepEqual(placed?.candidates.map(({ engine }) => engine), ['e0', 'e1'])
  assert.equal(placed?.engine, 'e1')
  const [busy, idle] = placed?.candidates ?? []
  assert.ok(busy !== undefined && idle !== undefined && totalUs(busy) > totalUs(idle))
  // 32 tokens of output (its grant) at 15 ms a step and 2 ms for each row; 60 tokens to read at 5 ms.
  assert.deepEqual(idle, { engine: 'e1', way: 'fresh', queueUs: 0, prefillUs: 300_000, transferUs: 0, criticalUs: 32 * 17_000, pressureUs: 0 })
  assert.equal(busy.criticalUs, 32 * 19_000)
})

test('an explanation shows every engine that was looked at with its terms, and which was taken', () => {
  const at = new Quiet(1, { engines: [LANES, LANES] })
  at.measure(at.named('first'))
  const text = explainText(explain(at.log.filter(({ fact }) => fact.kind.startsWith('call.')), { nowUs: at.nowUs, queued: {} }))
  assert.match(text, /where its calls were placed/)
  assert.match(text, /> e0 +fresh +0 +300 ms +0 +544 ms +0 +844 ms\n.*  e1 +fresh/)
})

test('one engine alone is no choice: nothing is told', () => {
  const at = new Quiet(1)
  at.measure(at.named('p'))
  assert.equal(only(at.log, 'call.placed').length, 0)
})

test('a State keeps its call while its engine has a place, and yields to load: it goes through host to one that has', () => {
  const free = new Quiet(1, { config: { placementGainUs: 100_000 }, engines: [LANES, LANES] })
  assert.equal(whereOf(free, returning(free)), 'e0')
  const at = new Quiet(1, { config: { order: 'fcfs' }, engines: [{ ...LANES, runningMax: 1 }, { ...LANES, runningMax: 1 }] })
  const first = at.waiting('home')
  const others = [at.named('one'), at.named('two')]
  for (const call of others) at.measure(call)
  assert.deepEqual(others.map((call) => whereOf(at, call)).sort(), ['e0', 'e1'])
  const back = at.named('home', [`tool-of-${first}`])
  at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
  assert.equal(whereOf(at, back), null)
  at.end(others.find((call) => whereOf(at, call) === 'e1') as CallId)
  const transferOf = (way: string): number | undefined =>
    only(at.log, 'call.placed').findLast((fact) => fact.call === back && fact.way === way)?.candidates.find((one) => one.engine === 'e1')?.transferUs
  // 8 us a token out, and 8 in.
  assert.equal(transferOf('moved'), 69 * 16)
  done(at)
  assert.equal(transferOf('onboarded'), 69 * 8)
  assert.equal(whereOf(at, back), 'e1')
  done(at)
  const scheduled = only(at.log, 'call.scheduled').find(({ call }) => call === back)
  assert.deepEqual([scheduled?.engine, scheduled?.keepTokens, scheduled?.recomputeTokens], ['e1', 69, 0])
})

test('an image that the other engine cannot read is no way there: feeding again is priced instead, as it would be done', () => {
  const back = (exact: 'yes' | 'no'): Candidate | undefined => {
    const at = new Quiet(1, { engines: [LANES, { ...LANES, imageKey: 'other', exact: { answer: exact, because: '' } }] })
    const call = returning(at)
    return priced(at.core, call).find(({ engine }) => engine === 'e1')
  }
  const plain = back('no')
  const exact = back('yes')
  assert.deepEqual([plain?.way, plain?.transferUs, exact?.way, exact?.transferUs], ['recomputed', 0, 'recomputed', 0])
  // 11 new tokens and 69 fed again; exact: 60 of them at 5 ms and 9 one by one at a step each.
  assert.equal(plain?.prefillUs, 80 * 5_000)
  assert.equal(exact?.prefillUs, 71 * 5_000 + 9 * 17_000)
})

test('a copy slower than feeding again is not made', () => {
  const slow = { ...SPEEDS, copyOutNsPerToken: 9_000_000 }
  const at = new Quiet(1, { engines: [LANES, LANES] })
  const back = returning(at, { kind: 'progress', engine: engineId('e0'), reign: 1, speeds: slow, calls: [] })
  assert.equal(priced(at.core, back).find(({ engine }) => engine === 'e1')?.way, 'recomputed')
})

test('what is waited for in the queue is not pressure too, and memory that idle States hold is pressure, not queue', () => {
  const full = (ends: boolean): Candidate | undefined => {
    const at = new Quiet(1, { config: { residency: 'always-preserve' }, engines: [BLOCKS] })
    for (const program of ['a', 'b', 'c', 'd']) {
      const call = at.named(program)
      at.measure(call, 930)
      if (ends) at.endWithTool(call)
    }
    const late = at.named('late', [], { promptTokensEstimate: 300 })
    return priced(at.core, late)[0]
  }
  const running = full(false)
  const idle = full(true)
  assert.ok(running !== undefined && idle !== undefined)
  assert.ok(running.queueUs > 0)
  assert.equal(idle.queueUs, 0)
  // What running calls may grow by before one of them leaves is pressure either way; the rest is in one term only.
  assert.ok(idle.pressureUs > 0)
  assert.equal(running.pressureUs, (4 * 2 * 16 * 16_000) / 1_000)
})

test('memory that calls before it wait for is not counted as free', () => {
  const at = new Quiet(1, { engines: [BLOCKS, BLOCKS] })
  const call = at.named('p')
  at.measure(call)
  const [alone] = priced(at.core, call)
  const [behind] = priced(at.core, call, new Map([[engineId('e0'), { calls: 1, granules: 256 }]]))
  assert.ok(alone !== undefined && behind !== undefined)
  assert.ok(behind.pressureUs + behind.queueUs > alone.pressureUs + alone.queueUs)
})

test('each call before it that waits for the same engine is one more departure to wait for', () => {
  const at = new Quiet(1, { engines: [{ ...LANES, runningMax: 1 }, LANES] })
  at.measure(at.named('runs'))
  const call = at.named('p')
  at.measure(call)
  const queueOf = (calls: number): number => priced(at.core, call, new Map([[engineId('e0'), { calls, granules: 0 }]]))[0]?.queueUs ?? NaN
  assert.ok(queueOf(0) > 0)
  assert.deepEqual([queueOf(1), queueOf(3)], [2 * queueOf(0), 4 * queueOf(0)])
})

test('when an engine is lost, what ran there is placed again in the same step', () => {
  const at = new Quiet(1, { engines: [LANES, LANES] })
  const call = at.named('p')
  at.measure(call)
  assert.equal(whereOf(at, call), 'e0')
  const facts = at.feed({ kind: 'engineLost', engine: engineId('e0'), reign: 1, why: 'killed' })
  assert.equal(only(facts, 'call.scheduled')[0]?.engine, E1)
})

test('an engine too small for a call is never one of its candidates, however free it is', () => {
  const small: Capabilities = { ...LANES, memory: { cells: 64, granule: 16, sequences: 4 }, contextTokens: 1_024 }
  for (const placement of ['least-seconds', 'most-room'] as const) {
    const at = new Quiet(1, { config: { placement }, engines: [small, ONE] })
    const calls = [at.named('one'), at.named('two')]
    for (const call of calls) at.measure(call, 500)
    assert.deepEqual(calls.map((call) => whereOf(at, call)), ['e1', null])
  }
})

test('of many engines so many are looked at as the limit says, and always the one that has the KV', () => {
  const at = new Quiet(1, { config: { placementEnginesMax: 3 }, engines: Array.from({ length: 9 }, () => LANES) })
  const first = at.waiting('home')
  const back = at.named('home', [`tool-of-${first}`])
  const call = at.core.calls.get(back)
  assert.ok(call !== undefined)
  const state = stateOf(at.core, call)
  const found = candidatesFor(at.core, call, state, sitesOf(at.core, call.model)).map(({ engine }) => engine.id)
  assert.ok(found.length === 3 || found.length === 4, found.join(' '))
  assert.ok(found.includes(state?.device?.engine as never))
})

test('engines that cannot run a call take no place among those that are looked at', () => {
  const others = Array.from({ length: 8 }, () => ({ ...LANES, models: ['other'] }))
  const at = new Quiet(1, { config: { placementEnginesMax: 2 }, engines: [...others, LANES] })
  for (const name of ['a', 'b', 'c']) {
    const call = at.named(name)
    at.measure(call)
    assert.equal(whereOf(at, call), 'e8')
  }
})

test('the two placements differ where they should: one waits for its KV, the other goes where it is done sooner', () => {
  const at = new Quiet(1, { engines: [{ ...LANES, runningMax: 1 }, { ...LANES, runningMax: 1 }] })
  const back = returning(at)
  const call = at.core.calls.get(back)
  assert.ok(call !== undefined)
  const state = stateOf(at.core, call)
  const home = at.core.engines.get(state?.device?.engine ?? E1)
  assert.ok(home !== undefined)
  home.running.add('another' as CallId)
  const candidates = candidatesFor(at.core, call, state, sitesOf(at.core, call.model))
  assert.equal(mostRoom.place(at.core, call, state, candidates, NOBODY).site.engine.id, home.id)
  assert.notEqual(leastSeconds.place(at.core, call, state, candidates, NOBODY).site.engine.id, home.id)
})

test('a gain below the stated one moves nothing', () => {
  const moves = (placementGainUs: number): number => {
    const at = new Quiet(1, { config: { placementGainUs }, engines: [LANES, LANES] })
    const first = at.waiting('home')
    at.measure(at.named('one'))
    at.measure(at.named('two'))
    at.measure(at.named('three'))
    const back = at.named('home', [`tool-of-${first}`])
    at.feed({ kind: 'measured', call: back, promptTokens: 80, matched: { record: first, tokens: 69 }, renderingWon: null })
    return only(at.log, 'kv.offload.begun').length
  }
  assert.deepEqual([moves(10_000_000), moves(0)], [0, 1])
})

test('joint policies set order, residency and placement together; observing is the engines\' own joint', () => {
  const own = new Quiet(1, { config: { joint: 'engine-own' }, engines: [LANES, LANES] })
  const seen = new Quiet(1, { config: { mode: 'observe' }, engines: [LANES, LANES] })
  const ours = new Quiet(1, { config: { joint: 'entracte', order: 'fcfs', placement: 'most-room' }, engines: [LANES, LANES] })
  for (const at of [own, seen, ours]) for (const program of ['a', 'b']) at.measure(at.named(program))
  assert.equal(only(own.log, 'call.placed').length, 0)
  assert.equal(only(ours.log, 'call.placed').length, 2)
  assert.deepEqual(kinds(own.log).filter((kind) => kind.startsWith('call.')), kinds(seen.log).filter((kind) => kind.startsWith('call.')))
})

test('whatever the load, the engine taken is the least of its candidates, home being allowed the stated gain', () => {
  const chance = random(5)
  for (let round = 0; round < 200; round += 1) {
    const at = new Quiet(1, { engines: Array.from({ length: 4 }, () => (chance() < 0.5 ? LANES : BLOCKS)) })
    const id = at.submit()
    for (const engine of at.core.engines.values()) {
      engine.stayUs = Math.floor(chance() * 5_000_000)
      for (let row = Math.floor(chance() * 5); row > 0; row -= 1) engine.running.add(`${engine.id}-${row}` as CallId)
    }
    const call = at.core.calls.get(id)
    assert.ok(call !== undefined)
    const candidates = candidatesFor(at.core, call, null, sitesOf(at.core, call.model))
    const { site: { engine } } = leastSeconds.place(at.core, call, null, candidates, NOBODY)
    const all = leastSeconds.priced(at.core, call, null, candidates, NOBODY)
    for (const one of all) for (const term of [one.queueUs, one.prefillUs, one.transferUs, one.criticalUs, one.pressureUs]) assert.ok(Number.isSafeInteger(term) && term >= 0)
    assert.equal(Math.min(...all.map(totalUs)), totalUs(all.find((one) => one.engine === engine.id) as Candidate))
  }
})

test('in a random world of unlike engines States move, and in the end all memory is free', () => {
  let moved = 0
  for (let seed = 1; seed <= 12; seed += 1) {
    const world = new World(seed, { engines: [{ ...LANES, runningMax: 2 }, BLOCKS, { ...LANES, imageKey: 'other' }], faults: seed % 3 === 0 ? 0.4 : 0 })
    world.agents(24)
    for (let second = 2; second < 40; second += 1) {
      world.run(second * 1_000_000)
      world.disturb()
    }
    world.heal()
    world.run(world.nowUs + 8_000 * 1_000_000)
    assert.equal(world.core.openCalls, 0, `seed ${seed}`)
    assert.equal(world.core.states.size, 0, `seed ${seed}`)
    assert.deepEqual(world.replay(), world.core)
    moved += only(world.log, 'call.placed').filter(({ way }) => way === 'moved').length
  }
  assert.ok(moved > 0, `${moved} moved`)
})

test('an image that is longer than what its call needs is brought in only where there is room for all of it', () => {
  const at = new Quiet(1, { config: { residency: 'always-offload', order: 'fcfs' }, engines: [{ ...BLOCKS, memory: { cells: 1_024, granule: 16, sequences: 16 }, preempt: false }] })
  const first = at.named('long')
  at.measure(first, 900)
  const report = { ...REPORT, tailPrefilled: 900, tailDecoded: 9 }
  at.end(first, { finish: 'tool_calls', toolCalls: [{ id: 'tool', name: 'search' }], report, spans: [{ tokens: 900, origin: 'prefilled', digest: 'a' }, { tokens: 9, origin: 'decoded', digest: 'b' }] })
  done(at)
  at.measure(at.named('other'), 600)
  const back = at.named('long', ['tool'])
  at.feed({ kind: 'measured', call: back, promptTokens: 120, matched: { record: first, tokens: 100 }, renderingWon: null })
  assert.equal(at.core.calls.get(back)?.stage.kind, 'ready')
})

/** Three programs with their KV on host that need 6, 4 and 7 blocks, and an engine of 7 that is busy; where they are once one of `more` joins. */
function packedBeside(more: number, before: (at: Quiet) => void = () => undefined): (string | null)[] {
  const blocks = (count: number): Capabilities => ({ ...BLOCKS, memory: { cells: count * 16, granule: 16, sequences: 16 }, preempt: false })
  const at = new Quiet(1, { config: { residency: 'always-offload' }, engines: [blocks(7)] })
  const programs = [['six', 90], ['four', 60], ['seven', 108]] as const
  const firsts = programs.map(([name, tokens]) => {
    const call = at.named(name, [], { maxTokens: 1 })
    at.measure(call, tokens - 20)
    const spans = [{ tokens: tokens - 20, origin: 'prefilled' as const, digest: 'a' }]
    at.end(call, { finish: 'tool_calls', toolCalls: [{ id: `tool-of-${call}`, name: 'search' }], spans, report: { ...REPORT, tailPrefilled: tokens - 20, tailDecoded: 0, outputTokens: 1 } })
    done(at)
    return call
  })
  at.measure(at.named('busy', [], { maxTokens: 1 }), 40)
  const backs = programs.map(([name, tokens], index) => {
    const first = firsts[index] as CallId
    const call = at.named(name, [`tool-of-${first}`], { maxTokens: 1 })
    at.feed({ kind: 'measured', call, promptTokens: tokens, matched: { record: first, tokens: tokens - 20 }, renderingWon: null })
    return call
  })
  assert.deepEqual(backs.map((call) => whereOf(at, call)), [null, null, null])
  before(at)
  at.feed({ kind: 'engineJoined', engine: E1, reign: 1, capabilities: blocks(more), speeds: SPEEDS })
  return backs.map((call) => whereOf(at, call))
}

test('when an engine joins beside others, suspended programs are packed over the room: all of them, where one by one some would wait', () => {
  assert.deepEqual(packedBeside(13), ['e1', 'e0', 'e1'])
})

test('of an engine that is drained the packer knows nothing: who would just fit there goes where it may', () => {
  const drained = (at: Quiet) => at.feed({ kind: 'drainEngine', engine: engineId('e0'), withinUs: 1_000_000 })
  assert.deepEqual(packedBeside(17, drained), ['e1', 'e1', 'e1'])
})
