/**
 * Reads the repository's own source and holds it to STYLE.md and to the directions of ARCHITECTURE.md. The rules are in
 * `test/tidy/`; each is fed a small bad source here, so that none of them is able to sleep.
 */
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import { describe, test } from 'node:test'
import { barrels, cycles, directions, packages, unusedExports } from './tidy/graph.ts'
import { readSource, type SourceFile } from './tidy/modules.ts'
import { FILE_LINES_MAX, FILE_RULES, FUNCTION_LINES_MAX, type Complaint } from './tidy/rules.ts'
import { tokensOf } from './tidy/tokens.ts'

const FOLDERS = ['src', 'test', 'bench', 'scripts', 'examples']

function repositoryRoot(): string {
  for (let at = import.meta.dirname; at !== dirname(at); at = dirname(at)) {
    if (readdirSync(at).includes('tsconfig.json')) return at
  }
  throw new Error('no tsconfig.json above this test: run it from a checkout')
}

const root = repositoryRoot()
const files: readonly SourceFile[] = FOLDERS.filter((folder) => existsSync(join(root, folder))).flatMap((folder) => readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
  .map((entry) => join(entry.parentPath, entry.name))
  .sort()
  .map((path) => readSource(relative(root, path).split(sep).join('/'), readFileSync(path, 'utf8'))))
const manifest: unknown = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const dependencies = Object.keys((manifest as { dependencies: Record<string, string> }).dependencies)

const holds = (complaints: readonly Complaint[]): void => {
  if (complaints.length === 0) return
  assert.fail(complaints.map(({ path, line, message }) => `${path}:${line} ${message}`).join('\n'))
}

describe('the source', () => {
  for (const rule of FILE_RULES) test(`keeps the rule ${rule.name}`, () => holds(files.flatMap(rule)))
  test('imports along the directions of the layers', () => holds(directions(files)))
  test('has no cycle between files', () => holds(cycles(files)))
  test('imports each third-party package in its own folder', () => holds(packages(files, dependencies)))
  test('exports only what another file uses', () => holds(unusedExports(files)))
  test('has no barrels', () => holds(barrels(files)))
})

// ---------------------------------------------------------------- the rules can fail

const HEAD = '/** Owns a test. */\n'
const rule = (name: string) => {
  const found = FILE_RULES.find((each) => each.name === name)
  assert.ok(found, `no rule ${name}`)
  return (path: string, text: string) => found(readSource(path, text)).map(({ message }) => message)
}
const many = (count: number, line: string): string => Array.from({ length: count }, () => line).join('\n')

