import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, before, test } from 'node:test'
import { LlamaError, type Row } from '../../src/engine/llama/llama.ts'
import { templateOf } from '../../src/engine/model-template.ts'
import { publicPrefix } from '../../src/engine/public-prefix.ts'
import { writeTinyGguf } from '../../src/models/tiny-gguf.ts'
import type { EngineEvent } from '../../src/protocol/engine.ts'
import { writeShape } from '../models/shapes.ts'
import { EngineUnderTest, PROVEN, type EngineShape } from './engine-under-test.ts'
import { Dice } from './exact-plot.ts'
import type { Command } from './played-engine.ts'

type Start = Extract<Command, { kind: 'start' }>
type Finished = Extract<EngineEvent, { kind: 'finished' }>

const folder = mkdtempSync(join(tmpdir(), 'entracte-prefixes-'))
const model = join(folder, 'tiny.gguf')
let engine: EngineUnderTest
/** Every batch, as it went to the library, and each row of logits drawn from, by lane. */
let batches: (readonly Row[])[] = []
let drawn: { readonly lane: number; readonly digest: string }[] = []

before(() => { writeTinyGguf(model) })
after(() => rmSync(folder, { recursive: true, force: true }))
afterEach(async () => { await engine.kill() })

function open(shape: Partial<EngineShape> = {}): void {
  engine = new EngineUnderTest({ modelPath: model, lanes: 4, laneTokens: 512, chunkTokens: 32, threads: 1, flashAttention: false, exact: PROVEN, ...shape })
  batches = []
  drawn = []
  const { decode, logits } = engine.llama
  engine.llama.decode = (rows) => {
    batches.push(rows)
    return decode.call(engine.llama, rows)
  }
  engine.llama.logits = (row, into) => {
    const found = logits.call(engine.llama, row, into)
    drawn.push({ lane: batches.at(-1)?.[row]?.lane ?? -1, digest: createHash('sha256').update(found).digest('hex') })
    return found
  }
}

interface Said { readonly system: string; readonly user: string }

const bodyOf = ({ system, user }: Said): string => JSON.stringify({
  model: 'm', messages: [['system', system], ['user', user]].map(([role, content]) => ({ role, content, toolCalls: [], toolCallId: null })),
  tools: [], toolChoice: 'none', sampling: { temperature: 1, topP: 1, topK: 0, minP: 0 }, stop: [], maxTokens: null,
})

async function begin(call: string, said: Said, other: Partial<Start> = {}): Promise<Start> {
  const body = bodyOf(said)
  engine.tell({ kind: 'measure', call, body, records: [] })
  const { bin } = await engine.next((event) => event.kind === 'measured' && event.call === call)
  const start: Start = {
    kind: 'start', call, attempt: 1, epoch: 0, state: `state-${call}`, tenant: 't', body, baseTokens: 0, keepTokens: 0, recomputeTokens: 0,
    replay: 'exact', forced: [], seed: 7, maxTokens: 8, rank: 0, grantGranules: 1, ...other,
  }
  engine.tell(start, [bin[0] ?? new Uint8Array()])
  return start
}

async function finish(call: string): Promise<Finished> {
  const wants = (event: EngineEvent): boolean => (event.kind === 'finished' || event.kind === 'failed') && event.call === call
  const heard = engine.heard.find(({ event }) => wants(event)) ?? await engine.next(wants)
  assert.ok(heard.event.kind === 'finished', JSON.stringify(heard.event))
  return heard.event
}

async function run(call: string, said: Said, other: Partial<Start> = {}): Promise<Finished> {
  await begin(call, said, other)
  return await finish(call)
}

const discard = (...calls: readonly string[]): void => { for (const call of calls) engine.tell({ kind: 'discard', state: `state-${call}` }) }

const tokensOf = (call: string): number[] => engine.of('tokens').filter((event) => event.call === call).flatMap((event) => event.tokens)

const SYSTEM = 'You are one of many, and all of you are told the same at first. '.repeat(4)

