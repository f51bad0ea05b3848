/** An engine that was cut off and comes back: what it still holds is adopted where it is what was committed, and dropped where not. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { engineId, moveId, stateId } from '../../src/core/ids.ts'
import type { Held } from '../../src/core/input.ts'
import type { Capabilities } from '../../src/core/state.ts'
import { E0, kinds, only, Quiet } from './quiet.ts'
import { BLOCKS, LANES, SPEEDS, World } from './world.ts'

const KEEPS: Capabilities = { ...LANES, inventory: true }

/** A program that waits for its tool, in a control plane that was killed meanwhile; and what its engine holds of it. */
function cutOff(): { at: Quiet; held: Held; call: string } {
  const at = new Quiet(1, { engines: [KEEPS] })
  const call = at.waiting('p')
  const [state] = at.core.states.keys()
  at.core = at.replay()
  at.feed({ kind: 'restart', reign: 2, wallOffsetUs: 0, images: [] })
  assert.equal(at.core.states.get(state as never)?.residence.kind, 'gone', 'until its engine says otherwise')
  return { at, call, held: { state: state ?? stateId(''), epoch: 1, tokens: 69, digest: 'b' } }
}

const join = (at: Quiet, inventory: readonly Held[], more: Partial<Capabilities> = {}) =>
  at.feed({ kind: 'engineJoined', engine: E0, reign: at.core.reign, capabilities: { ...KEEPS, ...more }, speeds: SPEEDS, inventory })

test('what an engine kept over a restart of its control plane is adopted, and the program goes on without feeding a token again', () => {
  const { at, held, call } = cutOff()
  const facts = join(at, [held])
  assert.deepEqual(kinds(facts).slice(0, 2), ['engine.joined', 'kv.found'])
  assert.equal(at.core.engines.get(E0)?.ownedGranules, 1)
  assert.equal(only(facts, 'kv.decided').length, 1, 'its wait is decided anew: the timers of the last reign are gone')
  const next = at.named('p', [`tool-of-${call}`])
  at.feed({ kind: 'measured', call: next, promptTokens: 80, matched: { record: call as never, tokens: 69 }, renderingWon: null })
  const [scheduled] = only(at.log, 'call.scheduled').slice(-1)
  assert.deepEqual([scheduled?.keepTokens, scheduled?.recomputeTokens], [69, 0])
})

test('what is not just what was committed is dropped by command, each by its reason, and nothing is adopted of it', () => {
  const { at, held } = cutOff()
  const strange: readonly [Held, RegExp][] = [
    [{ ...held, state: stateId('nobody') }, /no such State/],
    [{ ...held, epoch: 2 }, /epoch 2, now 1/],
    [{ ...held, tokens: 68 }, /not the committed/],
    [{ ...held, digest: 'z' }, /not the committed/],
    [{ ...held, tokens: 0 }, /not the committed/],
  ]
  for (const [one, why] of strange) {
    const facts = join(at, [one])
    const [unclaimed] = only(facts, 'kv.unclaimed')
    assert.match(unclaimed?.states[0]?.why ?? '', why)
    assert.equal(only(facts, 'kv.found').length, 0)
    assert.equal(at.core.engines.get(E0)?.ownedGranules, 0)
  }
})

test('a prefix of the committed tokens that ends where a Segment ends is adopted, and the rest is fed again', () => {
  const { at, held, call } = cutOff()
  join(at, [{ ...held, tokens: 60, digest: 'a' }])
  const next = at.named('p', [`tool-of-${call}`])
  at.feed({ kind: 'measured', call: next, promptTokens: 80, matched: { record: call as never, tokens: 69 }, renderingWon: null })
  const [scheduled] = only(at.log, 'call.scheduled').slice(-1)
  assert.deepEqual([scheduled?.keepTokens, scheduled?.recomputeTokens], [60, 9])
})

