import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { LlamaError } from '../../src/engine/llama/error.ts'
import { openLibrary } from '../../src/engine/llama/library.ts'

let folder: string
before(() => { folder = mkdtempSync(join(tmpdir(), 'entracte-library-')) })
after(() => rmSync(folder, { recursive: true, force: true }))

const refusal = (words: RegExp) => (error: unknown): boolean => {
  assert(error instanceof LlamaError, String(error))
  assert.equal(error.code, 'library')
  assert.match(error.message, words)
  return true
}

test('a directory that is none, is empty, or holds no library is refused with what to do, and the next one is tried', () => {
  assert.throws(() => openLibrary(join(folder, 'none')), refusal(/cannot be read .*Check the path/))
  const empty = join(folder, 'empty')
  mkdirSync(empty)
  assert.throws(() => openLibrary(empty), refusal(/no file named like .*Give the directory/))
  const junk = join(folder, 'junk')
  mkdirSync(junk)
  for (const ending of ['so', 'dylib', 'dll']) {
    for (const name of ['libllama.v0.4.0', 'libllama-common', 'libggml.v0.4.0', 'libggml-cpu-none']) {
      writeFileSync(join(junk, `${name}.${ending}`), 'no library')
    }
  }
  assert.throws(() => openLibrary(junk), refusal(/does not load .*reinstall/))

  const library = openLibrary(null)
  assert.match(library.name, /^llama\.cpp-0\.4\.0(-\w+)?-[0-9a-f]{8}$/)
  assert.match(library.cpuKernel, /^\w+(\.\w+)?$/)
  assert.equal(openLibrary(null), library)
})

test('what the library logs is kept around a call and nowhere else', () => {
  const library = openLibrary(null)
  const path = join(folder, 'broken.gguf')
  writeFileSync(path, 'not a model')
  const params = library.fn.modelDefaults()
  const { result, lines } = library.logged(() => library.fn.modelLoad(path, params))
  assert.equal(result, null)
  assert(lines.some((line) => line.includes('failed to load model')), lines.join('\n'))
  assert.equal(library.fn.modelLoad(path, params), null)
  assert.deepEqual(library.logged(() => 1), { result: 1, lines: [] })
})
