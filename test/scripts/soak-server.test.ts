import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { plotOf, type Scale } from '../../scripts/soak-server/plot.ts'
import type { Said } from '../../scripts/soak-server/request.ts'
import { Tally } from '../../scripts/soak-server/tally.ts'

const SCALE: Scale = { openingWords: 20, outputTokens: 40, asks: 4, waitMs: 100 }
const said = (text: string): Said => ({ text, toolCalls: [], finish: 'stop', resume: 'exact', outputTokens: 3 })
const quiet = { afterS: 1, usages: [], retries: 0 }

describe('the soak of the server', () => {
  test('a plot is its number\'s, and different numbers are different plots of every shape', () => {
    const plots = Array.from({ length: 40 }, (_, number) => plotOf(1, number, 3, SCALE))
    assert.deepEqual(plots, Array.from({ length: 40 }, (_, number) => plotOf(1, number, 3, SCALE)))
    assert.notDeepEqual({ ...plotOf(2, 0, 3, SCALE) }, plots[0])
    assert.deepEqual(new Set(plots.map(({ shape }) => shape)), new Set(['chain', 'chat', 'fork']))
    assert.ok(plots.every(({ shape, branches }) => (shape === 'fork') === branches.length > 0))
  })

  test('a call that says anything else than alone, or was never played alone, is a difference', () => {
    const plot = plotOf(1, 0, 3, SCALE)
    const tally = new Tally()
    tally.alone(plot, 'main/0', said('abc'))
    tally.finished(plot, 'main/0', said('abc'))
    assert.ok(tally.isClean)
    tally.finished(plot, 'main/0', { ...said('abc'), finish: 'length' })
    tally.finished(plot, 'main/0', said('abd'))
    tally.finished(plot, 'main/1', said('abc'))
    assert.equal(tally.differences.length, 3)
    assert.ok(!tally.isClean)
  })

  test('a fault, and a leak, are not clean', () => {
    const faulty = new Tally()
    faulty.fault('x')
    const leaky = new Tally()
    leaky.quiets.push({ ...quiet, leaks: [] })
    assert.ok(leaky.isClean)
    leaky.quiets.push({ ...quiet, leaks: ['a lane'] })
    assert.deepEqual([faulty.isClean, leaky.isClean], [false, false])
  })
})
