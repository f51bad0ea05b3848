/** Runs every example as a user would, and holds it to what it says. An example without a line here fails. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'

const EXAMPLE_MS_MAX = 30_000
const folder = join(import.meta.dirname, '..', 'examples')

/** What each prints, all of it. */
const SAYS: Readonly<Record<string, RegExp>> = {
  '01-hello.js': /^Hello! The curtain is up\.\n\d+ tokens read, \d+ written\n$/,
  '02-tools.js': /^it asked for multiply\(6, 7\)\nit answered: It is 42\.\n[1-9]\d* of \d+ prompt tokens were kept from the first call\n$/,
  '03-program.js': /^Take an umbrella if you go north\.\n3 calls, [1-9]\d* ms of an engine, now ended\n$/,
  '04-late-person.js': /^it waits for tool: .*ask_person\nthe late answer was refused: 409 program_cancelled\n$/,
  '05-map-reduce.js': /^chapter three: 409 cancelled\n2 of 3 were enough: They meet, and they part\.\nmap one: committed, map two: committed, map three: cancelled, enough: committed, reduce: committed\n$/,
  '06-tree-search.js': /^queen: Mate in two\.\n(rook|pawn): 409 cancelled\n(rook|pawn): 409 cancelled\nKV is kept for: main, queen\n$/,
}

describe('the examples', () => {
  const built = readdirSync(folder).filter((name) => /^\d\d-.*\.js$/.test(name)).sort()
  test('are all here', () => assert.deepEqual(built, Object.keys(SAYS)))
  for (const name of built) {
    test(`${name} runs and says what it should`, () => {
      const ran = spawnSync(process.execPath, [join(folder, name)], { encoding: 'utf8', timeout: EXAMPLE_MS_MAX, env: { ...process.env, BASE_URL: undefined } })
      assert.equal(ran.status, 0, ran.stderr)
      assert.match(ran.stdout, SAYS[name] ?? /^no line for it in this test$/)
    })
  }
})
