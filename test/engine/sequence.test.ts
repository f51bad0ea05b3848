import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { Fed } from '../../src/engine/fed.ts'
import { OutputPipeline } from '../../src/engine/output.ts'
import { Plan } from '../../src/engine/plan.ts'
import { Sampler } from '../../src/engine/sampler.ts'
import { Sequence } from '../../src/engine/sequence.ts'
import type { Tokenizer } from '../../src/engine/token-record.ts'
import { LogitChanges } from '../../src/engine/token-rules.ts'
import type { TokenRules } from '../../src/protocol/chat.ts'
import type { WirePart } from '../../src/protocol/engine.ts'

/** Pieces that break characters, stop strings and tool calls in every way; the last ends generation. */
const PIECES = [
  ' a', 'b', 'st', 'op', '<tool', '_call>', '\n{"name": "f", ', '"arguments": {"k": 1}}', '\n</tool', '_call>', 'é', '\n',
].map((text) => Buffer.from(text))
const HALVES = [Buffer.from([0xe2]), Buffer.from([0x82]), Buffer.from([0xac])]
const SPELLED = [...PIECES, ...HALVES]
const EOG = SPELLED.length

const tokenizer: Tokenizer = {
  tokenize: () => new Int32Array(),
  piece: (token) => SPELLED[token] ?? new Uint8Array(),
  isEog: (token) => token === EOG,
  isControl: (token) => token === EOG,
}

const PROMPT = 5

interface Script { readonly outputs: readonly number[]; readonly stops: readonly string[]; readonly callsTools: boolean; readonly maxTokens: number; readonly rules?: TokenRules; readonly topLogprobs?: number }

const oneHot = (token: number): Float32Array => Float32Array.from({ length: EOG + 1 }, (_, i) => i === token ? 9 : ((i * 7 + token) % 5) - 1)

const isEnd = (script: Script) => (token: number): boolean => token === EOG || script.rules?.stopTokens.includes(token) === true

function sequence(script: Script, forced: readonly number[], held: number): Sequence {
  const prompt = Int32Array.from({ length: PROMPT }, () => 0)
  const plan = new Plan(prompt, [{ tokens: PROMPT, origin: 'prefilled' }], forced, held, false)
  const fed = new Fed()
  for (let at = 0; at < plan.begin; at++) fed.push(plan.tokens[at] ?? 0, plan.origin(at))
  return new Sequence({
    start: {
      kind: 'start', reign: 1, call: 'c', attempt: 1, epoch: 0, state: 's', body: '', baseTokens: 0, keepTokens: held, recomputeTokens: 0,
      replay: 'exact', forced, seed: 1, maxTokens: script.maxTokens, rank: 0, tenant: 't', grantGranules: 1,
    },
    lane: { index: 0, state: 's', tenant: 't', content: { kind: 'fed', fed } },
    fed, plan, sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 }, grammar: null, choice: 0, topLogprobs: script.topLogprobs ?? null,
    changes: script.rules === undefined ? null : new LogitChanges(script.rules, prompt, [EOG]), spell: (token) => tokenizer.piece(token, true),
    sampler: new Sampler(),
    output: new OutputPipeline({ tokenizer, isEnd: isEnd(script), stops: script.stops, callsTools: script.callsTools }),
    prepared: { tokens: prompt, runs: [], text: '', silent: [], vocabulary: 'v', toolsDigest: '', history: [] },
    isEog: isEnd(script), contextTokens: 64, startedUs: 0,
  })
}

interface Told { readonly tokens: number[]; readonly parts: WirePart[]; end: unknown }

