/**
 * The laws of the port to engines, for every adapter alike. A law that needs a capability is skipped, by name, on an
 * engine that does not declare it; that it then refuses is a law of its own.
 */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { crc32 } from 'node:zlib'
import {
  callId, moveId, segmentId, stateId, tenantId, type CallId, type MoveId, type StateId,
} from '../../src/core/ids.ts'
import type { Finished } from '../../src/core/input.ts'
import type { Capabilities } from '../../src/core/state.ts'
import type {
  EngineCommand, EnginePort, ImageIdentity, ImageSpan, Measurement, StartCommand,
} from '../../src/driver/ports.ts'
import type { ChatCall, ChatMessage } from '../../src/protocol/chat.ts'
import { Listener, pause } from './listener.ts'

export interface Subject {
  readonly engine: EnginePort
  /** Goes on for at least `LONG_TOKENS` tokens, slowly enough to act in between. */
  readonly long: ChatCall
  readonly short: ChatCall
  /** Under this seed. */
  readonly seed: number
  /** For images. */
  readonly dir: string
  /** After the engine was closed. */
  dispose(): Promise<void>
}

const LONG_TOKENS = 24

export function engineContract(name: string, make: () => Promise<Subject>): void {
  describe(`${name} keeps the contract`, () => {
    let stage: Stage
    before(async () => { stage = await Stage.open(await make()) })
    after(async () => { await stage.close() })
    const law = (what: string, needs: readonly (keyof Capabilities)[], run: (stage: Stage) => Promise<void>): void => {
      test(what, async (t) => {
        const missing = needs.find((one) => !stage.capabilities[one])
        if (missing !== undefined) return t.skip(`it does not declare ${missing}`)
        await run(stage)
        assert.equal(stage.listener.spokeTooEarly, false, 'the sink was called from within perform')
      })
    }
    callLaws(law)
    pauseLaws(law)
    threadLaws(law)
    imageLaws(law)
    lifeLaws(make)
  })
}

type Law = (what: string, needs: readonly (keyof Capabilities)[], run: (stage: Stage) => Promise<void>) => void

/** An engine that has joined, with what a test needs to command it. */
class Stage {
  readonly subject: Subject
  readonly listener = new Listener()
  readonly reign = 7
  capabilities!: Capabilities
  #fresh = 0

  constructor(subject: Subject) { this.subject = subject }

  static async open(subject: Subject): Promise<Stage> {
    const stage = new Stage(subject)
    subject.engine.open(stage.reign, stage.listener)
    stage.capabilities = (await stage.listener.until('the engine to join', () => stage.listener.inputs('engineJoined')[0])).capabilities
    return stage
  }

  async close(): Promise<void> {
    await this.subject.engine.close()
    await this.subject.dispose()
  }

  call(): CallId { return callId(`c${++this.#fresh}`) }
  state(): StateId { return stateId(`s${++this.#fresh}`) }
  move(): MoveId { return moveId(`m${++this.#fresh}`) }

  perform(command: EngineCommand): void {
    this.listener.commanding = true
    this.subject.engine.perform(command)
    this.listener.commanding = false
  }

  async measure(call: CallId, chat: ChatCall, records: { call: CallId; record: Uint8Array }[] = []): Promise<Extract<Measurement, { ok: true }>> {
    const measurement = await this.subject.engine.measure({ call, body: JSON.stringify(chat), records })
    if (!measurement.ok) throw new Error(measurement.why)
    return measurement
  }

  start(call: CallId, chat: ChatCall, prepared: Uint8Array, more: Partial<StartCommand> = {}): StartCommand {
    const command: StartCommand = {
      kind: 'start', call, attempt: 1, run: 0, epoch: 3, state: stateId(`of-${call}`), body: JSON.stringify(chat), prepared,
      baseTokens: 0, keepTokens: 0, recomputeTokens: 0, replay: 'exact', forced: [], seed: this.subject.seed,
      maxTokens: chat.maxTokens ?? 512, rank: 1, tenant: tenantId('t'), grantGranules: this.granules(chat), ...more,
    }
    this.perform(command)
    return command
  }

  /** Enough for the whole of a call. */
  granules(chat: ChatCall): number {
    const { memory, contextTokens } = this.capabilities
    return memory === null ? 0 : Math.ceil(Math.min(contextTokens, JSON.stringify(chat).length + (chat.maxTokens ?? 512)) / memory.granule)
  }

