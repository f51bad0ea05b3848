/** The scripted engine on a clock of ours: what plays, when, what it costs, what goes wrong, and what it does not forgive. */
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { callId, moveId, segmentId, stateId, tenantId } from '../../src/core/ids.ts'
import type { Us } from '../../src/core/units.ts'
import type { EngineCommand, StartCommand } from '../../src/driver/ports.ts'
import { createScriptedEngine, type ScriptedClock, type ScriptedEngine } from '../../src/engines/scripted.ts'
import { readScript, ScriptError } from '../../src/engines/script-file.ts'
import type { ChatCall } from '../../src/protocol/chat.ts'
import { chatCall, message } from './contract.ts'
import { Listener } from './listener.ts'

/** Time passes when it is told to. */
class HandClock implements ScriptedClock {
  #nowUs: Us = 1_000
  readonly #due: { atUs: Us; call: () => void }[] = []

  nowUs(): Us { return this.#nowUs }

  at(atUs: Us, call: () => void): () => void {
    const entry = { atUs, call }
    this.#due.push(entry)
    return () => { if (this.#due.includes(entry)) this.#due.splice(this.#due.indexOf(entry), 1) }
  }

  async pass(ms: number): Promise<void> {
    const endUs = this.#nowUs + ms * 1_000
    for (;;) {
      const next = this.#due.filter(({ atUs }) => atUs <= endUs).sort((a, b) => a.atUs - b.atUs)[0]
      if (next === undefined) break
      this.#due.splice(this.#due.indexOf(next), 1)
      this.#nowUs = Math.max(this.#nowUs, next.atUs)
      next.call()
      await Promise.resolve()
    }
    this.#nowUs = endUs
    await Promise.resolve()
  }
}

interface Stage { engine: ScriptedEngine; clock: HandClock; listener: Listener }

async function opened(script: Record<string, unknown>): Promise<Stage> {
  const clock = new HandClock()
  const engine = createScriptedEngine({ id: 'e', clock, script: readScript({ promptTokensPerSecond: 1_000, tokensPerSecond: 10, ...script }) })
  const listener = new Listener()
  engine.open(1, listener)
  await clock.pass(1)
  return { engine, clock, listener }
}

async function start({ engine }: Stage, call: string, chat: ChatCall, more: Partial<StartCommand> = {}): Promise<number> {
  const measured = await engine.measure({ call: callId(call), body: JSON.stringify(chat), records: [] })
  assert.ok(measured.ok)
  engine.perform({
    kind: 'start', call: callId(call), attempt: 1, run: 0, epoch: 0, state: stateId(`of-${call}`), body: JSON.stringify(chat),
    prepared: measured.prepared, baseTokens: 0, keepTokens: 0, recomputeTokens: 0, replay: 'exact', forced: [], seed: 1, maxTokens: 100, rank: 1, tenant: tenantId('t'), grantGranules: 1, ...more,
  })
  return measured.promptTokens
}

async function answer(stage: Stage, chat: ChatCall): Promise<string> {
  const call = `c${stage.listener.said.length}`
  await start(stage, call, chat)
  await stage.clock.pass(60_000)
  stage.engine.perform({ kind: 'discard', state: stateId(`of-${call}`) })
  return stage.listener.text(callId(call), 1)
}

const said = (...contents: string[]): ChatCall => ({
  ...chatCall('scripted', ''), messages: contents.map((content, index) => message(index % 2 === 0 ? 'user' : 'assistant', content)),
})

// ---------------------------------------------------------------- what plays

test('items play in the order of the conversation, those that match first, and the last one again and again', async () => {
  const stage = await opened({ items: [
    { text: 'first' }, { match: '^weather', text: 'rain' }, { text: 'second' }, { match: '^weather', text: 'sun' }, { text: 'third' },
  ] })
  assert.equal(await answer(stage, said('a')), 'first')
  assert.equal(await answer(stage, said('a', 'first', 'weather?')), 'rain')
  assert.equal(await answer(stage, said('a', 'first', 'weather?', 'rain', 'b')), 'second')
  assert.equal(await answer(stage, said('weather?')), 'rain')
  assert.equal(await answer(stage, said('weather?', 'rain', 'b', 'first', 'weather again?')), 'sun')
  assert.equal(await answer(stage, said('weather?', 'rain', 'weather?', 'sun', 'weather?')), 'sun')
  assert.equal(await answer(stage, said('a', '1', 'b', '2', 'c', '3', 'd', '4', 'e')), 'third')
})

test('a stop string, a limit and an empty script end an answer', async () => {
  const stage = await opened({ items: [
    { match: 'stop', text: 'one two STOP three', toolCalls: [{ name: 'f', arguments: {} }] }, { text: 'one two three' },
  ] })
  const stopped: ChatCall = { ...said('stop'), stop: ['STOP'] }
  await start(stage, 'c1', stopped)
  await start(stage, 'c2', said('go'), { maxTokens: 2 })
  await stage.clock.pass(5_000)
  assert.equal(stage.listener.text(callId('c1'), 1), 'one two ')
  assert.equal((await stage.listener.finished(callId('c1'), 1)).finish, 'stop')
  assert.equal(stage.listener.text(callId('c2'), 1), 'one two')
  const cut = await stage.listener.finished(callId('c2'), 1)
  assert.equal(cut.finish, 'length')
  // The last token was sampled and never fed.
  assert.deepEqual([cut.report.outputTokens, cut.report.tailDecoded], [2, 1])
  assert.equal(await answer(await opened({ items: [] }), said('x')), '')
})

test('tool calls come in pieces with their name once, and their echo is known again with re-ordered arguments', async () => {
  const stage = await opened({ items: [{ text: 'ok ', toolCalls: [
    { name: 'search', arguments: { q: 'b', a: [1, 2] } }, { name: 'add', arguments: '{"y":2,"x":1}' },
  ] }] })
  const promptTokens = await start(stage, 'c', said('go'))
  await stage.clock.pass(60_000)
  const finished = await stage.listener.finished(callId('c'), 1)
  assert.equal(finished.finish, 'tool_calls')
  assert.deepEqual(finished.toolCalls, [{ id: 'call_c_0', name: 'search' }, { id: 'call_c_1', name: 'add' }])
  const parts = stage.listener.chunks(callId('c'), 1).flatMap((chunk) => chunk.parts).filter((part) => part.kind === 'toolCall')
  const of = (index: number) => parts.filter((part) => part.index === index)
  assert.equal(of(0).map((part) => part.arguments).join(''), '{"a":[1,2],"q":"b"}')
  assert.deepEqual(of(1).filter((part) => part.name !== null).map((part) => part.name), ['add'])
  const record = stage.listener.outcomes(callId('c'), 1)[0]?.record
  assert.ok(record)
  const echo = (args: string): ChatCall => ({ ...said('go'), messages: [
    message('user', 'go'), { role: 'assistant', content: 'ok ', toolCallId: null, toolCalls: [
      { id: 'call_c_0', name: 'search', arguments: args }, { id: 'call_c_1', name: 'add', arguments: '{ "x": 1, "y": 2 }' }] },
    { role: 'tool', content: 'found', toolCalls: [], toolCallId: 'call_c_0' },
  ] })
  const records = [{ call: callId('c'), record }]
  const measure = (chat: ChatCall) => stage.engine.measure({ call: callId('d'), body: JSON.stringify(chat), records })
  const same = await measure(echo('{"q": "b", "a": [1, 2]}'))
  const fed = finished.report.tailPrefilled + finished.report.tailDecoded
  assert.ok(same.ok && same.matched?.tokens === fed && same.renderingWon === null, JSON.stringify(same))
  const edited = await measure(echo('{"q": "other", "a": [1, 2]}'))
  assert.ok(edited.ok && edited.matched !== null && edited.renderingWon !== null, JSON.stringify(edited))
  assert.ok(edited.matched.tokens < fed && edited.matched.tokens > promptTokens)
  const another = await measure(said('something else'))
  assert.ok(another.ok && another.renderingWon === null && (another.matched?.tokens ?? 0) < 3)
})

// ---------------------------------------------------------------- when, and what it costs

test('time is as given, to the microsecond: prefill, latency, a step a token; company divides the work', async () => {
  const stage = await opened({ items: [{ text: 'one two three four', latencyMs: 300 }] })
  const promptTokens = await start(stage, 'a', said('hi'))
  await start(stage, 'b', said('hi'))
  const firstMs = promptTokens + 300 + 100
  await stage.clock.pass(firstMs - 1)
  assert.equal(stage.listener.tokens(callId('a'), 1).length, 0)
  await stage.clock.pass(1)
  assert.equal(stage.listener.tokens(callId('a'), 1).length, 1)
  await stage.clock.pass(300)
  const finished = await stage.listener.finished(callId('a'), 1)
  assert.deepEqual(finished.parts, { waitUs: 300_000, recomputeUs: 0, prefillUs: promptTokens * 1_000, decodeUs: 400_000 })
  const totalUs = promptTokens * 1_000 + 700_000
  assert.deepEqual(finished.report.service.useful, { residentUs: totalUs, workUs: totalUs / 2 })
  assert.equal(finished.report.tailDecoded, 4)
})

test('what is fed again is charged as recomputed, decoded tokens as slowly as they were decoded', async () => {
  const stage = await opened({ items: [{ text: 'one two three four' }] })
  const promptTokens = await start(stage, 'a', said('hi'))
  await stage.clock.pass(5_000)
  const forced = stage.listener.tokens(callId('a'), 1).slice(0, 3)
  stage.engine.perform({ kind: 'discard', state: stateId('of-a') })
  await start(stage, 'b', said('hi'), { forced, recomputeTokens: promptTokens + 2 })
  await stage.clock.pass(5_000)
  const { parts, report, resume } = await stage.listener.finished(callId('b'), 1)
  assert.deepEqual(parts, { waitUs: 0, recomputeUs: promptTokens * 1_000 + 200_000, prefillUs: 0, decodeUs: 100_000 })
  assert.equal(resume, 'exact')
  assert.equal(report.recomputedTokens, promptTokens + 2)
  assert.equal(report.service.recomputed.residentUs, parts.recomputeUs)
})

test('a call waits at its grant, and goes on when it is granted more', async () => {
  const stage = await opened({ memory: { granuleTokens: 16, granules: 8, sequences: 4 }, items: [{ text: 'a b c d e f g h i j k l m n o p q r s t' }] })
  const promptTokens = await start(stage, 'a', said('hi'))
  await stage.clock.pass(20_000)
  assert.deepEqual(stage.listener.ends(callId('a'), 1), [])
  // The token that would not fit was sampled; feeding it waits.
  assert.equal(stage.listener.tokens(callId('a'), 1).length, 16 - promptTokens + 1)
  stage.engine.perform({ kind: 'order', orders: [{ call: callId('a'), rank: 1, grantGranules: 2, asVictim: 'pause' }] })
  await stage.clock.pass(20_000)
  const { parts } = await stage.listener.finished(callId('a'), 1)
  assert.ok(parts.waitUs > 15_000_000, String(parts.waitUs))
  assert.deepEqual(stage.engine.breaches, [])
})

// ---------------------------------------------------------------- what goes wrong

test('an item that fails does so as often as it says, after as many tokens', async () => {
  const stage = await opened({ items: [
    { match: 'twice', text: 'one two', fail: 'retryable', failTimes: 2, failAfterTokens: 1 }, { text: 'x', fail: 'fatal' },
  ] })
  for (const [attempt, kind] of [[1, 'attemptFailed'], [2, 'attemptFailed'], [3, 'finished']] as const) {
    await start(stage, 'a', said('twice'), { attempt, forced: attempt === 1 ? [] : stage.listener.tokens(callId('a'), 1) })
    await stage.clock.pass(5_000)
    const end = await stage.listener.end(callId('a'), attempt)
    assert.equal(end.kind, kind)
    assert.ok(end.kind !== 'attemptFailed' || end.retryable)
  }
  for (const attempt of [1, 2]) {
    await start(stage, 'b', said('never'), { attempt })
    await stage.clock.pass(5_000)
    const end = await stage.listener.end(callId('b'), attempt)
    assert.ok(end.kind === 'attemptFailed' && !end.retryable)
  }
  assert.deepEqual(stage.engine.breaches, [])
})

test('an engine that hangs is lost after its lease, one that dies at once, and both join again empty', async () => {
  for (const [fail, afterMs] of [['hang', 2_000], ['lost', 0]] as const) {
    const stage = await opened({ leaseMs: 2_000, rejoinMs: 500, items: [
      { match: 'bad', text: 'one two', fail, failAfterTokens: 1 }, { text: 'fine fine fine fine fine fine' },
    ] })
    await start(stage, 'good', said('good'))
    const promptTokens = await start(stage, 'bad', said('bad'))
    await stage.clock.pass(promptTokens + 100)
    const asked = fail === 'hang' ? stage.engine.measure({ call: callId('m'), body: JSON.stringify(said('x')), records: [] }) : null
    if (afterMs > 0) {
      await stage.clock.pass(afterMs - 10)
      assert.deepEqual(stage.listener.inputs('engineLost'), [])
      stage.engine.perform({ kind: 'pause', call: callId('good'), attempt: 1 })
    }
    await stage.clock.pass(20)
    assert.equal(stage.listener.inputs('engineLost').length, 1)
    assert.equal((await asked)?.ok ?? false, false)
    assert.deepEqual([...stage.listener.ends(callId('good'), 1), ...stage.listener.ends(callId('bad'), 1)], [])
    await stage.clock.pass(600)
    assert.equal(stage.listener.inputs('engineJoined').length, 2)
    await start(stage, 'bad', said('bad'), { attempt: 2 })
    await stage.clock.pass(5_000)
    await stage.listener.finished(callId('bad'), 2)
  }
})

// ---------------------------------------------------------------- what it does not forgive

const identity = (state: string) => ({ tenant: tenantId('t'), state: stateId(state), owner: 'o', epoch: 0, reign: 1 })
const spans = (tokens: number) => [{ id: segmentId('g'), tokens, origin: 'prefilled' as const }]
const offload = (state: string, tokens: number, path = '/dev/null/x'): EngineCommand => ({
  kind: 'offload', move: moveId(`out-${state}-${tokens}`), state: stateId(state), path, spans: spans(tokens), identity: identity(state),
})

function folder(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'scripted-'))
  t.after(() => rmSync(dir, { recursive: true }))
  return dir
}

test('commands that its ledger cannot make sense of are breaches, told and answered', async () => {
  const stage = await opened({ runningMax: 3, memory: { granuleTokens: 64, granules: 3, sequences: 2 }, items: [{ text: 'a b c d e f g h' }] })
  const { engine, clock } = stage
  await start(stage, 'a', said('hi'))
  const expect = async (breach: RegExp): Promise<void> => {
    await clock.pass(0)
    assert.match(engine.breaches.at(-1) ?? 'none', breach)
  }
  await start(stage, 'b', said('hi'), { state: stateId('of-a') })
  await expect(/of-a is run by a and was started for b/)
  await start(stage, 'c', said('hi'), { keepTokens: 9 })
  await expect(/of-c has 0 tokens and 9 were to be kept/)
  await start(stage, 'd', said('hi'), { grantGranules: 3 })
  await expect(/of-d was given 3 granules and 2 of 3 are free/)
  engine.perform({ kind: 'order', orders: [{ call: callId('a'), rank: 1, grantGranules: 4, asVictim: 'pause' }] })
  await expect(/of-a was given 4 granules/)
  engine.perform(offload('of-a', 5))
  await expect(/of-a is run by a and was to be offloaded/)
  engine.perform({ kind: 'discard', state: stateId('of-a') })
  await expect(/of-a is run by a and was to be discarded/)
  engine.perform(offload('nowhere', 5))
  await expect(/nowhere is not on the device/)
  await start(stage, 'a', said('hi'))
  await expect(/a was started twice as attempt 1/)
  await start(stage, 'e', said('hi'))
  await start(stage, 'f', said('hi'))
  await expect(/one more than 2 sequences/)
  assert.equal(engine.breaches.length, 9)
  for (const call of ['b', 'c', 'd', 'f']) {
    const end = await stage.listener.end(callId(call), 1)
    assert.ok(end.kind === 'attemptFailed' && !end.retryable && end.why.startsWith('contract breach'), JSON.stringify(end))
  }
  assert.equal(stage.listener.inputs('moveFailed').length, 2)
  await clock.pass(5_000)
  await stage.listener.finished(callId('a'), 1)
  engine.perform(offload('of-a', 1))
  await expect(/its spans say 1/)
})

test('an image of another engine is refused and not called lost; one whose State is here is a breach', async (t) => {
  const path = join(folder(t), 'image')
  const items = [{ text: 'a b c' }]
  const [one, other] = [await opened({ items }), await opened({ items, models: ['other'] })]
  await start(one, 'a', said('hi'))
  await one.clock.pass(5_000)
  const { report } = await one.listener.finished(callId('a'), 1)
  one.engine.perform(offload('of-a', report.tailPrefilled + report.tailDecoded, path))
  const done = await one.listener.until('moveDone', () => { void one.clock.pass(10); return one.listener.inputs('moveDone')[0] })
  assert.equal(readFileSync(path).length, done.bytes)
  const onboard: EngineCommand = { kind: 'onboard', move: moveId('in'), state: stateId('of-a'), path, digest: done.digest, identity: identity('of-a') }
  other.engine.perform(onboard)
  const refused = await other.listener.until('moveFailed', () => other.listener.inputs('moveFailed')[0])
  assert.match(refused.why, /made by scripted-1\/scripted, and scripted-1\/other reads it/)
  assert.equal(refused.sourceLost, false)
  one.engine.perform(onboard)
  const present = await one.listener.until('moveFailed', () => one.listener.inputs('moveFailed')[0])
  assert.match(present.why, /of-a is on the device and was to be onboarded/)
  writeFileSync(path, 'x')
})

test('a script is checked, and its faults are named by their place', () => {
  for (const [script, why] of [
    [7, /script: expected keys and values/],
    [{}, /items: expected a list/],
    [{ items: [], speed: 3 }, /there is no key speed/],
    [[{ say: 'x' }], /items\[0\]: there is no key say/],
    [[{}, { match: '(' }], /items\[1\]\.match: /],
    [[{ fail: 'often' }], /items\[0\]\.fail: expected retryable/],
    [[{ toolCalls: [{ name: 'f' }] }], /items\[0\]\.toolCalls\[0\]\.arguments/],
    [[{ tokensPerSecond: 0 }], /tokensPerSecond: expected a number, 1 or more/],
    [{ items: [], memory: { granules: 1.5, size: 1 } }, /memory: there is no key size/],
    [{ items: [], exact: 'maybe' }, /exact: expected yes/],
    [{ items: [], models: [] }, /models/], [{ items: [], preempt: 1 }, /preempt: expected true or false/],
  ] as const) assert.throws(() => readScript(script), (error) => error instanceof ScriptError && why.test(error.message))
  const { items, memory } = readScript([{ text: 'x' }])
  assert.deepEqual([items.length, memory], [1, { cells: 16_384, granule: 2_048, sequences: 8 }])
})
