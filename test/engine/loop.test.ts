import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Row } from '../../src/engine/llama/llama.ts'
import type { Sampling } from '../../src/protocol/chat.ts'
import type { EngineEvent } from '../../src/protocol/engine.ts'
import { writeTinyGguf } from '../../src/models/tiny-gguf.ts'
import { EngineUnderTest, PROVEN } from './engine-under-test.ts'
import type { EngineShape } from './engine-under-test.ts'
import type { Command } from './played-engine.ts'

type Start = Extract<Command, { kind: 'start' }>
type Finished = Extract<EngineEvent, { kind: 'finished' }>

let directory = ''
let model = ''
let engine: EngineUnderTest
/** Every batch, as it went to the library. */
let batches: (readonly Row[])[] = []

before(() => {
  directory = mkdtempSync(join(tmpdir(), 'entracte-loop-'))
  model = join(directory, 'tiny.gguf')
  writeTinyGguf(model)
})
after(() => rmSync(directory, { recursive: true, force: true }))
afterEach(async () => { await engine.kill() })

function open(shape: Partial<EngineShape> = {}, reign = 1): void {
  engine = new EngineUnderTest({ modelPath: model, lanes: 3, laneTokens: 512, chunkTokens: 16, threads: 1, flashAttention: false, exact: PROVEN, ...shape }, reign)
  batches = []
  const decode = engine.llama.decode.bind(engine.llama)
  engine.llama.decode = (rows) => {
    batches.push(rows)
    return decode(rows)
  }
}

const GREEDY: Sampling = { temperature: 0, topP: 1, topK: 0, minP: 0 }
const FREE: Sampling = { ...GREEDY, temperature: 1 }

function bodyOf(says: string, sampling: Sampling = FREE, stop: readonly string[] = []): string {
  return JSON.stringify({
    model: 'm', messages: [{ role: 'user', content: says, toolCalls: [], toolCallId: null }], tools: [], toolChoice: 'none', sampling, stop, maxTokens: null,
  })
}

async function measured(call: string, body: string): Promise<Uint8Array> {
  engine.tell({ kind: 'measure', call, body, records: [] })
  const { bin } = await engine.next((event) => event.kind === 'measured' && event.call === call)
  return bin[0] ?? new Uint8Array()
}

async function begin(call: string, says: string, other: Partial<Start> = {}): Promise<Start> {
  const body = other.body ?? bodyOf(says)
  const prepared = await measured(call, body)
  const start: Start = {
    kind: 'start', call, attempt: 1, epoch: 0, state: `state-${call}`, body, baseTokens: 0, keepTokens: 0, recomputeTokens: 0, replay: 'exact',
    forced: [], seed: 11, maxTokens: 12, rank: 0, tenant: other.state ?? `state-${call}`, grantGranules: 1, ...other,
  }
  engine.tell(start, [prepared])
  return start
}

async function finish(call: string): Promise<Finished> {
  const wants = (event: EngineEvent): boolean => (event.kind === 'finished' || event.kind === 'failed') && event.call === call
  const heard = engine.heard.find(({ event }) => wants(event)) ?? await engine.next(wants)
  assert.ok(heard.event.kind === 'finished', JSON.stringify(heard.event))
  return heard.event
}

const tokensOf = (call: string): number[] => engine.of('tokens').filter((event) => event.call === call).flatMap((event) => event.tokens)

/** After every command so far; the engine is idle and its ledger of lanes was checked. */
async function settled(): Promise<void> {
  await begin('settle', 'x', { state: 'settle', maxTokens: 1, seed: 1 })
  await finish('settle')
  engine.tell({ kind: 'discard', state: 'settle' })
  await sleep(5)
}

const isPrefill = (rows: readonly Row[]): boolean => rows.length > 1 && rows.every((row) => row.lane === rows[0]?.lane)

const LONG = 'a long prompt '.repeat(20)