  /** The call from beginning to end in a State of its own, undisturbed. */
  async run(chat: ChatCall, more: Partial<StartCommand> = {}): Promise<Ran> {
    const call = this.call()
    const { prepared, promptTokens } = await this.measure(call, chat)
    const { state, attempt } = this.start(call, chat, prepared, more)
    const finished = await this.listener.finished(call, attempt)
    return { call, state, finished, promptTokens, tokens: this.listener.tokens(call, attempt), text: this.listener.text(call, attempt) }
  }

  discard(state: StateId): void {
    if (this.capabilities.discard) this.perform({ kind: 'discard', state })
  }

  identity(state: StateId): ImageIdentity {
    return { tenant: tenantId('t'), state, owner: state, epoch: 0, reign: this.reign }
  }

  async offload(state: StateId, finished: Finished): Promise<{ path: string; digest: string; bytes: number }> {
    const move = this.move()
    const path = join(this.subject.dir, `${move}.kv`)
    this.perform({ kind: 'offload', move, state, path, spans: spansOf(finished), identity: this.identity(state) })
    const done = await this.listener.until('moveDone', () => this.moveEnd(move))
    assert.equal(done.kind, 'moveDone', JSON.stringify(done))
    assert.ok(done.kind === 'moveDone')
    return { path, digest: done.digest, bytes: done.bytes }
  }

  onboard(state: StateId, path: string, digest: string): MoveId {
    const move = this.move()
    this.perform({ kind: 'onboard', move, state, path, digest, identity: this.identity(state) })
    return move
  }

  moveEnd(move: MoveId) {
    return [...this.listener.inputs('moveDone'), ...this.listener.inputs('moveFailed')].find((one) => one.move === move)
  }
}

interface Ran { call: CallId; state: StateId; finished: Finished; promptTokens: number; tokens: number[]; text: string }

const spansOf = (finished: Finished): ImageSpan[] =>
  finished.spans.map(({ tokens, origin, digest }) => ({ id: segmentId(digest), tokens, origin }))

const fedBy = (finished: Finished): number => finished.spans.reduce((sum, { tokens }) => sum + tokens, 0)

/** The same conversation, one user's turn on. */
const continued = (chat: ChatCall, answer: string): ChatCall => ({
  ...chat, messages: [...chat.messages, message('assistant', answer), message('user', 'and then?')],
})

export const message = (role: ChatMessage['role'], content: string): ChatMessage => ({ role, content, toolCalls: [], toolCallId: null })

export const chatCall = (model: string, content: string, more: Partial<ChatCall> = {}): ChatCall => ({
  model, messages: [message('user', content)], tools: [], toolChoice: 'auto', stop: [], maxTokens: 64,
  sampling: { temperature: 1, topP: 1, topK: 0, minP: 0 }, ...more,
})