/** Rule, path, source, and whether it must complain. */
const CASES: readonly [string, string, string, boolean][] = [
  ['fileLength', 'src/a.ts', many(FILE_LINES_MAX + 1, 'x'), true],
  ['fileLength', 'src/a.ts', many(FILE_LINES_MAX, 'x'), false],
  ['functionLength', 'src/a.ts', `function long(a: { b: number }): { c: () => void } {\n${many(FUNCTION_LINES_MAX - 1, 'x()')}\n}`, true],
  ['functionLength', 'src/a.ts', `function fits(): void {\n${many(FUNCTION_LINES_MAX - 2, 'x()')}\n}`, false],
  ['functionLength', 'src/a.ts', `const long = (a: string) => {\n${many(FUNCTION_LINES_MAX, 'x()')}\n}`, true],
  ['functionLength', 'src/a.ts', `const long = () => [\n${many(FUNCTION_LINES_MAX, '1,')}\n]\nconst next = 1`, true],
  ['functionLength', 'src/a.ts', `const short = () => 1\n${many(FUNCTION_LINES_MAX, 'x()')}`, false],
  ['functionLength', 'src/a.ts', `class A {\n  async *long(): AsyncGenerator<number> {\n${many(FUNCTION_LINES_MAX, 'x()')}\n}\n}`, true],
  ['functionLength', 'src/a.ts', `class A {\n${many(FUNCTION_LINES_MAX, 'x(): void {}')}\n}`, false],
  ['functionLength', 'src/a.ts', `const make = (a: B): C => new D(a)\nclass D {\n${many(FUNCTION_LINES_MAX, 'x(): void {}')}\n}`, false],
  ['functionLength', 'src/a.ts', `type F = (a: B) => Promise<C>\nclass D {\n${many(FUNCTION_LINES_MAX, 'x(): void {}')}\n}`, false],
  ['functionLength', 'src/a.ts', `function long(): () => void {\n${many(FUNCTION_LINES_MAX, 'x()')}\n}`, true],
  ['functionLength', 'test/a.test.ts', `test('x', () => {\n${many(FUNCTION_LINES_MAX, 'x()')}\n})`, true],
  ['functionLength', 'test/a.test.ts', `describe('x', () => {\n${many(FUNCTION_LINES_MAX, "test('y', f)")}\n})`, false],
  ['functionLength', 'src/a.ts', `if (a) {\n${many(FUNCTION_LINES_MAX, 'x()')}\n}`, false],
  ['fileName', 'src/core/utils.ts', '', true],
  ['fileName', 'src/core/kvCache.ts', '', true],
  ['fileName', 'src/core/kv-image.ts', '', false],
  ['headComment', 'src/a.ts', 'const a = 1', true],
  ['headComment', 'src/a.ts', `#!/usr/bin/env node\n${HEAD}`, false],
  ['noAny', 'src/a.ts', 'const a: any = 1', true],
  ['noAny', 'src/a.ts', 'const a = b as any[]', true],
  ['noAny', 'src/a.ts', 'type A = Record<string, any>', true],
  ['noAny', 'src/a.ts', 'const text = `${(x: any) => 1}`', true],
  ['noAny', 'src/a.ts', '// any\nconst a = "any" + `any` + /any/.source; Promise.any([])\nconst b = { any: 1 }', false],
  ['noAny', 'src/a.ts', 'const any = (count: number) => count\nany(1)', false],
  ['noAny', 'test/a.ts', 'const a: any = 1', false],
  ['noIgnore', 'src/a.ts', '// @ts-ignore\nx()', true],
  ['noIgnore', 'src/a.ts', 'const text = "@ts-ignore"', false],
  ['pureCore', 'src/core/a.ts', 'const now = Date.now()', true],
  ['pureCore', 'src/core/a.ts', 'const x = Math.random()', true],
  ['pureCore', 'src/core/a.ts', 'const x = performance.now()', true],
  ['pureCore', 'src/core/a.ts', 'const x = process.hrtime()', true],
  ['pureCore', 'src/core/a.ts', 'setTimeout(f, 1)', true],
  ['pureCore', 'src/core/a.ts', 'async function f() {}', true],
  ['pureCore', 'src/core/a.ts', 'const p: Promise<void> = q', true],
  ['pureCore', 'src/core/a.ts', 'import { readFileSync } from "node:fs"', true],
  ['pureCore', 'src/core/a.ts', 'console.log(1)', true],
  ['pureCore', 'src/core/a.ts', 'let count = 0', true],
  ['pureCore', 'src/core/a.ts', 'names.sort((a, b) => a.localeCompare(b))', true],
  ['pureCore', 'src/core/a.ts', 'const text = `at ${process.pid}`', true],
  ['pureCore', 'src/core/a.ts', '/** Date, await */\nconst f = (): string => { let a = "Promise"; return a + work.process + `Date ${a}` }', false],
  ['pureCore', 'src/driver/a.ts', 'const now = Date.now()', false],
  ['noSwallow', 'src/a.ts', 'try { f() } catch {}', true],
  ['noSwallow', 'src/a.ts', 'try { f() } catch (error) { /* fine */ }', true],
  ['noSwallow', 'src/a.ts', 'try { f() } catch (error) { throw error }', true],
  ['noSwallow', 'src/a.ts', 'f().catch(() => {})', true],
  ['noSwallow', 'src/a.ts', 'try { f() } catch (error) { return null }\nf().catch((error) => { report(error) })', false],
  ['noLeftovers', 'src/a.ts', '// TODO later', true],
  ['noLeftovers', 'src/a.ts', '// a method to do it', false],
]

