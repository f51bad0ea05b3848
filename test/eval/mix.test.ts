import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { drawMix } from '../../bench/draw-mix.ts'
import { Corpus } from '../../src/eval/corpus.ts'
import { contextTokens, loadMix, planArrivals, sizeOf } from '../../src/eval/mix.ts'
import { mean } from '../../src/eval/stats.ts'
import { firstPrompt } from '../../src/eval/task.ts'

const mix = loadMix()

describe('the mix', () => {
  test('is what drawing it from the traces gives', () => {
    assert.deepEqual(JSON.parse(JSON.stringify(drawMix())), mix)
  })

  test('holds short and long programs, 1 to 8 calls, at least ten of them, with every tool', () => {
    const calls = mix.programs.map((program) => program.calls.length)
    assert.ok(mix.programs.length >= 10 && Math.min(...calls) === 1 && Math.max(...calls) === 8, calls.join(' '))
    const tools = new Set(mix.programs.flatMap((program) => program.calls.map(({ tool }) => tool)))
    assert.deepEqual([...tools].map(String).sort(), ['ask_person', 'calculator', 'lookup', 'null', 'search'])
    for (const program of mix.programs) {
      assert.ok(program.calls.every(({ tool }, index) => (tool === null) === (index === program.calls.length - 1)), program.name)
    }
  })

  test('fits a lane with each program and needs about three times the lanes with all', () => {
    for (const program of mix.programs) assert.ok(contextTokens(program) <= mix.engine.laneTokens - 70, program.name)
    const size = sizeOf(mix)
    assert.ok(size.lanesRatio >= 2.7 && size.lanesRatio <= 3.3, `${size.lanesRatio}`)
    assert.ok(size.laneBytesRatio >= 2.2 && size.laneBytesRatio <= 3.3, `${size.laneBytesRatio}`)
  })

  test('needs about 1.7 times what device and host hold together', () => {
    const { budgetRatio, budgetBytesRatio } = sizeOf(mix)
    assert.ok(Math.abs(budgetRatio - 1.7) < 0.2, `${budgetRatio} by contexts`)
    assert.ok(Math.abs(budgetBytesRatio - 1.7) < 0.2, `${budgetBytesRatio} by bytes`)
  })

  test('is small enough for two runs in four minutes on two cores', () => {
    const given = mix.programs.flatMap(({ calls }) => calls.map(({ newTokens }) => newTokens)).reduce((sum, tokens) => sum + tokens, 0)
    const made = mix.programs.flatMap(({ calls }) => calls.map(({ outputTokens }) => outputTokens)).reduce((sum, tokens) => sum + tokens, 0)
    const aloneSeconds = given / 200 + made / 60
    assert.ok(aloneSeconds < 75, `${aloneSeconds} s at 200 tokens a second read and 60 written`)
  })
})

describe('arrivals', () => {
  test('are all programs once, in order of time, the same for the same seed', () => {
    const arrivals = planArrivals(mix, 11)
    assert.deepEqual(planArrivals(mix, 11), arrivals)
    assert.notDeepEqual(planArrivals(mix, 12), arrivals)
    assert.deepEqual(arrivals.map(({ program }) => program.name).sort(), mix.programs.map(({ name }) => name).sort())
    assert.ok(arrivals.every(({ atMs }, index) => atMs >= (arrivals[index - 1]?.atMs ?? 0)) && arrivals[0]?.atMs === 0)
  })

  test('wait after every tool, never after an answer, and never too long', () => {
    const found = mix.seeds.flatMap((seed) => planArrivals(mix, seed))
    for (const { program, waitsMs } of found) {
      assert.equal(waitsMs.length, program.calls.length)
      program.calls.forEach(({ tool }, index) => assert.equal((waitsMs[index] ?? -1) > 0, tool !== null))
      assert.ok(waitsMs.every((wait) => wait <= mix.waitMsMax))
    }
    const of = (kind: string): number => mean(found.filter(({ program }) => program.kind === kind).flatMap(({ waitsMs }) => waitsMs.filter((wait) => wait > 0)))
    assert.ok(of('react') < 200 && of('coder') > 500 && of('clerk') > 5_000, 'a search is quick, a client slower, a person late')
  })
})

describe('a first prompt', () => {
  const corpus = Corpus.load()
  test('is the same every time, and shares no more than its frame with another program', () => {
    const prompts = mix.programs.map((program) => firstPrompt(program, corpus))
    assert.deepEqual(prompts, mix.programs.map((program) => firstPrompt(program, corpus)))
    const starts = prompts.map(({ messages }) => messages[1]?.content.slice(0, 16))
    assert.equal(new Set(starts).size, starts.length)
    assert.equal(new Set(prompts.map(({ messages }) => messages[1]?.content.split('Notes:\n')[1]?.slice(0, 20))).size > 6, true)
  })
  test('carries the tools its program uses and no others', () => {
    const chat = mix.programs.find(({ kind }) => kind === 'chat')
    const coder = mix.programs.find(({ kind }) => kind === 'coder')
    assert.ok(chat !== undefined && coder !== undefined)
    assert.deepEqual(firstPrompt(chat, corpus).tools, [])
    assert.ok(firstPrompt(coder, corpus).tools.length >= 2)
  })
})
