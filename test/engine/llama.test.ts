import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout } from 'node:timers/promises'
import { Llama, LlamaError } from '../../src/engine/llama/llama.ts'
import type { LlamaOptions, Row } from '../../src/engine/llama/llama.ts'
import { TINY_MODEL, writeTinyGguf } from '../../src/models/tiny-gguf.ts'

let folder: string
let options: LlamaOptions

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'entracte-llama-'))
  const modelPath = join(folder, 'tiny.gguf')
  writeTinyGguf(modelPath)
  options = {
    modelPath, lanes: 4, laneTokens: 500, batchTokens: 128, threads: 1, flashAttention: false, extraBuffers: true,
    libraryDir: null,
  }
})

after(() => rmSync(folder, { recursive: true, force: true }))

const rowsOf = (tokens: Iterable<number>, lane: number, from = 0): Row[] =>
  [...tokens].map((token, index) => ({ token, position: from + index, lane, logits: true }))

const refusal = (code: string, words: RegExp) => (error: unknown): boolean => {
  assert(error instanceof LlamaError, String(error))
  assert.equal(error.code, code)
  assert.match(error.message, words)
  return true
}

const with4 = async (use: (llama: Llama) => Promise<void>): Promise<void> => {
  const llama = Llama.load(options)
  try {
    await use(llama)
  } finally {
    llama.dispose()
  }
}

describe('a model in lanes', () => {
  test('what the library says of the model is what the file says', () => with4(async (llama) => {
    const { info } = llama
    assert.equal(info.vocabSize, TINY_MODEL.vocabulary)
    assert.equal(info.layers, TINY_MODEL.layers)
    assert.equal(info.kvBytesPerToken, TINY_MODEL.layers * TINY_MODEL.kvHeads * TINY_MODEL.headWidth * 2 * 2)
    assert.equal(info.lanes, 4)
    assert.equal(info.laneTokens, 512)
    assert.equal(info.eos, TINY_MODEL.eos)
    assert.equal(info.architecture, 'llama')
    assert.match(info.chatTemplate ?? '', /add_generation_prompt/)
    assert.match(info.library, /^llama\.cpp-0\.4\.0/)
    assert.notEqual(info.cpuKernel, '')
  }))

  test('the threads that compute are there from the load to the end, and no batch starts others', {
    skip: process.platform === 'linux' ? false : 'the system lists no threads',
  }, async () => {
    const threads = (): string[] => readdirSync('/proc/self/task').sort()
    const two = Llama.load({ ...options, threads: 2 })
    try {
      await two.decode(rowsOf([5, 6], 0))
      // What earlier tests let go of may take a moment to end.
      await setTimeout(200)
      const first = threads()
      for (let at = 0; at < 8; at++) await two.decode(rowsOf([7], 0, 2 + at))
      assert.deepEqual(threads(), first)
    } finally {
      two.dispose()
    }
  })

  test('text becomes tokens and comes back, and nothing is added', () => with4(async (llama) => {
    const text = 'Grüße, 世界 🎭\n<|im_end|>'
    const plain = llama.tokenize(text, false)
    const special = llama.tokenize(text, true)
    const bytes = (tokens: Int32Array, shown: boolean): string =>
      Buffer.concat([...tokens].map((token) => llama.piece(token, shown))).toString('utf8')
    assert.equal(bytes(plain, false), text)
    assert.equal(bytes(special, true), text)
    assert.equal(bytes(special, false), text.replace('<|im_end|>', ''))
    assert.equal(special.at(-1), llama.info.eos)
    assert.notEqual(special[0], llama.info.bos)
    assert.equal(llama.tokenize('', true).length, 0)
    assert(llama.isEog(llama.info.eos) && llama.isControl(llama.info.eos) && !llama.isEog(65))
  }))

  test('threads change no bit, also from one batch to the next', async () => {
    const lived = async (threadsOf: (batch: number) => number): Promise<Float32Array[]> => {
      const llama = Llama.load({ ...options, threads: 3 })
      try {
        const seen: Float32Array[] = []
        for (let batch = 0, from = 0; batch < 6; batch++) {
          llama.useThreads(threadsOf(batch))
          const rows = batch % 3 === 0 ? rowsOf(Array.from({ length: 40 }, (_, i) => 40 + i + batch), 0, from) : rowsOf([70 + batch], 0, from)
          await llama.decode(rows)
          from += rows.length
          seen.push(llama.logits(rows.length - 1))
        }
        return seen
      } finally {
        llama.dispose()
      }
    }
    const alone = await lived(() => 1)
    assert.deepEqual(await lived(() => 3), alone)
    assert.deepEqual(await lived((batch) => 1 + (batch % 3)), alone)
  })

  test('more threads than were allowed are refused', () => with4(async (llama) => {
    assert.throws(() => llama.useThreads(2), refusal('decode', /2 threads: it takes 1 to 1/))
  }))

  test('a lane is continued, cut, and continued as if it had never been longer', () => with4(async (llama) => {
    const prompt = llama.tokenize('the stage is kept for the same play', true)
    await llama.decode(rowsOf(prompt, 1))
    await llama.decode([{ token: 65, position: prompt.length, lane: 1, logits: true }])
    const first = llama.logits(0)
    assert.equal(llama.laneUsed(1), prompt.length + 1)
    assert.equal(llama.cut(1, prompt.length), prompt.length)
    assert.equal(llama.laneUsed(1), prompt.length)
    await llama.decode([{ token: 65, position: prompt.length, lane: 1, logits: true }])
    assert.deepEqual(llama.logits(0), first)
    assert.equal(llama.cut(1, 0), 0)
    assert.equal(llama.laneUsed(1), 0)
  }))

  test('a copied lane has the same State at once, and the one copied from may change', () => with4(async (llama) => {
    await llama.decode(rowsOf(llama.tokenize('a prefix that two programs share', true), 0))
    const used = llama.laneUsed(0)
    const state = llama.stateBytes(0)
    llama.copyLane(0, 3)
    llama.cut(0, 0)
    await llama.decode(rowsOf(llama.tokenize('other words', true), 0))
    assert.equal(llama.laneUsed(3), used)
    await llama.decode([{ token: 66, position: used, lane: 3, logits: true }])
    const copied = llama.logits(0)
    assert(llama.loadState(2, state))
    await llama.decode([{ token: 66, position: used, lane: 2, logits: true }])
    assert.deepEqual(llama.logits(0), copied)
  }))

  test('a State that is not whole is refused and leaves the lane empty', () => with4(async (llama) => {
    await llama.decode(rowsOf(llama.tokenize('short', true), 0))
    const state = llama.stateBytes(0)
    for (const length of [0, 3, 12, 40, state.length - 1]) {
      assert.equal(llama.loadState(1, state.subarray(0, length)), false, `${length} bytes`)
      assert.equal(llama.laneUsed(1), 0)
    }
    assert.equal(llama.loadState(1, Buffer.concat([state, Buffer.alloc(4)])), false, 'a longer one')
    assert.equal(llama.laneUsed(1), 0)
  }))
})

