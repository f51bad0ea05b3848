import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { Llama } from '../../src/engine/llama/llama.ts'
import { TINY_MODEL, writeTinyGguf } from '../../src/models/tiny-gguf.ts'

describe('the tiny model', () => {
  let folder = ''
  let path = ''
  before(() => {
    folder = mkdtempSync(join(tmpdir(), 'entracte-tiny-'))
    path = join(folder, 'tiny.gguf')
    writeTinyGguf(path)
  })
  after(() => rmSync(folder, { recursive: true, force: true }))

  test('is the same bytes every time, on every machine, made in under a second', () => {
    const again = join(folder, 'again.gguf')
    const startedMs = performance.now()
    writeTinyGguf(again)
    assert.ok(performance.now() - startedMs < 1_000)
    const bytes = readFileSync(again)
    assert.deepEqual(bytes, readFileSync(path))
    assert.equal(bytes.length, TINY_MODEL.bytes)
    assert.equal(createHash('sha256').update(bytes).digest('hex'), TINY_MODEL.digest)
  })

  test('is loaded by the library as what it says it is', () => {
    withModel(path, ({ info }) => {
      assert.equal(info.architecture, 'llama')
      assert.equal(info.layers, TINY_MODEL.layers)
      assert.equal(info.vocabSize, TINY_MODEL.vocabulary)
      assert.equal(info.trainedContext, TINY_MODEL.contextTokens)
      assert.equal(info.bos, TINY_MODEL.bos)
      assert.equal(info.eos, TINY_MODEL.eos)
      assert.match(info.chatTemplate ?? '', /<\|im_start\|>/)
    })
  })

  test('takes any text as its bytes and gives it back', () => {
    withModel(path, (llama) => {
      const everyPlane = Array.from({ length: 0x110 }, (_, block) => block * 0x100 + 0x61)
        .filter((point) => point < 0xd800 || point > 0xdfff)
      const texts = ['  two  spaces\n\n\tand a tab', 'Ä€😀\u{10ffff}\0', String.fromCodePoint(...everyPlane)]
      for (const text of texts) {
        const tokens = [...llama.tokenize(text, true)]
        assert.deepEqual(tokens, [...Buffer.from(text)])
        assert.equal(Buffer.concat(tokens.map((token) => llama.piece(token, false))).toString(), text)
      }
    })
  })

  test('reads the marks of its template as single control tokens', () => {
    withModel(path, (llama) => {
      const tokens = [...llama.tokenize('<|im_start|>a<|im_end|>', true)]
      assert.deepEqual(tokens, [TINY_MODEL.turnStart, 97, TINY_MODEL.eos])
      assert.ok(llama.isEog(TINY_MODEL.eos) && llama.isControl(TINY_MODEL.turnStart))
    })
  })

  test('writes greedy text that wanders instead of repeating itself', async () => {
    const model = Llama.load(options(path))
    try {
      const prompt = [...model.tokenize('<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n', true)]
      const out: number[] = []
      const last = prompt.length - 1
      await model.decode(prompt.map((token, position) => ({ token, position, lane: 0, logits: position === last })))
      let logits = model.logits(last)
      while (out.length < 200) {
        const best = logits.indexOf(Math.max(...logits))
        if (model.isEog(best)) break
        out.push(best)
        await model.decode([{ token: best, position: last + out.length, lane: 0, logits: true }])
        logits = model.logits(0)
      }
      assert.ok(new Set(out).size > 30, `only ${new Set(out).size} different tokens in ${out.length}`)
      const text = Buffer.from(out).toString()
      assert.doesNotMatch(text, /(.{1,12})\1{5}/s)
      assert.doesNotMatch(text.slice(0, -1), /\ufffd/, 'characters of two bytes are whole')
    } finally {
      model.dispose()
    }
  })
})

const options = (modelPath: string) => ({
  modelPath, lanes: 2, laneTokens: 2048, batchTokens: 512, threads: 1,
  flashAttention: false, extraBuffers: true, libraryDir: null,
})

function withModel(path: string, use: (llama: Llama) => void): void {
  const llama = Llama.load(options(path))
  try {
    use(llama)
  } finally {
    llama.dispose()
  }
}
