import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { LlamaError } from '../../src/engine/llama/error.ts'
import { checkQuantiser } from '../../src/engine/llama/layout.ts'
import { openLibrary } from '../../src/engine/llama/library.ts'
import { Llama } from '../../src/engine/llama/llama.ts'
import { quantise } from '../../src/engine/llama/quantise.ts'
import { readGguf } from '../../src/models/gguf.ts'
import { writeTinyGguf } from '../../src/models/tiny-gguf.ts'

const folder = mkdtempSync(join(tmpdir(), 'entracte-quantise-'))
after(() => rmSync(folder, { recursive: true, force: true }))

test('a model is written anew in another quantisation, and is the same model', async () => {
  const from = join(folder, 'tiny.gguf')
  writeTinyGguf(from)
  for (const as of ['Q4_0', 'F16', 'IQ4_NL'] as const) {
    const to = join(folder, `${as}.gguf`)
    quantise(from, to, as, 1)
    const [was, is] = [readGguf(from), readGguf(to)]
    assert.equal(is.quantisation, as)
    assert.deepEqual([is.parameters, is.architecture, is.contextTokens, is.hasTemplate], [was.parameters, was.architecture, was.contextTokens, true])
    const llama = Llama.load({ modelPath: to, lanes: 1, laneTokens: 256, batchTokens: 16, threads: 1, flashAttention: false, extraBuffers: true, libraryDir: null })
    await llama.decode([0, 1].map((position) => ({ token: 65 + position, position, lane: 0, logits: position === 1 })))
    assert.ok(llama.logits(1).every(Number.isFinite))
    llama.dispose()
  }
})

test('what is no model is refused', () => {
  const from = join(folder, 'page.gguf')
  writeFileSync(from, '<html>')
  assert.throws(() => quantise(from, join(folder, 'out.gguf'), 'Q4_0', 1), (error) => error instanceof LlamaError && /page\.gguf could not be written as Q4_0/.test(error.message))
  assert.ok(!existsSync(join(folder, 'out.gguf')))
})

test('every default of the quantiser that differs is a refusal', () => {
  const params = openLibrary(null).fn.quantiseDefaults()
  checkQuantiser(params)
  for (const key of Object.keys(params) as (keyof typeof params)[]) {
    assert.throws(() => checkQuantiser({ ...params, [key]: 77 }), (error) => error instanceof LlamaError && error.code === 'layout', key)
  }
})