test('calls that begin alike and arrive together read the beginning once', async () => {
  open({ lanes: 8 })
  const calls = Array.from({ length: 8 }, (_, i) => `c${i}`)
  const ends = await Promise.all(calls.map((call, i) => run(call, { system: SYSTEM, user: `${i}: my own question` })))
  const prompts = ends.map(({ promptTokens }) => promptTokens)
  const computed = ends.map(({ report, outputTokens }) => report.computedTokens - (outputTokens - 1))
  assert.ok(Math.max(...prompts) < 512)
  const full = computed.filter((count, i) => count === prompts[i])
  assert.equal(full.length, 1, `one reads all of it, the others their own part: ${computed.join(' ')} of ${prompts.join(' ')}`)
  const own = '0: my own question'.length
  for (const [i, count] of computed.entries()) {
    if (count === prompts[i]) continue
    assert.ok(count < own + 60, `${count} tokens for a question of ${own}`)
    assert.equal(ends[i]?.report.reusedTokens, (prompts[i] ?? 0) - count)
    assert.equal(ends[i]?.cachedTokens, (prompts[i] ?? 0) - count)
  }
  const rows = batches.reduce((sum, batch) => sum + batch.length, 0)
  assert.equal(rows, ends.reduce((sum, { report }) => sum + report.computedTokens, 0), 'what is said to be computed is what was')
})

test('a call that began from a copy has bit-equal logits, the same tokens and the same spans as alone', async () => {
  open({ chunkTokens: 16 })
  let reused = 0
  // Ends of all lengths: nothing of its own, one token, two, ..., and a source that is shorter or longer.
  for (let length = 0; length <= 9; length++) {
    const said = { system: SYSTEM.slice(0, 90 + length), user: 'abcdefghi'.slice(0, length) }
    drawn = []
    const alone = await run(`alone${length}`, said, { tenant: 'nobody else' })
    const expected = drawn.map(({ digest }) => digest)
    discard(`alone${length}`)
    await run(`source${length}`, { ...said, user: length % 2 === 0 ? 'abcdefghi' : 'abc' })
    drawn = []
    batches = []
    const copied = await run(`copied${length}`, said)
    assert.deepEqual(drawn.map(({ digest }) => digest), expected)
    assert.deepEqual(tokensOf(`copied${length}`), tokensOf(`alone${length}`))
    assert.deepEqual(copied.spans, alone.spans)
    assert.deepEqual([copied.resume, copied.promptTokens, copied.outputTokens], [alone.resume, alone.promptTokens, alone.outputTokens])
    assert.ok(batches.slice(0, -copied.outputTokens + 1).every((rows) => rows.length > 1), 'no prefill has one row')
    reused += copied.report.reusedTokens
    discard(`source${length}`, `copied${length}`)
  }
  assert.ok(reused > 10 * 90)
})

test('the same prompt again computes two tokens of it: the logits of its last are needed, and no prefill has one row', async () => {
  open()
  const first = await run('first', { system: SYSTEM, user: 'the same' })
  const again = await run('again', { system: SYSTEM, user: 'the same' }, { seed: 8 })
  assert.equal(again.report.computedTokens, 2 + again.outputTokens - 1)
  assert.equal(again.cachedTokens, first.promptTokens - 2)
})

test('a call that is paused after it began from a copy still says so, and computes nothing twice', async () => {
  open()
  await run('first', { system: SYSTEM, user: 'the first' })
  const said = { system: SYSTEM, user: 'another one' }
  const start = await begin('call', said, { maxTokens: 200 })
  await engine.next((event) => event.kind === 'tokens' && event.call === 'call')
  engine.tell({ kind: 'pause', call: 'call', attempt: 1 })
  const { event } = await engine.next(({ kind }) => kind === 'paused')
  assert.ok(event.kind === 'paused' && event.report.reusedTokens > 200)
  const shown = tokensOf('call')
  const keepTokens = event.report.tailPrefilled + event.report.tailDecoded
  engine.tell({ kind: 'measure', call: 'call', body: start.body, records: [] })
  const { bin } = await engine.next(({ kind }) => kind === 'measured')
  engine.tell({ ...start, attempt: 2, forced: shown, keepTokens, maxTokens: shown.length + 4 }, [bin[0] ?? new Uint8Array()])
  const ended = await finish('call')
  assert.equal(ended.cachedTokens, event.report.reusedTokens)
  assert.deepEqual([ended.report.reusedTokens, ended.report.computedTokens], [0, 4])
})

