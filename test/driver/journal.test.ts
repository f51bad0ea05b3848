import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { callId, tenantId, type BodyId } from '../../src/core/ids.ts'
import { dropJournal, Journal } from '../../src/driver/journal.ts'
import type { Bodies } from '../../src/driver/ports.ts'

const CALL = callId('c1')
const TOKENS = 1_000

let kept: Map<BodyId, Uint8Array>
let putBytes: number[]
let bodies: Bodies
let journal: Journal

beforeEach(() => {
  kept = new Map()
  putBytes = []
  bodies = {
    put: (id, _tenant, bytes) => {
      kept.set(id, bytes)
      putBytes.push(bytes.length)
    },
    get: (id) => kept.get(id) ?? null,
    drop: (id) => void kept.delete(id),
    keepOnly: () => undefined,
  }
  journal = open()
})

const open = (): Journal => new Journal(bodies, CALL, tenantId('acme'))

/** Token by token from `from` on, each written at once. */
function show(into: Journal, from: number, to: number): void {
  for (let token = from; token < to; token++) {
    into.add([token], [{ kind: 'text', text: `<${token}>` }])
    into.write()
  }
}

const textOf = ({ parts }: ReturnType<Journal['restore']>): string =>
  parts.map((part) => (part.kind === 'text' ? part.text : '')).join('')
const upTo = (count: number): number[] => Array.from({ length: count }, (_, token) => token)

test('what was written is restored, and goes on where it stopped', () => {
  show(journal, 0, 130)
  const second = open()
  assert.deepEqual(second.restore().tokens, upTo(130))
  show(second, 130, TOKENS)
  const third = open().restore()
  assert.deepEqual(third.tokens, upTo(TOKENS))
  assert.equal(textOf(third), upTo(TOKENS).map((token) => `<${token}>`).join(''))
})

test('what a write costs does not grow with the output', () => {
  show(journal, 0, TOKENS)
  assert.equal(putBytes.length, TOKENS, 'one body a write')
  const [early, late] = [putBytes.slice(0, 200), putBytes.slice(-200)].map((some) => Math.max(...some))
  assert.ok((late ?? 0) < 1.2 * (early ?? 0), `${late} bytes at the end, ${early} in the beginning`)
})

test('many leaves that waited are written together', () => {
  for (const token of upTo(TOKENS)) journal.add([token], [])
  journal.write()
  assert.deepEqual(open().restore().tokens, upTo(TOKENS))
})

test('a leaf that is lost takes with it only what came after it', () => {
  show(journal, 0, TOKENS)
  const [, second] = [...kept.keys()]
  kept.delete(second!)
  const { tokens } = open().restore()
  assert.ok(tokens.length > 0 && tokens.length < TOKENS)
  assert.deepEqual(tokens, upTo(tokens.length))
})

test('what stands behind a leaf that was lost does not come back once the gap is filled with other tokens', () => {
  show(journal, 0, 200)
  const [first] = [...kept.keys()]
  kept.delete(first!)
  const second = open()
  assert.deepEqual(second.restore().tokens, [])
  show(second, 10_000, 10_064)
  assert.deepEqual(open().restore().tokens, Array.from({ length: 64 }, (_, at) => 10_000 + at))
  const third = open()
  third.restore()
  show(third, 10_064, 10_300)
  assert.deepEqual(open().restore().tokens, Array.from({ length: 300 }, (_, at) => 10_000 + at))
})

test('a leaf that a disk hands back as something else is as good as none', () => {
  for (const nonsense of ['{"tokens":[1', 'null', '{"tokens":1,"parts":[],"after":0}', '\u0000']) {
    show(journal, 0, 100)
    const [, second] = [...kept.keys()]
    kept.set(second!, Buffer.from(nonsense))
    assert.deepEqual(open().restore().tokens, upTo(64), nonsense)
    journal.drop()
    journal = open()
  }
})

test('a journal that is dropped leaves nothing, whoever wrote it', () => {
  show(journal, 0, 200)
  const second = open()
  second.restore()
  show(second, 200, 300)
  second.drop()
  assert.equal(kept.size, 0)
  show(open(), 0, 300)
  dropJournal(bodies, CALL)
  assert.equal(kept.size, 0)
})