test('a decode waits for one chunk at most, and the two are never mixed', async () => {
  open()
  await begin('a', 'hi', { maxTokens: 60 })
  await begin('b', 'hi', { maxTokens: 60, seed: 5 })
  await begin('c', LONG)
  await finish('c')
  for (const rows of batches) {
    const lanes = new Set(rows.map((row) => row.lane))
    assert.ok(lanes.size === 1 || lanes.size === rows.length, 'a batch is one lane, or one row a lane')
    assert.deepEqual([...rows].map((row) => row.lane), [...rows].map((row) => row.lane).sort((x, y) => x - y))
  }
  // The call that prefills is alone in lane 2; while it does, the others decode between its chunks.
  const first = batches.findIndex((rows) => isPrefill(rows) && rows[0]?.lane === 2)
  const last = batches.findLastIndex((rows) => isPrefill(rows) && rows[0]?.lane === 2)
  const during = batches.slice(first, last + 1)
  assert.ok(during.filter(isPrefill).length > 5)
  during.forEach((rows, i) => assert.equal(isPrefill(rows), i % 2 === 0, 'prefill and decode take turns'))
})

test('a State that runs apart is moved next to the others and yields what it would have yielded', async () => {
  open({ lanes: 4 })
  await begin('alone', 'tell me of the sea', { maxTokens: 60 })
  await finish('alone')
  engine.tell({ kind: 'discard', state: 'state-alone' })
  await begin('a', 'hi', { maxTokens: 200 })
  await begin('b', 'hi', { maxTokens: 40 })
  await begin('c', 'tell me of the sea', { maxTokens: 60 })
  await finish('b')
  engine.tell({ kind: 'discard', state: 'state-b' })
  await Promise.all([finish('a'), finish('c')])
  const decodes = batches.filter((rows) => !isPrefill(rows)).map((rows) => rows.map(({ lane }) => lane))
  assert.ok(decodes.some((lanes) => lanes.length === 3), 'all three ran together')
  const pairs = decodes.filter((lanes) => lanes.length === 2)
  assert.ok(pairs.every(([first, second]) => second === (first ?? 0) + 1), 'b, who ended between the two, left no gap')
  assert.deepEqual(tokensOf('c'), tokensOf('alone'))
  await settled()
})

test('copies of States have a budget between two batches: at it the next waits for a batch, and nobody who runs for more than one', async () => {
  for (const [copiesMsMax, together] of [[0, false], [60_000, true]] as const) {
    open({ lanes: 4, copiesMsMax })
    for (const call of ['a', 'b', 'c']) {
      await begin(call, LONG, { maxTokens: 2 })
      await finish(call)
    }
    await begin('runs', 'hi', { maxTokens: 300 })
    await engine.next((event) => event.kind === 'tokens' && event.call === 'runs')
    const done: string[] = []
    const { stateBytes, decode } = engine.llama
    engine.llama.stateBytes = (lane) => {
      done.push('copy')
      return stateBytes.call(engine.llama, lane)
    }
    engine.llama.decode = (rows) => {
      done.push('batch')
      return decode.call(engine.llama, rows)
    }
    for (const call of ['a', 'b', 'c']) {
      const state = `state-${call}`
      engine.tell({ kind: 'offload', move: call, state, path: join(directory, `budget-${call}`), spans: [], identity: { tenant: 't', state, owner: state, epoch: 0, reign: 1 } })
    }
    for (const call of ['a', 'b', 'c']) if (!engine.of('moved').some(({ move }) => move === call)) await engine.next((event) => event.kind === 'moved' && event.move === call)
    assert.equal(done.join(' ').includes('copy copy copy'), together, done.join(' '))
    assert.equal(done.join(' ').includes('copy copy'), together, done.join(' '))
    engine.tell({ kind: 'cancel', call: 'runs', attempt: 1 })
    if (!together) await engine.kill()
  }
})

test('no prefill has one row, whatever the prompt\'s length', async () => {
  open({ chunkTokens: 5, lanes: 2 })
  for (let length = 1; length <= 12; length++) {
    await begin(`p${length}`, 'x'.repeat(length), { state: 'same', maxTokens: 1 })
    await finish(`p${length}`)
    engine.tell({ kind: 'discard', state: 'same' })
  }
  assert.ok(batches.every((rows) => rows.length >= 2 && rows.length <= 5))
})

