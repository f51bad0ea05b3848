/** What is late, doubled or of another life changes nothing, and says why; what an attempt received is never lost. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { callId, engineId, moveId, tenantId, type CallId } from '../../src/core/ids.ts'
import type { Input } from '../../src/core/input.ts'
import type { Logged } from '../../src/core/fact.ts'
import { emptyLedger } from '../../src/core/state.ts'
import { E0, kinds, only, Quiet, REPORT } from './quiet.ts'
import { stateText } from './state-text.ts'
import { CLAIMS, LANES, random, World, type WorldOptions } from './world.ts'

const E1 = engineId('e1')
/** All but the number of the last fact and its time. */
const timeless = (world: World): string => stateText({ ...world.core, seq: 0, nowUs: 0 })

/** Feeds it and expects one word about it, and nothing else to change. */
function ignored(at: World, input: Input, why: RegExp): void {
  const before = timeless(at)
  const facts = at.feed(input)
  assert.deepEqual(kinds(facts), ['result.ignored'], `${input.kind}: ${kinds(facts).join()}`)
  assert.match(only(facts, 'result.ignored')[0]?.why ?? '', why)
  assert.equal(timeless(at), before)
}

const from = (call: CallId, attempt: number, reign = 1, engine = E0) => ({ engine, reign, call, attempt, run: 0, epoch: 1 })
const finished = (call: CallId, attempt: number, reign = 1, engine = E0): Input => ({
  kind: 'finished', ...from(call, attempt, reign, engine), finish: 'stop', report: REPORT, parts: { waitUs: 0, recomputeUs: 0, prefillUs: 1, decodeUs: 1 },
  spans: [{ tokens: 60, origin: 'prefilled', digest: 'a' }], toolCalls: [], toolEffect: 'read', resume: 'none',
})

test('an engine that was declared lost and comes back says nothing that counts: its call runs elsewhere and commits there once', () => {
  const at = new Quiet(1, { engines: [LANES, LANES] })
  const call = at.named('p')
  at.measure(call)
  at.feed({ kind: 'engineLost', engine: E0, reign: 1, why: 'silent' })
  assert.deepEqual(at.core.calls.get(call)?.stage, { kind: 'running', engine: E1, sinceUs: at.nowUs })
  ignored(at, finished(call, 1), /attempt 1, now 2/)
  ignored(at, finished(call, 2), /it runs on e1/)
  ignored(at, { kind: 'paused', ...from(call, 1), report: REPORT }, /attempt 1, now 2/)
  ignored(at, { kind: 'attemptFailed', ...from(call, 1), why: 'x', retryable: true }, /attempt 1, now 2/)
  ignored(at, { kind: 'progress', engine: E0, reign: 1, speeds: { prefillNsPerToken: 1, decodeBaseNs: 1, decodeRowNs: 1, copyOutNsPerToken: 1, copyInNsPerToken: 1 }, calls: [] }, /the engine is lost/)
  ignored(at, { kind: 'engineLost', engine: E0, reign: 1, why: 'silent' }, /it had not joined/)
  at.feed(finished(call, 2, 1, E1))
  assert.equal(only(at.log, 'call.completed').length, 1)
})

test('a word of an older reign changes nothing, whoever says it and whatever it is', () => {
  const at = new Quiet(1, { config: { residency: 'always-offload' } })
  at.waiting('p')
  const { move } = only(at.log, 'kv.offload.begun')[0] ?? { move: moveId('') }
  const call = at.named('q')
  at.measure(call)
  const old = 0
  ignored(at, finished(call, 1, old), /reign 0, now 1/)
  ignored(at, { kind: 'paused', ...from(call, 1, old), report: REPORT }, /reign 0, now 1/)
  ignored(at, { kind: 'attemptFailed', ...from(call, 1, old), why: 'x', retryable: true }, /reign 0, now 1/)
  ignored(at, { kind: 'progress', engine: E0, reign: old, speeds: null, calls: [{ call, attempt: 1, run: 0, epoch: 1, report: REPORT }] }, /reign 0, now 1/)
  ignored(at, { kind: 'moveDone', engine: E0, reign: old, move, bytes: 1, digest: 'x', copyUs: 1 }, /reign 0, now 1/)
  ignored(at, { kind: 'moveFailed', engine: E0, reign: old, move, why: 'x', sourceLost: true }, /reign 0, now 1/)
  ignored(at, { kind: 'engineLost', engine: E0, reign: old, why: 'x' }, /reign 0, now 1/)
  ignored(at, { kind: 'restart', reign: 1, wallOffsetUs: 0, images: [] }, /reign 1 is not above 1/)
})