function callLaws(law: Law): void {
  law('it joins under the reign it was opened with', [], async (stage) => {
    // Again, where it has learnt more of itself.
    for (const { engine, reign } of stage.listener.inputs('engineJoined')) {
      assert.deepEqual({ engine, reign }, { engine: stage.subject.engine.id, reign: stage.reign })
    }
    assert.ok(stage.capabilities.models.includes(stage.subject.short.model))
    assert.ok(stage.capabilities.runningMax > 0 && stage.capabilities.contextTokens > 0)
  })

  law('measure of the same body twice is equal', [], async (stage) => {
    const [one, two] = [await stage.measure(stage.call(), stage.subject.short), await stage.measure(stage.call(), stage.subject.short)]
    assert.deepEqual(one, two)
    assert.ok(one.promptTokens > 0)
  })

  law('a body that is no chat call, and a prompt over the context, are refused with a code', [], async (stage) => {
    const { engine, short } = stage.subject
    const nonsense = await engine.measure({ call: stage.call(), body: '{"no": "call"}', records: [] })
    assert.equal(nonsense.ok, false)
    const words = 'word '.repeat(stage.capabilities.contextTokens)
    const long = await engine.measure({ call: stage.call(), body: JSON.stringify({ ...short, messages: [message('user', words)] }), records: [] })
    assert.ok(!long.ok && long.code === 'context_too_long' && /\d/.test(long.why), JSON.stringify(long))
  })

  law('an attempt ends exactly once, its outcome just before its end', [], async (stage) => {
    const { call, finished } = await stage.run(stage.subject.short)
    await pause(150)
    const { said } = stage.listener
    const of = said.filter((one) => (one.kind === 'outcome' ? one.call === call : one.kind === 'input' && 'call' in one.input && one.input.call === call))
    assert.deepEqual(of.map((one) => (one.kind === 'input' ? one.input.kind : one.kind)), ['outcome', 'finished'])
    assert.equal(said[said.findIndex((one) => one.kind === 'input' && one.input === finished) - 1], of[0])
    const { engine, reign, attempt, run, epoch } = finished
    assert.deepEqual({ engine, reign, attempt, run, epoch }, { engine: stage.subject.engine.id, reign: stage.reign, attempt: 1, run: 0, epoch: 3 })
    stage.discard(stateId(`of-${call}`))
  })

  law('chunk indexes are contiguous, and the report counts what was shown', [], async (stage) => {
    const ran = await stage.run(stage.subject.long)
    let next = 0
    for (const { index, tokens } of stage.listener.chunks(ran.call, 1)) {
      assert.equal(index, next)
      next += tokens.length
    }
    assert.ok(next >= LONG_TOKENS, `only ${next} tokens`)
    // The token that ends an answer may be counted and is never shown.
    assert.ok([next, next + 1].includes(ran.finished.report.outputTokens), `${ran.finished.report.outputTokens} against ${next}`)
    const { parts, report } = ran.finished
    assert.ok(parts.prefillUs >= 0 && parts.decodeUs > 0 && report.service.useful.residentUs > 0)
    assert.ok(report.service.useful.workUs <= report.service.useful.residentUs)
    stage.discard(ran.state)
  })

  law('a cancelled attempt says nothing more', ['cancel'], async (stage) => {
    const call = stage.call()
    const { prepared } = await stage.measure(call, stage.subject.long)
    const { state } = stage.start(call, stage.subject.long, prepared)
    await stage.listener.until('a first chunk', () => stage.listener.chunks(call, 1)[0])
    assert.deepEqual(stage.listener.ends(call, 1), [], 'it ended before it could be cancelled')
    stage.perform({ kind: 'cancel', call, attempt: 1 })
    const saidBefore = stage.listener.of(call)
    await pause(200)
    assert.equal(stage.listener.of(call), saidBefore)
    stage.perform({ kind: 'cancel', call, attempt: 1 })
    stage.discard(state)
    const again = await stage.run(stage.subject.short)
    stage.discard(again.state)
  })

  law('progress is told while a call runs, in counters that never shrink', ['progress'], async (stage) => {
    const ran = await stage.run(stage.subject.long)
    const reports = stage.listener.inputs('progress').flatMap(({ calls }) => calls).filter(({ call }) => call === ran.call)
    assert.ok(reports.length > 0, 'nothing was told')
    for (const [index, { report, epoch }] of reports.entries()) {
      const next = reports[index + 1]?.report ?? ran.finished.report
      assert.equal(epoch, 3)
      assert.ok(next.outputTokens >= report.outputTokens && next.service.useful.residentUs >= report.service.useful.residentUs)
    }
    stage.discard(ran.state)
  })

  law('what is not declared is refused by its name', [], async (stage) => {
    const { capabilities, subject: { engine } } = stage
    const state = stage.state()
    const image = { path: join(stage.subject.dir, 'none.kv'), identity: stage.identity(state) }
    for (const kind of ['offload', 'onboard'] as const) {
      if (capabilities[kind]) continue
      const move = stage.move()
      stage.perform(kind === 'offload' ? { kind, move, state, spans: [], ...image } : { kind, move, state, digest: 'd', ...image })
      const end = await stage.listener.until('moveFailed', () => stage.moveEnd(move))
      assert.ok(end.kind === 'moveFailed' && !end.sourceLost && end.why.includes(engine.id) && end.why.includes(kind), JSON.stringify(end))
    }
    if (capabilities.memory === null) {
      const call = stage.call()
      const { prepared } = await stage.measure(call, stage.subject.short)
      stage.start(call, stage.subject.short, prepared, { keepTokens: 5, baseTokens: 5 })
      const end = await stage.listener.end(call, 1)
      assert.ok(end.kind === 'attemptFailed' && !end.retryable && end.why.includes('memory'), JSON.stringify(end))
    }
    if (!capabilities.preempt) {
      const call = stage.call()
      const { prepared } = await stage.measure(call, stage.subject.short)
      stage.start(call, stage.subject.short, prepared)
      stage.perform({ kind: 'pause', call, attempt: 1 })
      assert.equal((await stage.listener.end(call, 1)).kind, 'finished')
    }
  })

  law('an engine that keeps its own counsel about memory says nothing of KV', [], async (stage) => {
    if (stage.capabilities.memory !== null) return
    const { call, finished } = await stage.run(stage.subject.short)
    const { spans, report } = finished
    assert.deepEqual([spans, report.tailPrefilled, report.tailDecoded, report.recomputedTokens, finished.resume], [[], 0, 0, 0, 'none'])
    assert.equal(stage.listener.outcomes(call, 1)[0]?.record, null)
  })

  law('a second attempt at a call that runs is refused, and the first goes on', [], async (stage) => {
    const call = stage.call()
    const { prepared } = await stage.measure(call, stage.subject.long)
    const { state } = stage.start(call, stage.subject.long, prepared)
    stage.start(call, stage.subject.long, prepared, { attempt: 2, state: stage.state() })
    assert.equal((await stage.listener.end(call, 2)).kind, 'attemptFailed')
    assert.equal((await stage.listener.end(call, 1)).kind, 'finished')
    stage.discard(state)
  })
}

