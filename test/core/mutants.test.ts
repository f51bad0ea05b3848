/** The list of faults that `npm run mutants` puts into the build, as far as it can be wrong without running one. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { buildFolder } from '../../scripts/checkout.ts'
import { MUTANTS } from '../../scripts/mutants/list.ts'

test('every fault has a place to go: its text stands in the build once', () => {
  const texts = new Map(MUTANTS.map(({ file }) => [file, readFileSync(join(buildFolder, 'src', `${file}.js`), 'utf8')]))
  const lost = MUTANTS.filter(({ file, find }) => texts.get(file)?.split(find).length !== 2)
  assert.deepEqual(lost.map(({ name }) => name), [])
})

test('no two faults have one name, and none changes nothing', () => {
  assert.equal(new Set(MUTANTS.map(({ name }) => name)).size, MUTANTS.length)
  assert.deepEqual(MUTANTS.filter(({ find, put }) => find === put).map(({ name }) => name), [])
})