test('what was said of an earlier pause and comes again does not pause the call that runs on', () => {
  const at = new Quiet(1, {})
  const call = at.named('p')
  at.measure(call)
  ignored(at, { kind: 'paused', ...from(call, 1), report: REPORT }, /it was not told to pause/)
  assert.equal(at.core.calls.get(call)?.stage.kind, 'running')
})

/** Remembers what was said of attempts and moves, and says some of it again. */
class Echoing extends World {
  readonly #said: Input[] = []
  readonly #chance = random(99)
  #echoes = false
  again = 0

  constructor(seed: number, options: WorldOptions) {
    super(seed, options)
    this.#echoes = true
  }

  override feed(input: Input): Logged[] {
    const facts = super.feed(input)
    // The first restart comes while the world is being made.
    if (!(#echoes in this) || !this.#echoes) return facts
    const once = input.kind === 'finished' || input.kind === 'paused' || input.kind === 'attemptFailed' || input.kind === 'moveDone'
      || input.kind === 'moveFailed' || input.kind === 'measured' || input.kind === 'measureFailed'
    if (once && facts.some(({ fact }) => fact.kind !== 'result.ignored')) this.#said.push(input)
    const echo = this.#chance() < 0.7 ? this.#said[Math.floor(this.#chance() * this.#said.length)] : undefined
    if (echo === undefined) return facts
    this.#echoes = false
    ignored(this, echo, /./)
    this.again += 1
    this.#echoes = true
    return facts
  }
}

test('whatever was said once of an attempt, a move or a measurement changes nothing when it is said again, at any later time', () => {
  let again = 0
  for (let seed = 1; seed <= 6; seed += 1) {
    const world = new Echoing(seed, { engines: [LANES, LANES], faults: 0.4, config: { order: 'plas' } })
    world.agents(8)
    for (let second = 2; second < 40; second += 1) {
      world.run(second * 1_000_000)
      world.disturb()
    }
    again += world.again
  }
  assert.ok(again > 400, `${again} echoes`)
})

test('tool results are of one call: those of two, or of one and of nobody, are refused by name', () => {
  const at = new Quiet(1)
  const one = at.waiting('p')
  const two = at.submit({ claims: { ...at.claims('p'), thread: 'other' } })
  at.measure(two)
  at.endWithTool(two)
  at.named('p', [`tool-of-${one}`, `tool-of-${two}`])
  at.submit({ claims: { ...at.claims(null), toolResults: [`tool-of-${one}`, 'never'] } })
  assert.deepEqual(only(at.log, 'call.refused').map(({ code, why }) => [code, why.split(' ')[0]]), [['unknown_tool_call', `tool-of-${two}`], ['unknown_tool_call', 'never']])
  assert.equal(at.core.threads.get(at.core.calls.get(one)?.thread as never)?.interrupt, `${one}.wait`, 'it waits on')
})

test('results of a cancelled program, or of an older epoch, make no call', () => {
  const at = new Quiet(1)
  const call = at.waiting('p')
  at.submit({ claims: { ...at.claims('p'), epoch: 0, toolResults: [`tool-of-${call}`] } })
  at.feed({ kind: 'cancelProgram', tenant: at.tenant, program: 'p' })
  at.named('p', [`tool-of-${call}`])
  at.submit({ claims: { ...at.claims(null), toolResults: [`tool-of-${call}`] } })
  assert.deepEqual(only(at.log, 'call.refused').map(({ code }) => code), ['stale_epoch', 'program_cancelled', 'program_cancelled'])
})

test('the first call of a program is fenced as every other: an epoch that is not its own makes no program', () => {
  const at = new Quiet(1)
  for (const epoch of [7, 0]) at.submit({ claims: { ...at.claims('p'), epoch } })
  assert.deepEqual(only(at.log, 'call.refused').map(({ code }) => code), ['stale_epoch', 'stale_epoch'])
  assert.deepEqual(only(at.log, 'program.started'), [])
  at.submit({ claims: { ...at.claims('p'), epoch: 1 } })
  assert.equal(only(at.log, 'program.started').length, 1)
})

test('the same body under the names of two programs is two calls: neither is the retry of the other', () => {
  const at = new Quiet(1)
  const one = at.named('p', [], { digest: 'same' })
  const two = at.named('q', [], { digest: 'same' })
  assert.notEqual(at.core.calls.get(two)?.program, at.core.calls.get(one)?.program)
  assert.equal(only(at.log, 'call.attached').length, 0)
})

test('a ledger is the program\'s: attempts that came to nothing move from useful to retried, and nothing begins at zero again', () => {
  const at = new Quiet(1, { engines: [LANES, LANES] })
  const call = at.named('p')
  at.measure(call)
  const attained: number[] = []
  const ledger = () => at.core.programs.get('t/p' as never)?.ledger ?? emptyLedger()
  const serve = (attempt: number, engine = E0): void => {
    at.feed({ kind: 'progress', engine, reign: 1, speeds: null, calls: [{ ...from(call, attempt), report: REPORT }] })
    attained.push(ledger().useful.residentUs + ledger().retried.residentUs)
  }
  serve(1)
  at.feed({ kind: 'attemptFailed', ...from(call, 1), why: 'broken', retryable: true })
  serve(2)
  at.feed({ kind: 'engineLost', engine: E0, reign: 1, why: 'gone' })
  serve(3, E1)
  at.feed({ kind: 'cancelProgram', tenant: at.tenant, program: 'p' })
  assert.deepEqual(attained, [500, 1_000, 1_500])
  assert.deepEqual([ledger().useful.residentUs, ledger().retried.residentUs], [0, 1_500])
})

test('a restart keeps ledgers, epochs and attempts: a call goes on as a new attempt of itself', () => {
  const at = new Quiet(1)
  const call = at.named('p', [], { digest: 'kept' })
  at.measure(call)
  at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ ...from(call, 1), report: REPORT }] })
  at.killControlPlane()
  assert.equal(at.core.calls.get(call)?.stage.kind, 'detached')
  assert.equal(at.core.programs.get('t/p' as never)?.ledger.retried.residentUs, 500)
  ignored(at, finished(call, 1), /reign 1, now 2/)
  at.named('p', [], { digest: 'kept' })
  assert.equal(at.core.programs.get('t/p' as never)?.calls.length, 1)
  assert.deepEqual([at.core.calls.get(call)?.attempt, at.core.calls.get(call)?.stage.kind], [2, 'running'])
})

