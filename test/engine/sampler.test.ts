import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Sampler, randomUnit } from '../../src/engine/sampler.ts'
import type { TokenGrammar } from '../../src/engine/sampler.ts'
import type { Sampling } from '../../src/protocol/chat.ts'

const sampler = new Sampler()
const sampleToken = (logits: Float32Array, sampling: Sampling, seed: number, position: number, grammar: TokenGrammar | null, choice = 0): number | null =>
  sampler.sample(logits, sampling, { seed, choice, position }, grammar)

const plain: Sampling = { temperature: 1, topP: 1, topK: 0, minP: 0 }
const row = (...logits: number[]): Float32Array => Float32Array.from(logits)

function shares(logits: Float32Array, sampling: Sampling, grammar: TokenGrammar | null = null): number[] {
  const draws = 20_000
  const counts = Array<number>(logits.length).fill(0)
  for (let position = 0; position < draws; position++) {
    const token = sampleToken(Float32Array.from(logits), sampling, 7, position, grammar)
    if (token !== null) counts[token] = (counts[token] ?? 0) + 1
  }
  return counts.map((count) => count / draws)
}

const near = (seen: readonly number[], wanted: readonly number[]): void =>
  seen.forEach((share, token) => assert.ok(Math.abs(share - (wanted[token] ?? 0)) < 0.015, `token ${token}: ${share}, not ${wanted[token]}`))

const softmax = (logits: readonly number[]): number[] => {
  const weights = logits.map(Math.exp)
  const whole = weights.reduce((a, b) => a + b, 0)
  return weights.map((weight) => weight / whole)
}

test('temperature 0 takes the likeliest token, of equal ones the lowest id', () => {
  assert.equal(sampleToken(row(1, 3, 3, 2), { ...plain, temperature: 0 }, 1, 0, null), 1)
})

test('another choice of the same seed draws other tokens, and the same again', () => {
  const logits = row(...Array.from({ length: 64 }, (_, i) => Math.sin(i)))
  const drawn = (choice: number): (number | null)[] => Array.from({ length: 20 }, (_, position) => sampleToken(logits, plain, 42, position, null, choice))
  const all = [0, 1, 2, 3, 4, 5, 6, 7].map(drawn)
  assert.equal(new Set(all.map(String)).size, 8)
  assert.deepEqual(drawn(3), all[3])
})

test('the same seed and position draw the same token, whatever was drawn before', () => {
  const logits = row(...Array.from({ length: 64 }, (_, i) => Math.sin(i)))
  const draw = (position: number): number | null => sampleToken(logits, plain, 42, position, null)
  const first = [3, 4, 5].map(draw)
  assert.deepEqual([5, 3, 4].map(draw), [first[2], first[0], first[1]])
})

test('randomness is even over positions and differs by seed', () => {
  const units = Array.from({ length: 4_096 }, (_, position) => randomUnit(1, 0, position, 0))
  assert.ok(units.every((unit) => unit >= 0 && unit < 1))
  assert.ok(Math.abs(units.reduce((a, b) => a + b, 0) / units.length - 0.5) < 0.02)
  assert.notEqual(randomUnit(1, 0, 9, 0), randomUnit(2, 0, 9, 0))
  assert.equal(new Set(units).size, units.length)
})

test('tokens are drawn in proportion to their probability', () => near(shares(row(0, 1, 2), plain), softmax([0, 1, 2])))

test('temperature flattens and sharpens', () => near(shares(row(0, 1, 2), { ...plain, temperature: 2 }), softmax([0, 0.5, 1])))

test('top_k leaves the k likeliest, ties by id', () => {
  near(shares(row(2, 1, 2, 2), { ...plain, topK: 2 }), [0.5, 0, 0.5, 0])
})

test('top_p leaves the shortest head whose mass reaches p', () => {
  const [a, b] = softmax([3, 2, 1, 0])
  near(shares(row(3, 2, 1, 0), { ...plain, topP: a! + 0.01 }), [a! / (a! + b!), b! / (a! + b!), 0, 0])
  near(shares(row(3, 2, 1, 0), { ...plain, topP: a! - 0.01 }), [1, 0, 0, 0])
})

test('min_p drops what is less likely than a part of the best', () => {
  const [a, b] = softmax([3, 2.5])
  near(shares(row(3, 2.5, 0), { ...plain, minP: 0.1 }), [a!, b!, 0])
})

test('top_p finds its head among many flat candidates', () => {
  const flat = Float32Array.from({ length: 1_000 }, () => 0)
  const drawn = Array.from({ length: 500 }, (_, position) => sampleToken(flat, { ...plain, topP: 0.1 }, 5, position, null) ?? -1)
  assert.ok(drawn.every((token) => token >= 0 && token < 100))
})

test('a grammar leaves each allowed token its share', () => {
  const grammar = {
    allows: (token: number): boolean => token !== 2,
    mask: (logits: Float32Array): void => { logits[2] = -Infinity },
  }
  near(shares(row(0, 1, 2), plain, grammar), [...softmax([0, 1]), 0])
})

test('a grammar that allows nothing is said', () => {
  const grammar = { allows: (): boolean => false, mask: (logits: Float32Array): void => { logits.fill(-Infinity) } }
  assert.equal(sampleToken(row(0, 1), plain, 1, 1, grammar), null)
})