describe('a rule', () => {
  for (const [name, path, text, complains] of CASES) {
    const shown = text.length > 60 ? `${text.slice(0, 60)}...` : text
    test(`${name} ${complains ? 'refuses' : 'accepts'} ${JSON.stringify(shown)} in ${path}`, () => {
      const messages = rule(name)(path, text)
      assert.equal(messages.length > 0, complains, messages.join('\n'))
    })
  }

  test('has a case that it refuses and one that it accepts', () => {
    for (const { name } of FILE_RULES) {
      for (const complains of [true, false]) {
        assert.ok(CASES.some((row) => row[0] === name && row[3] === complains), `${name} ${complains ? 'never refuses' : 'never accepts'}`)
      }
    }
  })
})

const tree = (sources: Record<string, string>): SourceFile[] => Object.entries(sources).map(([path, text]) => readSource(path, text))
const says = (complaints: readonly Complaint[], path: string, pattern: RegExp): void => {
  assert.ok(complaints.some((each) => each.path === path && pattern.test(each.message)), `expected ${path} ${pattern} in ${JSON.stringify(complaints)}`)
}

describe('the directions', () => {
  const layered = (from: string, clause: string, to: string): Complaint[] => {
    const up = '../'.repeat(from.split('/').length - 2) || './'
    return directions(tree({ [from]: `${clause} from '${up}${to.slice('src/'.length)}'`, [to]: 'export const x = 1' }))
  }
  const refused: readonly [string, string, string][] = [
    ['src/core/a.ts', 'import { x }', 'src/driver/b.ts'],
    ['src/core/a.ts', 'import type { x }', 'src/protocol/b.ts'],
    ['src/protocol/a.ts', 'import type { x }', 'src/core/state.ts'],
    ['src/driver/a.ts', 'import { x }', 'src/engines/b.ts'],
    ['src/engines/a.ts', 'import { x }', 'src/core/step.ts'],
    ['src/engines/a.ts', 'import type { x }', 'src/driver/driver.ts'],
    ['src/store/a.ts', 'import { type y, x }', 'src/core/fact.ts'],
    ['src/server/a.ts', 'import { x }', 'src/store/b.ts'],
    ['src/engine/a.ts', 'import type { x }', 'src/core/ids.ts'],
    ['src/models/a.ts', 'import { x }', 'src/protocol/b.ts'],
    ['src/eval/a.ts', 'import { x }', 'src/driver/b.ts'],
    ['src/eval/a.ts', 'export { x }', 'src/main.ts'],
    ['src/main.ts', 'import { x }', 'src/cli/main.ts'],
    ['src/new/a.ts', 'import { x }', 'src/core/b.ts'],
    ['src/core/a.ts', 'import { x }', 'test/b.ts'],
  ]
  for (const [from, clause, to] of refused) {
    test(`refuses \`${clause}\` of ${to} in ${from}`, () => says(layered(from, clause, to), from, /import|layer/))
  }
  const accepted: readonly [string, string, string][] = [
    ['src/driver/a.ts', 'import { x }', 'src/core/step.ts'],
    ['src/engines/a.ts', 'import { type x }', 'src/core/state.ts'],
    ['src/engines/a.ts', 'import { x }', 'src/core/ids.ts'],
    ['src/store/a.ts', 'import type { x }', 'src/driver/ports.ts'],
    ['src/eval/a.ts', 'import { x }', 'src/core/explain/explain.ts'],
    ['src/cli/a.ts', 'import { x }', 'src/main.ts'],
    ['src/engine/llama/a.ts', 'import { x }', 'src/engine/b.ts'],
  ]
  for (const [from, clause, to] of accepted) {
    test(`accepts \`${clause}\` of ${to} in ${from}`, () => holds(layered(from, clause, to)))
  }
})

