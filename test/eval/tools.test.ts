import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { calculate } from '../../src/eval/calculator.ts'
import { Corpus } from '../../src/eval/corpus.ts'
import { cut, Toolbox, TOOLS } from '../../src/eval/tools.ts'

describe('the calculator', () => {
  const right: readonly [string, number][] = [
    ['1 + 2 * 3', 7], ['(1 + 2) * 3', 9], ['-2 ^ 2', -4], ['2 ^ 3 ^ 2', 512], ['10 % 4 - .5', 1.5], ['--3', 3], ['7/2', 3.5], ['2*-3', -6], [' 42 ', 42],
  ]
  for (const [expression, value] of right) {
    test(`${expression} is ${value}`, () => assert.deepEqual(calculate(expression), { ok: true, value }))
  }
  const wrong: readonly [string, RegExp][] = [
    ['', /too early/], ['1 +', /too early/], ['(1', /not closed/], ['1)', /did not expect \)/], ['1 / 0', /finite/], ['process.exit()', /cannot read/],
    ['1 2', /did not expect 2/], ['9'.repeat(201), /longer/], ['('.repeat(60), /nested too deeply/], ['-'.repeat(150) + '1', /nested too deeply/],
  ]
  for (const [expression, why] of wrong) {
    test(`refuses ${JSON.stringify(expression.slice(0, 20))} with a reason`, () => {
      const found = calculate(expression)
      assert.ok(!found.ok && why.test(found.why), JSON.stringify(found))
    })
  }
})

describe('the search', () => {
  const corpus = Corpus.load()
  const first = (query: string): string | undefined => corpus.search(query)[0]?.title
  test('finds the passage that a question is about', () => {
    assert.equal(first('why does the tide rise and fall with the moon'), 'Tides')
    assert.equal(first('queen and drones in a hive'), 'Bees')
    assert.equal(first('Gutenberg letters of lead'), 'Printing')
  })
  test('prefers rare words to frequent ones', () => {
    assert.equal(first('the water of the sea and the caesium'), 'Clocks')
  })
  test('answers nonsense with the whole collection in its order', () => {
    assert.deepEqual(corpus.search('zzz'), corpus.passages)
  })
  test('has a collection worth searching', () => {
    assert.ok(corpus.passages.length >= 40 && corpus.passages.every(({ text }) => text.length > 300))
    assert.equal(new Set(corpus.passages.map(({ title }) => title)).size, corpus.passages.length)
  })
})

describe('a tool', () => {
  const box = new Toolbox()
  test('does what it was asked and fills the length it was given', () => {
    assert.equal(box.run('calculator', '{"expression":"6*7"}', 200), '6*7 = 42')
    assert.match(box.run('search', '{"query":"honey"}', 300), /^Honey: /)
    assert.match(box.run('lookup', '{"part":"P-115"}', 300), /^P-115: Copper washer/)
    for (const tool of ['search', 'lookup', 'ask_person'] as const) {
      const text = box.run(tool, '{"a":"honey"}', 400)
      assert.ok(text.length <= 400 && text.length > 360, `${tool} ${text.length}`)
    }
  })
  test('answers the same question the same way and another one otherwise', () => {
    const ask = (question: string): string => box.run('ask_person', JSON.stringify({ question }), 120)
    assert.equal(ask('May I?'), ask('May I?'))
    assert.notEqual(ask('May I?'), ask('Which one?'))
  })
  test('says what was wrong and never throws, whatever the model wrote', () => {
    assert.match(box.run('calculator', '{"expression":"six"}', 200), /^Cannot work out six/)
    assert.match(box.run('lookup', '{"part":"Z-9"}', 200), /^No part Z-9\. Did you mean\nP-/)
    for (const tool of Object.keys(TOOLS) as (keyof typeof TOOLS)[]) {
      for (const json of ['', '{', 'null', '[1,2]', '{"x":{"y":1}}', '"text"', '{"part":""}']) assert.ok(box.run(tool, json, 50).length > 0)
    }
  })
  test('takes arguments that are bounded, so that a forced call is short', () => {
    for (const { function: { parameters } } of Object.values(TOOLS)) {
      const properties = Object.values(parameters.properties as Record<string, { maxLength: number }>)
      assert.ok(properties.length === 1 && properties.every(({ maxLength }) => maxLength <= 48))
    }
  })
  test('is cut at a word', () => {
    assert.equal(cut('one two three', 9), 'one two')
    assert.equal(cut('onetwothree', 4), 'onet')
    assert.equal(cut('one', 9), 'one')
  })
})