test('of a prefix that was taken back, a copy to host is a copy of the prefix', () => {
  const { at, held, call } = cutOff()
  at.core = { ...at.core, config: { ...at.core.config, residency: 'always-offload' } }
  const [begun] = only(join(at, [{ ...held, tokens: 60, digest: 'a' }]), 'kv.offload.begun')
  assert.equal(begun?.tokens, 60)
  at.feed({ kind: 'moveDone', engine: E0, reign: 2, move: begun?.move ?? moveId(''), bytes: 900, digest: 'i', copyUs: 10 })
  assert.deepEqual(at.core.states.get(held.state)?.host?.tokens, 60)
  const next = at.named('p', [`tool-of-${call}`])
  at.feed({ kind: 'measured', call: next, promptTokens: 80, matched: { record: call as never, tokens: 69 }, renderingWon: null })
  const [onboard] = only(at.log, 'kv.onboard.begun')
  at.feed({ kind: 'moveDone', engine: E0, reign: 2, move: onboard?.move ?? moveId(''), bytes: 900, digest: 'i', copyUs: 10 })
  const [scheduled] = only(at.log, 'call.scheduled').slice(-1)
  assert.deepEqual([scheduled?.keepTokens, scheduled?.recomputeTokens], [60, 9])
})

test('a State that was fed anew elsewhere meanwhile, or was released, is not taken back', () => {
  const { at, held, call } = cutOff()
  at.feed({ kind: 'engineJoined', engine: engineId('e1'), reign: at.core.reign, capabilities: KEEPS, speeds: SPEEDS })
  const next = at.named('p', [`tool-of-${call}`])
  at.feed({ kind: 'measured', call: next, promptTokens: 80, matched: { record: call as never, tokens: 69 }, renderingWon: null })
  assert.match(only(join(at, [held]), 'kv.unclaimed')[0]?.states[0]?.why ?? '', /it is active elsewhere/)
  const gone = cutOff()
  gone.at.feed({ kind: 'cancelProgram', tenant: gone.at.tenant, program: 'p' })
  assert.match(only(join(gone.at, [gone.held]), 'kv.unclaimed')[0]?.states[0]?.why ?? '', /no such State/)
})

test('an engine that is back with less memory than it held keeps to it: what has no room is dropped', () => {
  const { at, held } = cutOff()
  const facts = join(at, [held], { memory: { cells: 32, granule: 32, sequences: 4 } })
  assert.match(only(facts, 'kv.unclaimed')[0]?.states[0]?.why ?? '', /no room/)
})

test('a State told twice is adopted once, and an engine that declares no inventory is not asked for one', () => {
  const { at, held } = cutOff()
  assert.deepEqual(kinds(join(at, [held, held])).filter((kind) => kind.startsWith('kv.f') || kind.startsWith('kv.u')), ['kv.found'])
  const other = cutOff()
  assert.equal(only(join(other.at, [other.held], { inventory: false }), 'kv.found').length, 0)
})

test('an engine that was declared lost in this reign and comes back is taken back the same way', () => {
  const at = new Quiet(1, { engines: [KEEPS] })
  at.waiting('p')
  const [state] = at.core.states.keys()
  at.feed({ kind: 'engineLost', engine: E0, reign: 1, why: 'silent' })
  const facts = join(at, [{ state: state ?? stateId(''), epoch: 1, tokens: 69, digest: 'b' }])
  assert.equal(only(facts, 'kv.found').length, 1)
})

// ---------------------------------------------------------------- the three boundaries of recovery

test('the program survives everything: its graph, its results and its commits are as they were after any loss', () => {
  const { at, call } = cutOff()
  at.feed({ kind: 'commitEffect', tenant: at.tenant, program: 'p', toolCall: `tool-of-${call}`, record: 'r' })
  at.killControlPlane()
  const program = at.core.programs.get('t/p' as never)
  assert.deepEqual([program?.stage.kind, program?.epoch, program?.calls.length], ['open', 1, 1])
  assert.equal(at.core.interrupts.get(`${call}.wait` as never)?.stage.kind, 'waiting')
  assert.equal(at.core.interrupts.get(`${call}.wait` as never)?.commits[0]?.record, 'r')
})