test('of the calls that prefill the best-ranked goes first, also when its rank came later', async () => {
  open()
  const prepared = await measured('x', bodyOf(LONG))
  const start = (call: string, rank: number): void => engine.tell({
    kind: 'start', call, attempt: 1, epoch: 0, state: call, body: bodyOf(LONG), baseTokens: 0, keepTokens: 0, recomputeTokens: 0, replay: 'exact',
    forced: [], seed: 1, maxTokens: 2, rank, tenant: call, grantGranules: 1,
  }, [prepared])
  start('a', 1)
  start('b', 2)
  start('c', 3)
  engine.tell({ kind: 'order', orders: [{ call: 'c', rank: 0, grantGranules: 1, asVictim: 'pause' }] })
  await Promise.all(['a', 'b', 'c'].map(finish))
  const prefilled = batches.filter(isPrefill).map((rows) => rows[0]?.lane)
  const firstOf = (lane: number): number => prefilled.indexOf(lane)
  assert.ok(firstOf(2) < firstOf(0) && firstOf(0) < firstOf(1), prefilled.join(' '))
})

test('a paused call goes on where it was, in silence about what was shown', async () => {
  open()
  await begin('whole', 'tell me', { maxTokens: 30 })
  await finish('whole')
  const start = await begin('call', 'tell me', { maxTokens: 30 })
  await engine.next((event) => event.kind === 'tokens' && event.call === 'call')
  engine.tell({ kind: 'pause', call: 'call', attempt: 1 })
  const { event } = await engine.next((each) => each.kind === 'paused')
  assert.ok(event.kind === 'paused')
  const shown = tokensOf('call')
  assert.ok(shown.length > 0 && shown.length < 30)
  assert.equal(event.report.tailDecoded, shown.length - 1, 'the last token was sampled and not fed')
  batches.length = 0
  const keepTokens = event.report.tailPrefilled + event.report.tailDecoded
  engine.tell({ ...start, attempt: 2, forced: shown, keepTokens }, [await measured('call', start.body)])
  const finished = await finish('call')
  assert.deepEqual(tokensOf('call'), tokensOf('whole'))
  assert.equal(batches.length, 30 - shown.length, 'nothing is fed twice')
  assert.deepEqual([finished.resume, finished.outputTokens, finished.report.recomputedTokens], ['exact', 30, 0])
})

test('a discarded State is recomputed: prompt prefilled, output decoded again, and charged as recomputed', async () => {
  open()
  await begin('whole', 'tell me', { maxTokens: 20 })
  const whole = await finish('whole')
  const prompt = whole.promptTokens
  const start = await begin('call', 'tell me', { maxTokens: 20 })
  await finish('call')
  engine.tell({ kind: 'discard', state: start.state })
  batches.length = 0
  const shown = tokensOf('call').slice(0, 10)
  engine.tell({ ...start, call: 'again', forced: shown, recomputeTokens: prompt + 9 }, [await measured('again', start.body)])
  const finished = await finish('again')
  assert.deepEqual([...shown, ...tokensOf('again')], tokensOf('whole'))
  assert.deepEqual(finished.spans, whole.spans)
  assert.deepEqual([finished.resume, finished.report.recomputedTokens], ['exact', prompt + 9])
  assert.ok(finished.parts.recomputeUs > 0 && finished.report.recomputedWorkUs > 0)
  assert.equal(batches.filter((rows) => rows.length === 1).length, 19)
})

test('plain recompute says that it is no exact one', async () => {
  open()
  const start = await begin('call', 'tell me', { maxTokens: 20 })
  const whole = await finish('call')
  engine.tell({ kind: 'discard', state: start.state })
  batches.length = 0
  engine.tell({ ...start, call: 'again', forced: tokensOf('call').slice(0, 10), recomputeTokens: whole.promptTokens + 9, replay: 'plain' }, [await measured('again', start.body)])
  const finished = await finish('again')
  assert.equal(finished.resume, 'recomputed')
  assert.equal(batches.filter((rows) => rows.length === 1).length, 10)
  assert.notDeepEqual(finished.spans, whole.spans, 'the spans say how the tokens were fed')
})