function pauseLaws(law: Law): void {
  law('pause keeps what was fed, and a later start continues it token by token', ['preempt', 'memory'], async (stage) => {
    const { long } = stage.subject
    const whole = await stage.run(long)
    stage.discard(whole.state)
    const call = stage.call()
    const { prepared, promptTokens } = await stage.measure(call, long)
    const { state } = stage.start(call, long, prepared)
    await stage.listener.until('five tokens', () => stage.listener.tokens(call, 1).length >= 5)
    stage.perform({ kind: 'pause', call, attempt: 1 })
    const paused = await stage.listener.end(call, 1)
    assert.ok(paused.kind === 'paused', JSON.stringify(paused))
    const shown = stage.listener.tokens(call, 1)
    const { tailPrefilled, tailDecoded, outputTokens } = paused.report
    assert.equal(tailPrefilled, promptTokens)
    assert.equal(tailDecoded, shown.length - 1)
    assert.equal(outputTokens, shown.length)
    await pause(200)
    assert.equal(stage.listener.ends(call, 1).length, 1)
    stage.start(call, long, prepared, { attempt: 2, state, keepTokens: tailPrefilled + tailDecoded, forced: shown })
    const finished = await stage.listener.finished(call, 2)
    assert.deepEqual([...shown, ...stage.listener.tokens(call, 2)], whole.tokens)
    assert.equal(stage.listener.chunks(call, 2)[0]?.index, shown.length)
    assert.equal(finished.report.recomputedTokens, 0)
    assert.deepEqual(finished.spans, whole.finished.spans)
    stage.discard(state)
  })

  law('forced tokens are fed and not shown again, on a State that is gone', ['replayByOrigin'], async (stage) => {
    const whole = await stage.run(stage.subject.long)
    stage.discard(whole.state)
    const forced = whole.tokens.slice(0, 6)
    const call = stage.call()
    const { prepared, promptTokens } = await stage.measure(call, stage.subject.long)
    const recomputeTokens = promptTokens + forced.length - 1
    const { state } = stage.start(call, stage.subject.long, prepared, { forced, recomputeTokens })
    const finished = await stage.listener.finished(call, 1)
    assert.equal(stage.listener.chunks(call, 1)[0]?.index, forced.length)
    assert.deepEqual([...forced, ...stage.listener.tokens(call, 1)], whole.tokens)
    assert.equal(finished.report.recomputedTokens, recomputeTokens)
    assert.ok(finished.report.service.recomputed.residentUs > 0 && finished.parts.recomputeUs > 0)
    stage.discard(state)
  })
}

