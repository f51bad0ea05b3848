/** KV in every element type: it runs, a State comes back as it was, and what another type wrote is refused by name. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { ImageError, imageKey, readImage, writeImage } from '../../src/engine/kv-image.ts'
import { KV_TYPES, kvElementBytes, type KvType } from '../../src/engine/llama/kv-type.ts'
import { Llama, LlamaError, type LlamaOptions } from '../../src/engine/llama/llama.ts'
import { TINY_MODEL, writeTinyGguf } from '../../src/models/tiny-gguf.ts'
import { writeShape } from '../models/shapes.ts'

const IDENTITY = { tenant: 'acme', state: 's1', owner: 'thread:1', epoch: 1, reign: 1 }
const DIGEST = 'd'.repeat(64)

let folder: string

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'entracte-kv-type-'))
  writeTinyGguf(join(folder, 'tiny.gguf'))
})

after(() => rmSync(folder, { recursive: true, force: true }))

async function with4<T>(change: Partial<LlamaOptions>, use: (llama: Llama) => Promise<T>): Promise<T> {
  const llama = Llama.load({
    modelPath: join(folder, 'tiny.gguf'), lanes: 4, laneTokens: 256, batchTokens: 64, threads: 1, flashAttention: false, extraBuffers: true,
    libraryDir: null, ...change,
  })
  try {
    return await use(llama)
  } finally {
    llama.dispose()
  }
}

async function feed(llama: Llama, lane: number): Promise<void> {
  const tokens = [...llama.tokenize('what is kept in eight bits is kept', false)]
  await llama.decode(tokens.map((token, position) => ({ token, position, lane, logits: true })))
}

async function next(llama: Llama, lane: number): Promise<Float32Array> {
  await llama.decode([{ token: 65, position: llama.laneUsed(lane), lane, logits: true }])
  return llama.logits(0)
}

async function write(llama: Llama, path: string): Promise<string> {
  const { digest } = await writeImage(path, llama.stateBytes(1), {
    key: imageKey(llama.info, DIGEST), identity: IDENTITY, library: llama.info.library, cpuKernel: llama.info.cpuKernel,
    model: { digest: DIGEST, tokenizer: '', template: '', adapter: '' }, spans: [{ id: 'given', tokens: llama.laneUsed(1), origin: 'prefilled' }],
  })
  return digest
}

const inBlocks = (type: KvType): boolean => kvElementBytes(type) % 1 !== 0

for (const type of KV_TYPES) {
  // V in blocks needs flash attention.
  const settings = { kvTypeK: type, kvTypeV: type, flashAttention: inBlocks(type) }
  test(`K and V as ${type} take what they should, and a State goes on from its image bit for bit`, () => with4(settings, async (llama) => {
    const { info } = llama
    assert.equal(info.kvBytesPerToken, 2 * TINY_MODEL.layers * TINY_MODEL.kvHeads * TINY_MODEL.headWidth * kvElementBytes(type))
    assert.equal(info.kvTypes, `${type},${type}`)
    await feed(llama, 1)
    const path = join(folder, `${type}.kv`)
    const digest = await write(llama, path)
    const { blob } = await readImage(path, { key: imageKey(info, DIGEST), digest, identity: IDENTITY }, 4)
    assert.equal(llama.loadState(3, blob), true)
    const logits = await next(llama, 1)
    assert.deepEqual(await next(llama, 3), logits)
  }))
}

test('an image of f16 is refused by an engine that keeps K in q8_0, by name and not by luck', async () => {
  const path = join(folder, 'of-f16.kv')
  const digest = await with4({}, async (llama) => {
    await feed(llama, 1)
    return write(llama, path)
  })
  await with4({ kvTypeK: 'q8_0' }, async (llama) => {
    const key = imageKey(llama.info, DIGEST)
    await assert.rejects(readImage(path, { key, digest, identity: IDENTITY }, 4), (error: unknown) => {
      assert.ok(error instanceof ImageError && error.reason === 'identity', String(error))
      assert.match(error.message, /it was made by kv1\/.*k1x\d+x1\*\d+.*, and kv1\/.*k8x\d+x1\*\d+.* reads it/)
      return true
    })
  })
})

test('what a model or the settings cannot have is refused before the library ends the process', () => {
  const refused = (change: Partial<LlamaOptions>, words: RegExp): void => {
    assert.throws(() => Llama.load({
      modelPath: join(folder, 'tiny.gguf'), lanes: 2, laneTokens: 256, batchTokens: 64, threads: 1, flashAttention: false, extraBuffers: true, libraryDir: null, ...change,
    }), (error: unknown) => {
      assert.ok(error instanceof LlamaError, String(error))
      assert.match(error.message, words)
      return true
    })
  }
  refused({ kvTypeV: 'q8_0' }, /V as q8_0 needs flash attention, which is off/)
  const narrow = join(folder, 'narrow.gguf')
  writeShape(narrow, 'dense')
  for (const flashAttention of [false, true]) {
    refused({ modelPath: narrow, kvTypeK: 'q4_0', flashAttention }, /K as q4_0 is kept in blocks of 32, and a head of this model is 16 wide/)
  }
})