test('what was shown and is fed again counts too: read plainly, or where nobody knows whether it is exact', async () => {
  for (const [answer, replay, resume] of [['yes', 'plain', 'recomputed'], ['yes', 'exact', 'exact'], ['unknown', 'exact', 'recomputed']] as const) {
    open({ exact: { answer, because: 'the test says so' } })
    const start = await begin('call', 'tell me', { maxTokens: 20 })
    await finish('call')
    engine.tell({ kind: 'discard', state: start.state })
    engine.tell({ ...start, call: 'again', attempt: 2, forced: tokensOf('call').slice(0, 10), replay }, [await measured('again', start.body)])
    assert.equal((await finish('again')).resume, resume, `${answer}, ${replay}`)
  }
})

test('an engine not known to be exact calls every recompute recomputed', async () => {
  open({ exact: { answer: 'no', because: 'the test says so' } })
  await begin('call', 'tell me', { recomputeTokens: 8 })
  assert.equal((await finish('call')).resume, 'recomputed')
})

test('a cancelled call is cut back to its base and its lane is free once discarded', async () => {
  open({ lanes: 1 })
  const start = await begin('call', LONG, { maxTokens: 400 })
  await engine.next((event) => event.kind === 'tokens')
  engine.tell({ kind: 'cancel', call: 'call', attempt: 1 })
  const prepared = await measured('other', start.body)
  engine.tell({ ...start, call: 'other', state: 'other' }, [prepared])
  const { event } = await engine.next((each) => each.kind === 'failed')
  assert.ok(event.kind === 'failed' && event.call === 'other' && event.retryable, JSON.stringify(event))
  assert.match(event.why, /no lane is free/)
  assert.equal(engine.llama.laneUsed(0), 0)
  engine.tell({ kind: 'discard', state: start.state })
  engine.tell({ ...start, call: 'third', state: 'third', maxTokens: 1 }, [prepared])
  await finish('third')
  assert.equal(engine.of('paused').length + engine.of('refused').length, 0)
})

test('a stop string is cut from what is kept, and what was fed of it from the lane', async () => {
  open()
  await begin('whole', 'tell me', { maxTokens: 40 })
  const text = (call: string): string => engine.of('tokens').filter((event) => event.call === call).flatMap((event) => event.parts)
    .map((part) => part.kind === 'text' ? part.text : '').join('')
  const prompt = (await finish('whole')).promptTokens
  const stop = text('whole').slice(10, 13)
  await begin('stops', '', { body: bodyOf('tell me', FREE, [stop]), maxTokens: 40 })
  const finished = await finish('stops')
  assert.equal(finished.finish, 'stop')
  assert.equal(text('stops'), text('whole').slice(0, text('whole').indexOf(stop)))
  await settled()
  assert.equal(engine.llama.laneUsed(1), finished.spans.reduce((sum, span) => sum + span.tokens, 0))
  assert.ok(engine.llama.laneUsed(1) < prompt + finished.outputTokens)
})

test('a call ends at the end of its lane and never writes beyond it', async () => {
  open({ laneTokens: 256 })
  await begin('call', 'x'.repeat(200), { maxTokens: 1_000, seed: 3, body: bodyOf('x'.repeat(200), { ...GREEDY, temperature: 0.01 }) })
  const finished = await finish('call')
  assert.equal(finished.finish, 'length')
  assert.equal(finished.promptTokens + finished.outputTokens, 257)
  assert.equal(engine.llama.laneUsed(0), 256)
})

test('a command of an old reign is refused and changes nothing', async () => {
  open({}, 7)
  const start = await begin('call', 'tell me', { maxTokens: 30 })
  await engine.next((event) => event.kind === 'tokens')
  for (const command of [{ kind: 'cancel', call: 'call', attempt: 1 }, { kind: 'discard', state: start.state }, { kind: 'stop' }, { kind: 'pause', call: 'call', attempt: 1 }]) {
    engine.loop.receive({ ...command, reign: 6 }, [])
  }
  assert.equal((await finish('call')).outputTokens, 30)
  assert.equal(engine.of('refused').length, 4)
  assert.match(engine.of('refused')[0]?.why ?? '', /reign 6 is over: 7 was seen/)
})

