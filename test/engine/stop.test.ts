import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { StopSearch } from '../../src/engine/stop.ts'

const few = (maxLength: number): fc.Arbitrary<string> =>
  fc.string({ unit: fc.constantFrom('a', 'b', 'c', '\n'), maxLength })

/** What is shown, and where it was cut, when `text` comes in pieces that end at `cuts`. */
function search(
  stops: readonly string[], text: string, cuts: readonly number[],
): { shown: string; cutAt: number | null } {
  const stop = new StopSearch(stops)
  const borders = [...new Set([0, ...cuts.filter((cut) => cut < text.length), text.length])].sort((a, b) => a - b)
  let shown = ''
  for (const [i, end] of borders.slice(1).entries()) {
    const found = stop.push(text.slice(borders[i], end))
    shown += found.text
    if (found.cutAt !== null) return { shown, cutAt: found.cutAt }
  }
  return { shown: shown + stop.end(), cutAt: null }
}

/** The definition: the first to complete, of those the longest. */
function naive(stops: readonly string[], text: string): number | null {
  for (let end = 1; end <= text.length; end++) {
    const done = stops.filter((stop) => stop !== '' && text.slice(0, end).endsWith(stop))
    if (done.length > 0) return end - Math.max(...done.map((stop) => stop.length))
  }
  return null
}

describe('stop strings', () => {
  test('the cut depends on the text alone, whatever its pieces', () => {
    fc.assert(fc.property(fc.array(few(4), { maxLength: 3 }), few(20), fc.array(fc.nat(20)), (stops, text, cuts) => {
      const at = naive(stops, text)
      const { shown, cutAt } = search(stops, text, cuts)
      assert.equal(cutAt, at)
      assert.equal(shown, text.slice(0, at ?? undefined))
    }), { numRuns: 3_000 })
  })

  test('text that may become a stop string is held back, and no more than that', () => {
    const stop = new StopSearch(['\n\nEND', '###'])
    assert.equal(stop.push('one\n').text, 'one')
    assert.equal(stop.push('\nE').text, '')
    assert.equal(stop.push('x#').text, '\n\nEx')
    assert.equal(stop.push('#').text, '')
    assert.equal(stop.push('2').text, '##2')
    assert.equal(stop.end(), '')
  })

  test('a text without stop strings is never held', () => {
    const stop = new StopSearch([''])
    assert.deepEqual(stop.push('anything'), { text: 'anything', cutAt: null })
  })
})
