import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Fed } from '../../src/engine/fed.ts'
import type { Origin } from '../../src/engine/fed.ts'

function fedWith(runs: readonly (readonly [Origin, readonly number[]])[]): Fed {
  const fed = new Fed()
  for (const [origin, tokens] of runs) for (const token of tokens) fed.push(token, origin)
  return fed
}

test('spans are runs of one origin after a position', () => {
  const fed = fedWith([['prefilled', [1, 2, 3]], ['decoded', [4, 5]], ['prefilled', [6, 7]]])
  assert.deepEqual(fed.spans(0).map(({ tokens, origin }) => [tokens, origin]), [[3, 'prefilled'], [2, 'decoded'], [2, 'prefilled']])
  assert.deepEqual(fed.spans(2).map(({ tokens, origin }) => [tokens, origin]), [[1, 'prefilled'], [2, 'decoded'], [2, 'prefilled']])
  assert.deepEqual(fed.counts(2), { prefilled: 3, decoded: 2 })
})

test('a digest covers everything before it, wherever a span begins', () => {
  const one = fedWith([['prefilled', [1, 2, 3]], ['decoded', [4, 5]]])
  assert.equal(one.spans(0).at(-1)?.digest, one.spans(4).at(-1)?.digest)
  const other = fedWith([['prefilled', [9, 2, 3]], ['decoded', [4, 5]]])
  assert.notEqual(one.spans(3)[0]?.digest, other.spans(3)[0]?.digest)
})

test('the same tokens fed in another way have another digest', () => {
  const one = fedWith([['prefilled', [1, 2]], ['decoded', [3]]])
  const other = fedWith([['prefilled', [1, 2, 3]]])
  assert.notEqual(one.spans(0).at(-1)?.digest, other.spans(0).at(-1)?.digest)
})

test('what is cut is forgotten', () => {
  const fed = fedWith([['prefilled', [1, 2, 3]]])
  fed.cut(2)
  fed.push(4, 'decoded')
  assert.deepEqual([fed.length, fed.matching([1, 2, 4, 5]), fed.matching([1, 3])], [3, 3, 1])
})