describe('what the library would not survive never reaches it', () => {
  test('rows outside the model, the lane or the batch', () => with4(async (llama) => {
    const row: Row = { token: 65, position: 0, lane: 0, logits: true }
    await assert.rejects(llama.decode([]), refusal('decode', /0 rows/))
    await assert.rejects(llama.decode(Array.from({ length: 129 }, () => row)), refusal('decode', /129 rows/))
    await assert.rejects(llama.decode([{ ...row, token: TINY_MODEL.vocabulary }]), refusal('decode', /no token/))
    await assert.rejects(llama.decode([{ ...row, token: 1.5 }]), refusal('decode', /no token/))
    await assert.rejects(llama.decode([{ ...row, lane: 4 }]), refusal('decode', /no lane 4/))
    await assert.rejects(llama.decode([{ ...row, position: 3 }]), refusal('decode', /goes on at 0 and ends at 512/))
    await assert.rejects(llama.decode([row, row]), refusal('decode', /goes on at 1/))
    for (let from = 0; from < 512; from += 128) await llama.decode(rowsOf(new Int32Array(128).fill(65), 2, from))
    await assert.rejects(llama.decode(rowsOf([65], 2, 512)), refusal('decode', /goes on at 512 and ends at 512/))
    assert.throws(() => llama.cut(2, -1), refusal('decode', /a cut of lane 2/))
    assert.throws(() => llama.piece(-1, true), refusal('decode', /no token/))
    assert.throws(() => llama.cut(9, 0), refusal('decode', /no lane 9/))
    await llama.decode([row])
    assert.equal(llama.laneUsed(0), 1)
  }))

  test('logits that nobody asked for', () => with4(async (llama) => {
    const [first, second] = rowsOf([65, 66], 0)
    assert(first !== undefined && second !== undefined)
    await llama.decode([{ ...first, logits: false }, second])
    assert.equal(llama.logits(1).length, TINY_MODEL.vocabulary)
    assert.throws(() => llama.logits(0), refusal('decode', /did not ask/))
    assert.throws(() => llama.logits(2), refusal('decode', /did not ask/))
  }))

  test('anything that touches the context while a decode runs', () => with4(async (llama) => {
    const running = llama.decode(rowsOf(llama.tokenize('x'.repeat(100), true), 0))
    await assert.rejects(llama.decode(rowsOf([65], 1)), refusal('decode', /while a decode runs/))
    assert.throws(() => llama.logits(0), refusal('decode', /while a decode runs/))
    assert.throws(() => llama.cut(0, 0), refusal('decode', /while a decode runs/))
    assert.throws(() => llama.stateBytes(0), refusal('decode', /while a decode runs/))
    assert.throws(() => llama.loadState(0, new Uint8Array(8)), refusal('decode', /while a decode runs/))
    assert.throws(() => llama.dispose(), refusal('decode', /while a decode runs/))
    assert.equal(llama.tokenize('tokenising may go on', false).length, 20)
    await running
  }))

  test('a model that was disposed of', async () => {
    const llama = Llama.load(options)
    llama.dispose()
    llama.dispose()
    await assert.rejects(llama.decode(rowsOf([65], 0)), refusal('decode', /disposed/))
    assert.throws(() => llama.tokenize('a', true), refusal('decode', /disposed/))
  })

  test('options out of bounds, files that are no model, more cells than memory', () => {
    const load = (change: Partial<LlamaOptions>) => () => Llama.load({ ...options, ...change })
    assert.throws(load({ lanes: 0 }), refusal('model', /lanes is 0/))
    assert.throws(load({ lanes: 257 }), refusal('model', /1 to 256/))
    assert.throws(load({ batchTokens: 0.5 }), refusal('model', /batchTokens/))
    assert.throws(load({ modelPath: join(folder, 'none.gguf') }), refusal('model', /no model file/))
    const broken = join(folder, 'broken.gguf')
    writeFileSync(broken, 'GGUF and nothing else')
    assert.throws(load({ modelPath: broken }), refusal('model', /does not load: .*gguf/))
    assert.throws(load({ lanes: 256, laneTokens: 1 << 24 }), refusal('memory', /need \d+ MB beside the model.s 1 MB, and the machine has \d+/))
  })

  test('a second library in one process', () => {
    Llama.load(options).dispose()
    assert.throws(() => Llama.load({ ...options, libraryDir: folder }), refusal('library', /cannot load another/))
  })
})