describe('the graph', () => {
  test('refuses an import of a file that is not there', () => {
    says(directions(tree({ 'src/core/a.ts': "import { x } from './gone.ts'" })), 'src/core/a.ts', /not there/)
  })
  test('sees a dynamic import and a re-export', () => {
    const sources = { 'src/core/a.ts': "const b = import('../driver/b.ts')", 'src/core/c.ts': "export * from '../driver/b.ts'", 'src/driver/b.ts': '' }
    says(directions(tree(sources)), 'src/core/a.ts', /driver/)
    says(directions(tree(sources)), 'src/core/c.ts', /driver/)
    says(barrels(tree(sources)), 'src/core/c.ts', /re-exports/)
  })
  test('finds a cycle, also one of types', () => {
    const round = tree({
      'src/core/a.ts': "import type { B } from './b.ts'", 'src/core/b.ts': "import { c } from './c.ts'", 'src/core/c.ts': "export { a } from './a.ts'",
    })
    says(cycles(round), 'src/core/a.ts', /a\.ts -> src\/core\/b\.ts -> src\/core\/c\.ts -> src\/core\/a\.ts/)
    holds(cycles(round.slice(0, 2)))
  })
  test('gives each package one folder', () => {
    says(packages(tree({ 'src/server/a.ts': "import koffi from 'koffi'" }), []), 'src/server/a.ts', /belongs to src\/engine/)
    says(packages(tree({ 'src/server/a.ts': "import x from '@left/pad/deep'" }), []), 'src/server/a.ts', /@left\/pad, which no folder owns/)
    says(packages(tree({ 'src/server/a.ts': "import fs from 'fs'" }), []), 'src/server/a.ts', /node:fs/)
    says(packages(tree({ 'src/server/a.ts': '' }), ['koffi']), 'package.json', /koffi/)
    holds(packages(tree({ 'src/engine/llama/a.ts': "import koffi from 'koffi'", 'src/config.ts': "import { z } from 'zod'", 'test/a.ts': "import fc from 'fast-check'" }), ['koffi']))
  })
  test('finds an export that nobody takes', () => {
    const sources = tree({
      'src/core/a.ts': 'export const used = 1\nexport function alone(): void {}\nexport type { T }\nexport interface Seen {}',
      'src/core/b.ts': "import { used as mine, type Seen } from './a.ts'",
      'test/c.ts': "import * as a from '../src/core/a.ts'\na.viaNamespace()",
    })
    const names = unusedExports(sources).map(({ message }) => message.split(' ')[1])
    assert.deepEqual(names, ['alone,', 'T,'])
  })
})

describe('the reader of tokens', () => {
  const words = (text: string): string[] => tokensOf(text).filter((token) => token.kind === 'word').map((token) => token.text)
  test('sees code inside a template and none in its text', () => {
    assert.deepEqual(words('`a ${b + `c ${d}` + "e"} f ${{ g: 1 }.g} h`; i'), ['b', 'd', 'g', 'g', 'i'])
  })
  test('tells a regular expression from a division', () => {
    assert.deepEqual(words('a = b / c; d = /e"[/]f/g.test(h) ? 1 : x(1) / y / z; if (i) /j"/.test(k)'), ['a', 'b', 'c', 'd', 'test', 'h', 'x', 'y', 'z', 'if', 'i', 'test', 'k'])
  })
  test('skips strings and comments, and keeps lines', () => {
    const tokens = tokensOf("'it\\'s' // don't\n/* \"\n */ x")
    assert.deepEqual(tokens.map(({ kind, line }) => [kind, line]), [['string', 1], ['comment', 1], ['comment', 2], ['word', 3]])
  })
})