test('what another lane learns while a call waits or reads is used at its next chunk, in both directions', async () => {
  open({ chunkTokens: 16, lanes: 3 })
  const said = { system: SYSTEM, user: 'one question' }
  const alone = await run('alone', said, { tenant: 'nobody else' })
  discard('alone')
  batches = []
  await begin('slow', said, { rank: 5 })
  while (batches.length < 4) await new Promise((resolve) => setImmediate(resolve))
  await begin('quick', said, { rank: 1 })
  const [slow, quick] = await Promise.all([finish('slow'), finish('quick')])
  assert.ok(quick.report.reusedTokens >= 3 * 16, 'it went on where the slow one was')
  assert.ok(slow.report.reusedTokens >= 32, 'which then went on where it was')
  const prompt = batches.filter((rows) => rows.length > 1 && rows.every(({ lane }) => lane === rows[0]?.lane)).reduce((sum, rows) => sum + rows.length, 0)
  assert.equal(slow.promptTokens - slow.cachedTokens + quick.promptTokens - quick.cachedTokens, prompt, 'what was computed is told, whoever did')
  assert.ok(prompt <= alone.promptTokens + 2, `${prompt} tokens of ${alone.promptTokens} were computed by the two`)
  assert.deepEqual(tokensOf('slow'), tokensOf('alone'))
  assert.deepEqual(tokensOf('quick'), tokensOf('alone'))
})

test('what a lane holds is not lost with it where another call waits to read the same', async () => {
  for (const goes of ['discard', 'cancel'] as const) {
    open({ chunkTokens: 16, lanes: 4 })
    const said = (user: string): Said => ({ system: SYSTEM, user })
    const alone = await run('alone', said('first'), { tenant: 'nobody else' })
    discard('alone')
    await begin('first', said('first'), { rank: 1, maxTokens: 100 })
    await begin('another tenant', said('first'), { rank: 2, tenant: 'other' })
    await begin('second', said('second'), { rank: 3 })
    await begin('third', said('third'), { rank: 4 })
    await engine.next((event) => event.kind === 'tokens' && event.call === 'first')
    if (goes === 'cancel') engine.tell({ kind: 'cancel', call: 'first', attempt: 1 })
    discard('first')
    const ends = await Promise.all(['another tenant', 'second', 'third'].map(finish))
    const [other, second, third] = ends.map(({ report }) => report)
    assert.deepEqual([other?.reusedTokens, other?.recomputedTokens], [0, 0])
    assert.ok((second?.reusedTokens ?? 0) > 200 && (third?.reusedTokens ?? 0) > 200, 'neither read it again')
    assert.deepEqual(tokensOf('another tenant'), tokensOf('alone'))
    assert.equal(other?.computedTokens, alone.report.computedTokens)
    if (goes === 'discard') await engine.kill()
  }
})

test('a State that was discarded comes back from who begins alike: that is no recompute, and exact where the engine is', async () => {
  for (const exact of [PROVEN, { answer: 'no', because: 'the test says so' }] as const) {
    open({ exact })
    const said = { system: SYSTEM, user: 'one question' }
    const whole = await run('whole', said)
    await run('other', { system: SYSTEM, user: 'another question' })
    discard('whole')
    const shown = tokensOf('whole').slice(0, 4)
    const again = await run('again', said, { forced: shown, recomputeTokens: whole.promptTokens + 3 })
    assert.deepEqual([...shown, ...tokensOf('again')], tokensOf('whole'))
    assert.ok(again.report.reusedTokens > 200)
    assert.equal(again.report.recomputedTokens, whole.promptTokens + 3 - again.report.reusedTokens)
    assert.equal(again.resume, exact?.answer === 'yes' ? 'exact' : 'recomputed')
    // What was generated is copied too, where it is the same and was fed the same way.
    const all = await run('all of it', said, { forced: shown, recomputeTokens: whole.promptTokens + 3 })
    assert.deepEqual([...shown, ...tokensOf('all of it')], tokensOf('whole'))
    assert.deepEqual([all.report.reusedTokens, all.report.computedTokens], [whole.promptTokens + 3, whole.outputTokens - 4])
    assert.deepEqual(all.spans, whole.spans)
    if (exact?.answer === 'yes') await engine.kill()
  }
})

test('a library that refuses a copy costs the copy: the call has the tokens it would have had, and none is tried again', async () => {
  open()
  const said = { system: SYSTEM, user: 'one question' }
  await run('alone', said)
  let asked = 0
  engine.llama.copyLane = (_from, to) => {
    asked++
    engine.llama.cut(to, 0)
    throw new LlamaError('state', 'the test refuses it')
  }
  const ends = [await run('one', said), await run('two', said)]
  assert.equal(asked, 1)
  for (const { report, promptTokens, outputTokens } of ends) assert.deepEqual([report.reusedTokens, report.computedTokens], [0, promptTokens + outputTokens - 1])
  assert.deepEqual(tokensOf('one'), tokensOf('alone'))
  assert.deepEqual(tokensOf('two'), tokensOf('alone'))
})