test('a session that went with its newest program takes in what an older program of it leaves', () => {
  const at = new Quiet(1, { config: { programsMax: 2 } })
  const declare = (program: string, session: string | null): void =>
    void at.feed({ kind: 'declareProgram', tenant: at.tenant, program, session, agent: 'a', priorityClass: 'default', deadlineUs: null, parent: null, steps: null })
  declare('older', 's')
  declare('newer', 's')
  at.feed({ kind: 'finishProgram', tenant: at.tenant, program: 'newer' })
  declare('other', null)
  assert.deepEqual([at.core.programs.has('t/newer' as never), at.core.sessions.size], [false, 0])
  const call = at.named('older')
  at.feed({ kind: 'measured', call, promptTokens: 60, matched: { record: callId('gone'), tokens: 60 }, renderingWon: null })
  at.end(call)
  at.feed({ kind: 'finishProgram', tenant: at.tenant, program: 'older' })
  assert.deepEqual([...at.core.sessions.values()].map(({ states }) => states.length), [1])
})

test('the body of one tenant is no retry of another\'s, though their digests are the same and no program is named', () => {
  const at = new Quiet(1)
  const claims = { ...CLAIMS, session: 's' }
  const mine = at.submit({ claims, digest: 'd' })
  const theirs = at.submit({ claims, digest: 'd', tenant: tenantId('u') })
  assert.equal(only(at.log, 'call.attached').length, 0)
  assert.notEqual(at.core.calls.get(theirs)?.program, at.core.calls.get(mine)?.program)
})
