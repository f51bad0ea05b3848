/** The one table of errors: every code that anybody says is in it, and each row is complete. */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { ERROR_CODES, problem, problemOf } from '../../src/protocol/errors.ts'

function sourceRoot(): string {
  for (let at = import.meta.dirname; at !== dirname(at); at = dirname(at)) {
    if (readdirSync(at).includes('tsconfig.json')) return join(at, 'src')
  }
  throw new Error('no tsconfig.json above this test: run it from a checkout')
}

describe('an error', () => {
  for (const code of ERROR_CODES) {
    test(`${code} has the one shape, says what and what next, and whether to try again`, () => {
      const { status, headers, body } = problem(code, 'because of 7', 'field')
      assert.ok(status >= 400 && status < 600)
      assert.deepEqual(Object.keys(body.error), ['message', 'type', 'param', 'code'])
      assert.match(body.error.message, /^[A-Z].*: because of 7\. [A-Z].*\.$/)
      assert.equal(body.error.param, 'field')
      assert.ok(['true', 'false'].includes(headers['x-should-retry'] ?? ''))
      const wait = headers['retry-after']
      assert.equal(wait !== undefined, status === 429 || status === 503)
      if (wait !== undefined) assert.ok(Number.isInteger(Number(wait)) && Number(wait) > 0 && Number(wait) <= 60)
      if (status === 409) assert.equal(headers['x-should-retry'], 'false', 'every SDK retries a 409 unless told not to')
    })
  }

  test('without a reason has no empty clause', () => {
    assert.equal(problem('shutting_down').body.error.message, 'The server is stopping. Try again after the time in retry-after.')
    assert.doesNotMatch(problem('invalid_request', 'x is odd.').body.error.message, /\.\./)
  })

  test('of a code that is not in the table is internal and keeps what was said', () => {
    for (const code of ['made_up', 'toString', '__proto__']) {
      const { status, body } = problemOf(code, 'odd')
      assert.deepEqual([status, body.error.code], [500, 'internal'])
      assert.ok(body.error.message.includes(`${code}: odd`))
    }
  })

  test('has a row for every code that the source says', () => {
    const root = sourceRoot()
    const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.ts') && /^(core|driver|engine|engines|store|protocol|server)\b/.test(name))
    const said = files.flatMap((name) => {
      const text = readFileSync(join(root, name), 'utf8')
      const listed = [...text.matchAll(/\bcode: ((?:'[a-z_]+'(?: \| )?)+)/g)].flatMap(([, codes = '']) => [...codes.matchAll(/'([a-z_]+)'/g)])
      const refused = [...text.matchAll(/\brefuse(?:Program|Graph)?\((?:\w+, )*'([a-z_]+)', /g)]
      return [...listed, ...refused].map(([, code]) => `${code} (${name})`)
    })
    assert.ok(said.length > 5, 'nothing was found: the pattern is wrong')
    const known = new Set<string>(ERROR_CODES)
    assert.deepEqual(said.filter((one) => !known.has(one.split(' ')[0] ?? '')), [])
  })
})
