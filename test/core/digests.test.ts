import assert from 'node:assert/strict'
import { test } from 'node:test'
import { digestNumber, lastOfDigest } from '../../src/core/digests.ts'
import type { CallId } from '../../src/core/ids.ts'
import { Quiet } from './quiet.ts'

/** Two texts of one number. */
function alike(): [string, string] {
  const seen = new Map<number, string>()
  for (let count = 0; ; count += 1) {
    const digest = `digest-${count}`
    const other = seen.get(digestNumber(digest))
    if (other !== undefined) return [other, digest]
    seen.set(digestNumber(digest), digest)
  }
}

test('digests of one number are kept apart: each finds its own last call, and goes with it', () => {
  const [one, other] = alike()
  const at = new Quiet(1)
  const submit = (digest: string, program: string): CallId => at.named(program, [], { digest })
  const first = submit(one, 'p')
  assert.equal(lastOfDigest(at.core, other), undefined)
  const second = submit(other, 'q')
  assert.equal(lastOfDigest(at.core, one)?.id, first)
  assert.equal(lastOfDigest(at.core, other)?.id, second)
  const third = submit(one, 'r')
  assert.notEqual(third, first)
  assert.equal(lastOfDigest(at.core, one)?.id, third)
  assert.equal(lastOfDigest(at.core, other)?.id, second)
  assert.equal(at.core.digests.size, 1)
})
