import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { test } from 'node:test'
import fc from 'fast-check'
import { columnOf, valuesOf, type Column, type Texts } from '../../src/core/columns.ts'

const { plain } = fc.letrec<{ plain: unknown }>((tie) => ({
  plain: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.constantFrom<unknown>(null, true, false, '', 'x'), fc.integer(), fc.string(), fc.array(tie('plain')),
    fc.dictionary(fc.oneof(fc.constantFrom('a', 'b', 'id', 'a,b', 'a-b', '1', '__proto__', 'constructor'), fc.string()), tie('plain'), { noNullPrototype: true, maxKeys: 4 }),
    fc.array(fc.tuple(fc.string(), tie('plain'))).map((entries) => new Map(entries)),
    fc.array(tie('plain')).map((items) => new Set(items)),
  ),
}))

const fresh = (): Texts => ({ numbers: new Map(), fresh: [] })
/** Through text, as a snapshot is. */
const back = (values: readonly unknown[], texts: Texts): unknown[] =>
  valuesOf(JSON.parse(JSON.stringify(columnOf(values, texts))) as Column, values.length, texts.fresh)

test('plain data of any shape and mixture comes back from its columns', () => {
  fc.assert(fc.property(fc.array(plain), (values) => assert.deepEqual(back(values, fresh()), values)), { numRuns: 400 })
})

test('records of one shape come back with their keys in order, each with collections of its own', () => {
  const values = [1, 2, 3].map((id) => ({ id, none: null, tags: new Set(['t']), list: [] as number[] }))
  const again = back(values, fresh()) as typeof values
  assert.deepEqual(again.map((value) => Object.keys(value)), values.map((value) => Object.keys(value)))
  again[0]?.tags.add('u')
  again[0]?.list.push(1)
  assert.deepEqual(again.slice(1), values.slice(1))
})

test('a text that stands in several places is told once, and what is the same in all is said once', () => {
  const texts = fresh()
  const column = JSON.stringify(columnOf(Array.from({ length: 1_000 }, (_, index) => ({ id: `id-${index % 10}`, of: `id-${index % 5}`, model: 'm' })), texts))
  assert.equal(texts.fresh.length, 10)
  assert.equal(column.split('"m"').length, 2)
})

test('what is not plain data is refused, not lost', () => {
  for (const wrong of [undefined, () => 1, 1n, Symbol('s')]) assert.throws(() => columnOf([wrong], fresh()), /a state holds no/)
})

test('where no code may be made from strings, records come back all the same', () => {
  const script = `
    import { columnOf, valuesOf } from ${JSON.stringify(new URL('../../src/core/columns.js', import.meta.url).href)}
    const texts = { numbers: new Map(), fresh: [] }
    const values = [{ id: 1, of: 'a' }, { id: 2, of: 'b' }]
    console.log(JSON.stringify(valuesOf(JSON.parse(JSON.stringify(columnOf(values, texts))), 2, texts.fresh)))`
  const said = execFileSync(process.execPath, ['--disallow-code-generation-from-strings', '--input-type=module', '-e', script], { encoding: 'utf8' })
  assert.deepEqual(JSON.parse(said), [{ id: 1, of: 'a' }, { id: 2, of: 'b' }])
})
