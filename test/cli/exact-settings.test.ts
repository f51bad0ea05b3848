import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { cheapestOf, cheapestText } from '../../src/cli/exact-settings.ts'
import type { ProbeAnswer } from '../../src/cli/probe-answers.ts'

const BASE: ProbeAnswer = {
  modelDigest: 'm', library: 'l', cpuKernel: 'k', flashAttention: false, extraBuffers: true, lanes: 8, laneTokens: 2_048, chunkTokens: 128, threads: 1,
  kvTypes: 'f16,f16', gpu: 'cpu', rowUnit: 1, answer: 'no', because: '', speeds: { decodeTokensPerS: 100, prefillTokensPerS: 1_000 },
}
const answer = (change: Partial<ProbeAnswer>, decodeTokensPerS: number, prefillTokensPerS: number): ProbeAnswer =>
  ({ ...BASE, answer: 'yes', ...change, speeds: { decodeTokensPerS, prefillTokensPerS } })

describe('the cheapest settings under which a model is exact', () => {
  test('are those with most of the speed left, decoding and prefilling alike', () => {
    const plain = answer({ extraBuffers: false }, 90, 500)
    const two = answer({ rowUnit: 2 }, 80, 900)
    assert.equal(cheapestText(cheapestOf([BASE, plain, two])), 'rowUnit: 2; decodes at 0.80 and prefills at 0.90 of the speed of the settings as they come')
    assert.equal(cheapestText(cheapestOf([BASE, plain, { ...two, answer: 'no' }])), 'extraBuffers: false; decodes at 0.90 and prefills at 0.50 of the speed of the settings as they come')
    assert.equal(cheapestText(cheapestOf([BASE, answer({ extraBuffers: false, rowUnit: 2 }, 50, 500)])), 'extraBuffers: false, rowUnit: 2; decodes at 0.50 and prefills at 0.50 of the speed of the settings as they come')
  })

  test('are the settings as they come where those are, none where none is, and unknown where nothing was weighed', () => {
    assert.match(cheapestText(cheapestOf([{ ...BASE, answer: 'yes' }, answer({ rowUnit: 2 }, 101, 1_020)])), /as they come, which costs nothing/)
    assert.equal(cheapestText(cheapestOf([{ ...BASE, answer: 'yes' }, answer({ flashAttention: 'exact' }, 99, 1_100)])), 'flashAttention: exact; decodes at 0.99 and prefills at 1.10 of the speed of the settings as they come')
    assert.match(cheapestText(cheapestOf([BASE])), /^none of 6 settings/)
    assert.match(cheapestText(cheapestOf([{ ...BASE, speeds: null }, answer({ rowUnit: 2 }, 1, 1)])), /--probe/)
    assert.match(cheapestText(cheapestOf([])), /--probe/)
  })

  test('are compared with nothing but the same engine', () => {
    const others = [{ lanes: 4 }, { chunkTokens: 64 }, { threads: 2 }, { flashAttention: true }, { kvTypes: 'q8_0,q8_0' }, { gpu: 'vulkan all' }]
    for (const other of others) assert.match(cheapestText(cheapestOf([BASE, answer({ rowUnit: 2, ...other }, 99, 999)])), /^none/)
  })
})