/** Runs until it ends, or until `stopAfter` tokens were told; logits are those of the script at each position. */
function run(script: Script, forced: readonly number[], held: number, told: Told, stopAfter: number): { fed: number; over: boolean } {
  const running = sequence(script, forced, held)
  const tell = (): void => {
    const shown = running.takeUnsent()
    if (shown === null) return
    assert.equal(shown.index, told.tokens.length)
    told.tokens.push(...shown.tokens)
    told.parts.push(...shown.parts)
  }
  for (;;) {
    if (running.ending !== null) {
      assert.equal(running.ending.kind, 'complete')
      if (running.ending.kind === 'complete') {
        const { parts: _, ...end } = running.end(running.ending.reason)
        tell()
        told.end = { ...end, reason: running.ending.reason }
      }
      return { fed: running.fed.length, over: true }
    }
    tell()
    if (told.tokens.length >= stopAfter) return { fed: running.fed.length, over: false }
    const piece = running.piece(4)
    const count = piece.kind === 'prefill' ? piece.count : 1
    const last = running.fed.length + count - 1
    const draws = running.drawsAt(last)
    running.advance(count)
    running.settle(draws ? oneHot(script.outputs[last + 1 - PROMPT] ?? EOG) : null)
  }
}

const shownBy = (parts: readonly WirePart[]): string => parts.map((part) => part.kind !== 'toolCall' ? part.text : `[${part.index} ${part.name ?? ''} ${part.arguments}]`).join('')
  .replaceAll(/\]\[(\d+)  /g, '')

const scripts: fc.Arbitrary<Script> = fc.record({
  outputs: fc.array(fc.nat(EOG), { maxLength: 24 }),
  stops: fc.constantFrom([], ['stop'], ['op'], ['€']),
  callsTools: fc.boolean(),
  maxTokens: fc.integer({ min: 1, max: 24 }),
  rules: fc.record({
    presencePenalty: fc.constantFrom(0, 1.5, -2), frequencyPenalty: fc.constantFrom(0, 2, -0.5),
    repetitionPenalty: fc.constantFrom(1, 1.5, 3), bias: fc.constantFrom([], [[1, 8] as const, [3, -9] as const]),
    minTokens: fc.nat(6), ignoreEos: fc.boolean(), stopTokens: fc.constantFrom([], [4]),
  }),
  topLogprobs: fc.nat(3),
})

const logprobsOf = (parts: readonly WirePart[]): readonly object[] =>
  parts.flatMap((part) => part.kind === 'text' ? part.logprobs ?? [] : [])

test('given the same logits, every interruption yields the same tokens, parts, stop and tool calls', () => {
  fc.assert(fc.property(scripts, fc.array(fc.record({ after: fc.integer({ min: 1, max: 12 }), keeps: fc.boolean() }), { maxLength: 4 }), (script, cuts) => {
    const whole: Told = { tokens: [], parts: [], end: null }
    run(script, [], 0, whole, Infinity)
    const told: Told = { tokens: [], parts: [], end: null }
    let held = 0
    for (const { after, keeps } of cuts) {
      const { fed, over } = run(script, [...told.tokens], held, told, told.tokens.length + after)
      held = keeps ? fed : 0
      if (over) break
    }
    // Also where the engine died after its last tokens were shown and before it said that it had finished.
    run(script, [...told.tokens], held, told, Infinity)
    assert.deepEqual(told.tokens.filter((token) => !isEnd(script)(token)), whole.tokens.filter((token) => !isEnd(script)(token)))
    assert.equal(shownBy(told.parts), shownBy(whole.parts))
    assert.deepEqual(told.end, whole.end)
    assert.deepEqual(logprobsOf(told.parts), logprobsOf(whole.parts))
    assert.equal(logprobsOf(whole.parts).length, whole.tokens.filter((token) => !isEnd(script)(token)).length)
  }), { numRuns: 2_000 })
})

test('what was held back until the end is sent with the token that ended it', () => {
  const told: Told = { tokens: [], parts: [], end: null }
  run({ outputs: [0, 2, EOG], stops: ['stop'], callsTools: false, maxTokens: 9 }, [], 0, told, Infinity)
  assert.deepEqual(told.tokens, [0, 2, EOG])
  assert.equal(shownBy(told.parts), ' ast')
})

test('the last token of a call is not fed', () => {
  const running = sequence({ outputs: [], stops: [], callsTools: false, maxTokens: 2 }, [], 0)
  running.advance(4)
  running.settle(null)
  running.advance(1)
  running.settle(oneHot(1))
  running.advance(1)
  running.settle(oneHot(1))
  assert.deepEqual(running.ending, { kind: 'complete', reason: 'length' })
  assert.equal(running.fed.length, PROMPT + 1)
  assert.deepEqual(running.outputs, [1, 1])
})
