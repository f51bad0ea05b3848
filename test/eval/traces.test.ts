import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { Draw } from '../../src/eval/draw.ts'
import { arrivalsUs, halvesOf, loadTrace, TRACES, traceOf, waitSampler } from '../../src/eval/traces.ts'

const HEAD = { source: 'tot-text', origin: 'o', commit: 'c', licence: 'MIT' }
const wrong = (nodes: unknown): (() => unknown) => () => traceOf('tot-text', [HEAD, { id: 'a', nodes }])

describe('the public traces', () => {
  for (const name of TRACES) {
    test(`${name} is read, has a licence that lets us pass it on, and every program ends in something`, () => {
      const { licence, programs } = loadTrace(name)
      assert.match(licence, /^(Apache-2\.0|MIT|CC-BY-4\.0)$/)
      assert.ok(programs.every(({ nodes }) => nodes.some(({ kind }) => kind === 'call')))
      assert.equal(new Set(programs.map(({ id }) => id)).size, programs.length)
    })
  }

  test('a line that is no program is refused by its file and line', () => {
    assert.throws(wrong([]), /tot-text\.jsonl:2: not a program/)
    assert.throws(wrong([['call', [0], 5, 5, 1]]), /node 0: its parents do not come before it/)
    assert.throws(wrong([['call', [], 5, 6, 1]]), /node 0: 6 new tokens of 5/)
    assert.throws(wrong([['call', [], 5, 5, -1]]), /-1 is not a count/)
    assert.throws(wrong([['tool', [], 'x', -2]]), /-2 is not a time/)
    assert.throws(wrong([['sleep', [], 'x', 2]]), /neither call, tool nor human/)
    assert.throws(() => traceOf('tot-text', [{ ...HEAD, licence: '' }, {}]), /names source, origin, commit and licence/)
  })

  test('no program is in both halves, unless it is the only one', () => {
    for (const name of TRACES) {
      const trace = loadTrace(name)
      const { learn, score } = halvesOf(trace)
      const both = learn.filter((program) => score.includes(program)).length
      assert.equal(both, trace.programs.length === 1 ? 1 : 0, name)
      assert.ok(Math.abs(learn.length - score.length) <= 1)
    }
  })
})

describe('what is drawn', () => {
  test('is the same for the same seed', () => {
    const wait = { kind: 'tool', parents: [0], tool: 'wiki_search', waitUs: null } as const
    const sample = waitSampler()
    const waits = (seed: number) => { const draw = new Draw(seed); return Array.from({ length: 20 }, () => sample(wait, draw)) }
    assert.deepEqual(waits(1), waits(1))
    assert.notDeepEqual(waits(1), waits(2))
    assert.ok(waits(3).every((us) => us > 200_000 && us < 2_000_000))
  })

  for (const how of ['poisson', 'azure2023-code', 'azure2023-conv'] as const) {
    test(`arrivals by ${how} keep their order and about their mean`, () => {
      const times = arrivalsUs(how, 5_000, 1_000, new Draw(1))
      assert.ok(times.every((time, at) => at === 0 || time >= (times[at - 1] ?? 0)))
      const mean = (times.at(-1) ?? 0) / 4_999
      assert.ok(mean > 500 && mean < 1_500, String(mean))
    })
  }
  test('a burst comes all at once', () => assert.deepEqual(arrivalsUs('burst', 3, 1_000, new Draw(1)), [0, 0, 0]))
})