function threadLaws(law: Law): void {
  law('the next call of a thread feeds only what is new', ['tokenise', 'memory'], async (stage) => {
    const first = await stage.run(stage.subject.short)
    const outcome = stage.listener.outcomes(first.call, 1)[0]
    assert.ok(outcome?.record, 'it left no record')
    const chat = continued(stage.subject.short, first.text)
    const call = stage.call()
    const { prepared, promptTokens, matched } = await stage.measure(call, chat, [{ call: first.call, record: outcome.record }])
    assert.deepEqual(matched, { record: first.call, tokens: fedBy(first.finished) })
    assert.ok(matched)
    stage.start(call, chat, prepared, { state: first.state, baseTokens: matched.tokens, keepTokens: matched.tokens })
    const finished = await stage.listener.finished(call, 1)
    assert.equal(finished.report.tailPrefilled, promptTokens - matched.tokens)
    assert.equal(finished.report.recomputedTokens, 0)
    assert.equal(stage.listener.outcomes(call, 1)[0]?.cachedTokens, matched.tokens)
    stage.discard(first.state)
  })

  law('discard, then a start with keepTokens 0, recomputes to the same tokens', ['discard', 'tokenise'], async (stage) => {
    const first = await stage.run(stage.subject.short)
    const record = stage.listener.outcomes(first.call, 1)[0]?.record
    assert.ok(record)
    const chat = continued(stage.subject.short, first.text)
    const runs: { tokens: number[]; finished: Finished }[] = []
    for (const gone of [false, true]) {
      const call = stage.call()
      const { prepared, matched } = await stage.measure(call, chat, [{ call: first.call, record }])
      const baseTokens = matched?.tokens ?? 0
      if (gone) stage.discard(first.state)
      stage.start(call, chat, prepared, { state: first.state, baseTokens, keepTokens: gone ? 0 : baseTokens, recomputeTokens: gone ? baseTokens : 0 })
      const finished = await stage.listener.finished(call, 1)
      assert.equal(finished.report.recomputedTokens, gone ? baseTokens : 0)
      runs.push({ tokens: stage.listener.tokens(call, 1), finished })
    }
    assert.deepEqual(runs[1]?.tokens, runs[0]?.tokens)
    assert.deepEqual(runs[1]?.finished.spans, runs[0]?.finished.spans)
    assert.ok((runs[1]?.finished.parts.recomputeUs ?? 0) > 0)
    assert.notEqual(runs[1]?.finished.resume, 'none')
    stage.discard(first.state)
  })
}

function imageLaws(law: Law): void {
  law('moveDone comes only after the image can be read back', ['offload'], async (stage) => {
    const { state, finished } = await stage.run(stage.subject.short)
    const { path, digest, bytes } = await stage.offload(state, finished)
    const file = readFileSync(path)
    assert.equal(file.length, bytes)
    assert.equal(crc32(file).toString(16).padStart(8, '0'), digest)
    stage.discard(state)
  })

  law('a State comes back from its image and continues', ['offload', 'onboard', 'discard'], async (stage) => {
    const first = await stage.run(stage.subject.short)
    const record = stage.listener.outcomes(first.call, 1)[0]?.record
    assert.ok(record)
    const { path, digest } = await stage.offload(first.state, first.finished)
    const chat = continued(stage.subject.short, first.text)
    const outputs: number[][] = []
    for (const moved of [false, true]) {
      if (moved) {
        stage.discard(first.state)
        const move = stage.onboard(first.state, path, digest)
        assert.equal((await stage.listener.until('moveDone', () => stage.moveEnd(move))).kind, 'moveDone')
      }
      const call = stage.call()
      const { prepared, matched } = await stage.measure(call, chat, [{ call: first.call, record }])
      const tokens = matched?.tokens ?? 0
      stage.start(call, chat, prepared, { state: first.state, baseTokens: tokens, keepTokens: tokens })
      assert.equal((await stage.listener.finished(call, 1)).report.recomputedTokens, 0)
      outputs.push(stage.listener.tokens(call, 1))
    }
    assert.deepEqual(outputs[1], outputs[0])
    stage.discard(first.state)
  })

  law('a damaged, cut, foreign or missing image is refused, and nothing of it stays', ['offload', 'onboard', 'discard'], async (stage) => {
    const { state, finished } = await stage.run(stage.subject.short)
    const { path, digest } = await stage.offload(state, finished)
    stage.discard(state)
    const whole = readFileSync(path)
    const flipped = Buffer.from(whole)
    flipped.writeUInt8(flipped.readUInt8(flipped.length - 9) ^ 4, flipped.length - 9)
    for (const bytes of [flipped, whole.subarray(0, whole.length - 50), Buffer.alloc(0), Buffer.from('no image')]) {
      writeFileSync(path, bytes)
      const move = stage.onboard(state, path, digest)
      const end = await stage.listener.until('moveFailed', () => stage.moveEnd(move))
      assert.ok(end.kind === 'moveFailed' && end.sourceLost, JSON.stringify(end))
    }
    writeFileSync(path, whole)
    const foreign = stage.onboard(stage.state(), path, digest)
    assert.equal((await stage.listener.until('moveFailed', () => stage.moveEnd(foreign))).kind, 'moveFailed')
    const missing = stage.onboard(state, `${path}.gone`, digest)
    assert.equal((await stage.listener.until('moveFailed', () => stage.moveEnd(missing))).kind, 'moveFailed')
    const good = stage.onboard(state, path, digest)
    assert.equal((await stage.listener.until('moveDone', () => stage.moveEnd(good))).kind, 'moveDone')
    stage.discard(state)
  })

  law('an image that cannot be written fails its move, and the State stays', ['offload', 'discard'], async (stage) => {
    const { state, finished } = await stage.run(stage.subject.short)
    const move = stage.move()
    const path = join(stage.subject.dir, 'no', 'such', 'folder.kv')
    stage.perform({ kind: 'offload', move, state, path, spans: spansOf(finished), identity: stage.identity(state) })
    const end = await stage.listener.until('moveFailed', () => stage.moveEnd(move))
    assert.ok(end.kind === 'moveFailed' && !end.sourceLost, JSON.stringify(end))
    await stage.offload(state, finished)
    stage.discard(state)
  })
}