test('a start that cannot be is answered, and the engine goes on', async () => {
  open()
  const start = await begin('good', 'hi', { maxTokens: 2 })
  await finish('good')
  const failure = async (other: Partial<Start>, prepared: Uint8Array): Promise<Extract<EngineEvent, { kind: 'failed' }>> => {
    engine.tell({ ...start, call: 'bad', ...other }, [prepared])
    const { event } = await engine.next((each) => each.kind === 'failed')
    assert.ok(event.kind === 'failed')
    return event
  }
  const prepared = await measured('bad', start.body)
  assert.match((await failure({}, Uint8Array.of(1, 2, 3))).why, /cannot be read/)
  assert.match((await failure({ body: '{}' }, prepared)).why, /model/)
  assert.match((await failure({ baseTokens: 10_000 }, prepared)).why, /continues 10000/)
  assert.match((await failure({ forced: [1_000_000] }, prepared)).why, /vocabulary/)
  assert.equal((await failure({ forced: Array<number>(600).fill(1) }, prepared)).retryable, false)
  await settled()
})

test('what the lane holds is checked against the prompt, and only what is equal is kept', async () => {
  open()
  const start = await begin('one', 'abcdefgh', { maxTokens: 4 })
  const one = await finish('one')
  await begin('two', 'abcdxyz!', { state: start.state, keepTokens: one.promptTokens, maxTokens: 4 })
  const two = await finish('two')
  await begin('alone', 'abcdxyz!', { maxTokens: 4 })
  assert.deepEqual(tokensOf('two'), (await finish('alone'), tokensOf('alone')))
  assert.equal(two.cachedTokens, 0)
})

const identity = (state: string) => ({ tenant: state, state, owner: 'o', epoch: 0, reign: 1 })

async function moved(command: Command & { move: string }): Promise<Extract<EngineEvent, { kind: 'moved' | 'moveFailed' }>> {
  engine.tell(command)
  const { event } = await engine.next((each) => (each.kind === 'moved' || each.kind === 'moveFailed') && each.move === command.move)
  assert.ok(event.kind === 'moved' || event.kind === 'moveFailed')
  return event
}

test('a State goes out as an image and comes back into another lane, and the call goes on the same', async () => {
  open()
  await begin('whole', 'tell me', { maxTokens: 30 })
  const whole = await finish('whole')
  engine.tell({ kind: 'discard', state: 'state-whole' })
  const start = await begin('call', 'tell me', { maxTokens: 30 })
  await engine.next((event) => event.kind === 'tokens' && event.call === 'call')
  engine.tell({ kind: 'pause', call: 'call', attempt: 1 })
  await engine.next((event) => event.kind === 'paused')
  const shown = tokensOf('call')
  const tokens = engine.llama.laneUsed(0)
  const path = join(directory, 'image')
  const out = await moved({ kind: 'offload', move: 'out', state: start.state, path, spans: [{ id: 's', tokens: 10, origin: 'prefilled' }], identity: identity(start.state) })
  assert.ok(out.kind === 'moved', JSON.stringify(out))
  assert.equal(engine.llama.laneUsed(0), tokens, 'the lane stays until it is discarded')
  engine.tell({ kind: 'discard', state: start.state })
  await begin('squatter', 'hi', { maxTokens: 1 })
  await finish('squatter')
  const back = await moved({ kind: 'onboard', move: 'in', state: start.state, path, digest: out.digest, identity: identity(start.state) })
  assert.equal(back.kind, 'moved', JSON.stringify(back))
  engine.tell({ ...start, attempt: 2, forced: shown, keepTokens: tokens }, [await measured('call', start.body)])
  const finished = await finish('call')
  assert.deepEqual(tokensOf('call'), tokensOf('whole'))
  assert.deepEqual(finished.spans, whole.spans)
  assert.equal(finished.report.recomputedTokens, 0)
})