test('the call survives its engine: the same seed, the tokens generated so far forced, as a new attempt of itself', () => {
  const at = new Quiet(1, { engines: [LANES, LANES] })
  const call = at.named('p', [], { seed: 77 })
  at.measure(call)
  const report = { service: { useful: { residentUs: 1, workUs: 1 }, retried: { residentUs: 0, workUs: 0 }, recomputed: { residentUs: 0, workUs: 0 } }, tailPrefilled: 60, tailDecoded: 4, outputTokens: 5, recomputedTokens: 0 }
  at.feed({ kind: 'progress', engine: E0, reign: 1, speeds: null, calls: [{ call, attempt: 1, run: 0, epoch: 1, report }] })
  at.feed({ kind: 'engineLost', engine: E0, reign: 1, why: 'crashed' })
  const [again] = only(at.log, 'call.scheduled').slice(-1)
  assert.deepEqual([again?.call, again?.attempt, again?.engine, again?.forcedTokens, at.core.calls.get(call)?.seed], [call, 2, 'e1', 5, 77])
})

test('engine state survives only as a copy that verifies: brought in from host, else fed again from tokens', () => {
  for (const images of [true, false]) {
    const at = new Quiet(1, { config: { residency: 'always-offload' } })
    const call = at.waiting('p')
    const { move } = only(at.log, 'kv.offload.begun')[0] ?? { move: moveId('') }
    at.feed({ kind: 'moveDone', engine: E0, reign: 1, move, bytes: 7_000, digest: 'x', copyUs: 5 })
    at.feed({ kind: 'restart', reign: 2, wallOffsetUs: 0, images: images ? [move] : [] })
    at.feed({ kind: 'engineJoined', engine: E0, reign: 2, capabilities: LANES, speeds: SPEEDS })
    const next = at.named('p', [`tool-of-${call}`])
    const facts = at.feed({ kind: 'measured', call: next, promptTokens: 80, matched: { record: call, tokens: 69 }, renderingWon: null })
    assert.equal(only(facts, 'kv.onboard.begun').length, images ? 1 : 0)
    assert.equal(only(facts, 'call.scheduled')[0]?.recomputeTokens, images ? undefined : 69)
  }
})

test('in a random world with restarts and engines that outlive them, every invariant holds, States are adopted, and in the end nothing is left', () => {
  let found = 0
  for (let seed = 30; seed < 36; seed += 1) {
    const world = new World(seed, { engines: [KEEPS, { ...BLOCKS, inventory: true }], faults: 0.4 })
    world.agents(12)
    for (let second = 2; second < 50; second += 1) {
      world.run(second * 1_000_000)
      world.disturb()
      if (second % 6 === 0) world.killControlPlane()
    }
    found += world.counts.get('kv.found') ?? 0
    world.heal()
    world.run(world.nowUs + 8_000 * 1_000_000)
    assert.equal(world.core.openCalls, 0, `seed ${seed}`)
    assert.equal(world.core.states.size, 0, `seed ${seed}`)
    assert.deepEqual(world.replay(), world.core)
  }
  assert.ok(found > 20, `${found} States were adopted`)
})

test('a State that an engine names twice, once wrongly, is dropped and not kept as well', () => {
  const { at, held } = cutOff()
  const facts = join(at, [{ ...held, digest: 'another' }, held])
  assert.deepEqual(only(facts, 'kv.unclaimed').map(({ states }) => states.map(({ state }) => state)), [[held.state]])
  assert.deepEqual(only(facts, 'kv.found'), [])
  assert.equal(at.core.states.get(held.state)?.residence.kind, 'gone')
})