function lifeLaws(make: () => Promise<Subject>): void {
  test('a command under an older reign changes nothing, a newer reign takes over, and closing ends what runs', async () => {
    const subject = await make()
    assert.doesNotThrow(() => subject.engine.perform({ kind: 'cancel', call: callId('none'), attempt: 1 }))
    const stage = await Stage.open(subject)
    const call = stage.call()
    const { prepared } = await stage.measure(call, subject.long)
    stage.start(call, subject.long, prepared)
    await stage.listener.until('a first chunk', () => stage.listener.chunks(call, 1)[0])

    const older = new Listener()
    subject.engine.open(stage.reign - 1, older)
    const refused = await older.until('a refusal', () => older.inputs('engineLost')[0])
    assert.equal(refused.reign, stage.reign - 1)
    assert.match(refused.why, new RegExp(`${stage.reign}`))
    assert.deepEqual(stage.listener.inputs('engineLost'), [])
    const tokensBefore = stage.listener.tokens(call, 1).length
    await stage.listener.until('it to go on', () => stage.listener.tokens(call, 1).length > tokensBefore)

    const newer = new Listener()
    subject.engine.open(stage.reign + 1, newer)
    await stage.listener.until('the end of what ran', () => stage.listener.inputs('engineLost')[0])
    const saidBefore = stage.listener.said.length
    const joined = await newer.until('the engine to join', () => newer.inputs('engineJoined')[0])
    assert.equal(joined.reign, stage.reign + 1)
    assert.equal(stage.listener.said.length, saidBefore, 'it went on talking to the old reign')

    const body = JSON.stringify(subject.long)
    const measured = await subject.engine.measure({ call, body, records: [] })
    assert.ok(measured.ok)
    const memory = joined.capabilities.memory
    subject.engine.perform({
      kind: 'start', call, attempt: 2, run: 0, epoch: 3, state: stateId('next'), body, prepared: measured.prepared,
      baseTokens: 0, keepTokens: 0, recomputeTokens: 0, replay: 'exact', forced: [], seed: subject.seed,
      maxTokens: subject.long.maxTokens ?? 512, rank: 1, tenant: tenantId('t'), grantGranules: memory === null ? 0 : stage.granules(subject.long),
    })
    await newer.until('a first chunk', () => newer.chunks(call, 2)[0])
    await subject.engine.close()
    assert.equal(newer.inputs('engineLost').length, 1)
    const closedAt = newer.said.length
    subject.engine.perform({ kind: 'discard', state: stateId('next') })
    await pause(200)
    assert.equal(newer.said.length, closedAt)
    assert.equal(older.said.length, 1)
    assert.equal((await subject.engine.measure({ call, body: 'x', records: [] })).ok, false)
    await subject.dispose()
  })
}