test('a move that cannot be is answered with whether the source is lost, and no lane leaks', async () => {
  open({ lanes: 2 })
  const start = await begin('call', 'tell me', { maxTokens: 2 })
  await finish('call')
  const { state } = start
  const out = (move: string, path: string, other = {}) => moved({ kind: 'offload', move, state, path, spans: [], identity: identity(state), ...other })
  const back = (move: string, path: string, digest: string, other = {}) => moved({ kind: 'onboard', move, state: 'new', path, digest, identity: identity(state), ...other })
  const failed = (event: EngineEvent, why: RegExp, sourceLost: boolean): void => {
    assert.ok(event.kind === 'moveFailed', JSON.stringify(event))
    assert.match(event.why, why)
    assert.equal(event.sourceLost, sourceLost, event.why)
  }
  failed(await out('m1', join(directory, 'none', 'image')), /written/, false)
  failed(await out('m2', join(directory, 'i'), { state: 'nobody' }), /not on this device/, false)
  failed(await out('m3', join(directory, 'i'), { spans: [{ id: 's', tokens: 400, origin: 'prefilled' }] }), /fewer than the spans/, false)
  const good = await out('m4', join(directory, 'good'))
  assert.ok(good.kind === 'moved')
  failed(await back('m5', join(directory, 'absent'), good.digest), /cannot be opened/, true)
  failed(await back('m6', join(directory, 'good'), '00000000'), /digest/, true)
  failed(await back('m7', join(directory, 'good'), good.digest, { identity: { ...identity(state), tenant: 'other' } }), /another tenant/, true)
  failed(await back('m8', join(directory, 'good'), good.digest, { state }), /on this device already/, false)
  const cut = join(directory, 'cut')
  writeFileSync(cut, readFileSync(join(directory, 'good')))
  truncateSync(cut, 1_000)
  failed(await back('m9', cut, good.digest), /truncated|ends|bytes/, true)
  await begin('other', 'hi', { maxTokens: 1 })
  await finish('other')
  failed(await back('m10', join(directory, 'good'), good.digest), /no lane is free/, false)
  engine.tell({ kind: 'discard', state: 'state-other' })
  assert.equal((await back('m11', join(directory, 'good'), good.digest)).kind, 'moved')
  engine.tell({ kind: 'discard', state: 'new' })
  await settled()
})

test('a State discarded while its image is on the way in takes no lane', async () => {
  open({ lanes: 1 })
  const start = await begin('call', 'tell me', { maxTokens: 2 })
  await finish('call')
  const path = join(directory, 'race')
  const out = await moved({ kind: 'offload', move: 'out', state: start.state, path, spans: [], identity: identity(start.state) })
  assert.ok(out.kind === 'moved')
  engine.tell({ kind: 'discard', state: start.state })
  const failing = engine.next((event) => event.kind === 'moveFailed')
  engine.tell({ kind: 'onboard', move: 'in', state: start.state, path, digest: out.digest, identity: identity(start.state) })
  engine.tell({ kind: 'discard', state: start.state })
  const { event } = await failing
  assert.ok(event.kind === 'moveFailed' && !event.sourceLost)
  await settled()
})

test('a State discarded under a running call ends the call as retryable', async () => {
  open()
  const start = await begin('call', 'tell me', { maxTokens: 400, body: bodyOf('tell me', GREEDY) })
  await engine.next((event) => event.kind === 'tokens')
  engine.tell({ kind: 'discard', state: start.state })
  const { event } = await engine.next((each) => each.kind === 'failed')
  assert.ok(event.kind === 'failed' && event.retryable)
  await settled()
})

test('work charged to attempts sums to the time the engine was busy, and each one\'s parts to its time', async () => {
  open()
  await Promise.all(['a', 'b', 'c'].map(async (call, i) => {
    await begin(call, LONG.slice(i * 40), { maxTokens: 40, seed: i })
    return await finish(call)
  }))
  const finished = engine.of('finished')
  const workUs = finished.reduce((sum, { report }) => sum + report.usefulWorkUs + report.recomputedWorkUs, 0)
  assert.equal(workUs, engine.loop.busyUs)
  for (const { report, parts } of finished) {
    assert.equal(parts.prefillUs + parts.decodeUs, report.usefulResidentUs)
    assert.ok(parts.waitUs >= 0 && report.usefulResidentUs >= report.usefulWorkUs)
  }
})

test('tokens are sent in order and at least every 20 ms, progress at most every 100 ms', async () => {
  open()
  const begunMs = performance.now()
  await begin('call', 'tell me', { maxTokens: 400, body: bodyOf('tell me', GREEDY) })
  const finished = await finish('call')
  const tookMs = performance.now() - begunMs
  let index = 0
  for (const event of engine.of('tokens')) {
    assert.equal(event.index, index)
    index += event.tokens.length
  }
  assert.ok(index >= finished.outputTokens)
  assert.ok(engine.of('progress').length <= tookMs / 100 + 1)
})