test('a family that cannot be cut at a token is never asked', async () => {
  const recurrent = join(folder, 'recurrent.gguf')
  writeShape(recurrent, 'recurrent')
  open({ modelPath: recurrent })
  engine.llama.copyLane = () => { throw new Error('it was asked') }
  const said = { system: SYSTEM, user: 'one question' }
  await run('one', said)
  assert.equal((await run('two', said)).report.reusedTokens, 0)
})

test('a State belongs to one tenant: another cannot begin on it', async () => {
  open()
  const { state } = await begin('mine', { system: SYSTEM, user: 'mine' })
  await finish('mine')
  await begin('theirs', { system: SYSTEM, user: 'mine' }, { state, tenant: 'other', keepTokens: 100 })
  const heard = engine.heard.find(({ event }) => event.kind === 'failed') ?? await engine.next(({ kind }) => kind === 'failed')
  assert.match(JSON.stringify(heard.event), /belongs to another tenant/)
})

test('what the operator has named as public is shared between tenants, and nothing behind it', async () => {
  open({ publicPrefixes: ['Another text, which is longer than what is shared by all prompts.', SYSTEM], lanes: 4 })
  const said = { system: SYSTEM, user: 'A question that both tenants happen to ask, word for word.' }
  const one = await run('one', said, { tenant: 'one' })
  const two = await run('two', said, { tenant: 'two' })
  const own = `${said.user}<|im_end|>\n<|im_start|>assistant\n`.length
  assert.deepEqual(tokensOf('two'), tokensOf('one'))
  assert.deepEqual(two.spans, one.spans)
  assert.ok(two.report.reusedTokens > SYSTEM.length && two.report.reusedTokens < two.promptTokens - said.user.length, String(two.report.reusedTokens))
  assert.ok(two.report.computedTokens >= said.user.length && two.report.computedTokens <= own + two.outputTokens)
  const again = await run('again', said, { tenant: 'two' })
  assert.equal(again.report.computedTokens, 2 + again.outputTokens - 1, 'its own is its own')
  discard('again')
  const longer = await run('longer', { ...said, system: `${SYSTEM} And something private.` }, { tenant: 'three' })
  assert.ok(longer.report.reusedTokens >= SYSTEM.length && longer.report.reusedTokens < two.report.reusedTokens, 'as far as the public text goes')
  discard('longer')
  const third = await run('third', { ...said, system: `${SYSTEM} And something private.` }, { tenant: 'four' })
  assert.deepEqual(third.report.reusedTokens, longer.report.reusedTokens)
})

test('a public prefix that begins no prompt of the model is refused before anything is served', () => {
  open()
  assert.throws(() => publicPrefix(engine.llama, templateOf(engine.llama), 'far too long '.repeat(100), 512), /"far too long .*" begins no prompt of this model: .*do not fit into 512/)
})

const ROUNDS = 100
const PAIRS_A_ROUND = 10

test('a thousand requests compute as many tokens whether or not another tenant holds their prefix', async () => {
  /** Tokens that each request computes, where the other tenant holds what `holds` says. */
  const computedIn = async (holds: (system: string, round: number) => string): Promise<number[]> => {
    open({ lanes: 4, laneTokens: 256, chunkTokens: 64 })
    const dice = new Dice(12)
    const computed: number[] = []
    for (let round = 0; round < ROUNDS; round++) {
      const system = Array.from({ length: 60 }, () => String.fromCharCode(97 + dice.whole(0, 25))).join('')
      await run(`holder${round}`, { system: holds(system, round), user: 'x' }, { tenant: 'other', maxTokens: 1 })
      for (let i = 0; i < PAIRS_A_ROUND; i++) {
        const call = `r${round}-${i}`
        const said = { system: system.slice(0, dice.whole(30, 60)), user: String(dice.whole(0, 3)) }
        const { report } = await run(call, said, { maxTokens: 1 })
        computed.push(report.computedTokens)
        // Three lanes are the tenant's own: some of its requests find what they need there.
        if (i >= 2) discard(`r${round}-${i - 2}`)
      }
      discard(`holder${round}`, `r${round}-${PAIRS_A_ROUND - 1}`, `r${round}-${PAIRS_A_ROUND - 2}`)
      engine.heard.length = 0
    }
    return computed
  }
  const held = await computedIn((system) => system)
  await engine.kill()
  const notHeld = await computedIn((_, round) => `${round} `.repeat(20).slice(0, 60))
  assert.equal(held.length, ROUNDS * PAIRS_A_ROUND)
  assert.deepEqual(held, notHeld)
  assert.ok(new Set(held).size > 10, 'its own lanes are used')
})
