import assert from 'node:assert/strict'
import { test } from 'node:test'
import { logprobOf } from '../../src/engine/logprobs.ts'
import { LogitChanges, readTokenRules, unknownToken } from '../../src/engine/token-rules.ts'
import type { TokenRules } from '../../src/protocol/chat.ts'

const off: TokenRules = {
  presencePenalty: 0, frequencyPenalty: 0, repetitionPenalty: 1, bias: [], minTokens: 0, ignoreEos: false, stopTokens: [],
}

/** Logits after the changes, with the last of five tokens the model's own end. */
function changed(rules: Partial<TokenRules>, outputs: readonly number[], logits = [1, 2, -1, 4, 5], prompt: readonly number[] = [2]): number[] {
  const changes = new LogitChanges({ ...off, ...rules }, prompt, [4])
  for (const token of outputs) changes.push(token)
  const row = Float32Array.from(logits)
  changes.apply(row)
  return [...row]
}

test('without rules nothing changes', () => {
  assert.deepEqual(changed({}, [0, 0, 1]), [1, 2, -1, 4, 5])
})

test('presence counts a token once, frequency as often as it came; the prompt counts for neither', () => {
  assert.deepEqual(changed({ presencePenalty: 0.5 }, [0, 0, 1]), [0.5, 1.5, -1, 4, 5])
  assert.deepEqual(changed({ frequencyPenalty: 0.5 }, [0, 0, 1]), [0, 1.5, -1, 4, 5])
  assert.deepEqual(changed({ presencePenalty: -1, frequencyPenalty: 0.5 }, [3, 3]), [1, 2, -1, 4, 5])
})

test('repetition counts prompt and output, and always lowers', () => {
  assert.deepEqual(changed({ repetitionPenalty: 2 }, [1, 1]), [1, 1, -2, 4, 5])
})

test('bias is added, after the penalties', () => {
  assert.deepEqual(changed({ bias: [[0, 100], [3, -100]], repetitionPenalty: 2 }, [0]), [100.5, 2, -2, -96, 5])
})

test('what would end it waits for min_tokens, or for ever', () => {
  assert.deepEqual(changed({ minTokens: 2, stopTokens: [1] }, [0]), [1, -Infinity, -1, 4, -Infinity])
  assert.deepEqual(changed({ minTokens: 2, stopTokens: [1] }, [0, 0]), [1, 2, -1, 4, 5])
  assert.deepEqual(changed({ ignoreEos: true, stopTokens: [1] }, [0, 0]), [1, 2, -1, 4, -Infinity])
})

test('tokens beyond the vocabulary are found', () => {
  assert.equal(unknownToken({ ...off, bias: [[4, 1]], stopTokens: [0] }, 5), null)
  assert.equal(unknownToken({ ...off, bias: [[5, 1]] }, 5), 5)
  assert.equal(unknownToken({ ...off, stopTokens: [7] }, 5), 7)
})

test('rules are read back only where they are some', () => {
  assert.deepEqual(readTokenRules(JSON.parse(JSON.stringify({ ...off, bias: [[1, -2.5]] }))), { ...off, bias: [[1, -2.5]] })
  for (const wrong of [null, 3, {}, { ...off, bias: [[1]] }, { ...off, bias: [['1', 2]] }, { ...off, repetitionPenalty: 0 },
    { ...off, minTokens: -1 }, { ...off, ignoreEos: 1 }, { ...off, stopTokens: [0.5] }, { ...off, presencePenalty: null }]) {
    assert.equal(readTokenRules(wrong), null, JSON.stringify(wrong))
  }
})

test('a likelihood is the logarithm of its share, and the likeliest come first, of equal ones the lower id', () => {
  const row = Float32Array.from([Math.log(1), Math.log(4), Math.log(2), Math.log(4), -Infinity])
  const told = logprobOf(row, 2, 3, (token) => Uint8Array.of(token))
  const near = (seen: number, wanted: number): void => assert.ok(Math.abs(seen - wanted) < 1e-6, `${seen}, not ${wanted}`)
  near(told.logprob, Math.log(2 / 11))
  assert.deepEqual(told.bytes, [2])
  assert.deepEqual(told.top.map(({ bytes }) => bytes[0]), [1, 3, 2])
  near(told.top[0]?.logprob ?? 0, Math.log(4 / 11))
  assert.equal(logprobOf(row, 4, 0, () => new Uint8Array()).logprob, -9_999)
  assert.deepEqual(logprobOf(row, 4, 0, () => new Uint8Array()).top, [])
  assert.equal(logprobOf(row, 0, 20, () => new Uint8Array()).top.length, 5)
})
