import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { measure } from '../../scripts/exactness.ts'
import { ImageError, imageKey, readImage, writeImage } from '../../src/engine/kv-image.ts'
import { Llama } from '../../src/engine/llama/llama.ts'
import type { LlamaOptions } from '../../src/engine/llama/llama.ts'
import { writeTinyGguf } from '../../src/models/tiny-gguf.ts'

const IDENTITY = { tenant: 'acme', state: 's1', owner: 'thread:1', epoch: 1, reign: 1 }
const FLIPS = 400

let folder: string
let modelPath: string
let modelDigest: string

before(() => {
  folder = mkdtempSync(join(tmpdir(), 'entracte-image-llama-'))
  modelPath = join(folder, 'tiny.gguf')
  writeTinyGguf(modelPath)
  modelDigest = createHash('sha256').update(readFileSync(modelPath)).digest('hex')
})

after(() => rmSync(folder, { recursive: true, force: true }))

const load = (change: Partial<LlamaOptions> = {}): Llama => Llama.load({
  modelPath, lanes: 4, laneTokens: 256, batchTokens: 64, threads: 1, flashAttention: false, extraBuffers: true,
  libraryDir: null, ...change,
})

/** Feeds a text and then single tokens; gives the logits of the last. */
async function feed(llama: Llama, lane: number, text: string, decoded: number): Promise<Float32Array> {
  const from = llama.laneUsed(lane)
  const tokens = [...llama.tokenize(text, false)]
  await llama.decode(tokens.map((token, index) => ({ token, position: from + index, lane, logits: true })))
  if (decoded === 0) return llama.logits(tokens.length - 1)
  for (let index = 0; index < decoded; index++) {
    await llama.decode([{ token: 65 + index, position: from + tokens.length + index, lane, logits: true }])
  }
  return llama.logits(0)
}

/** Writes what lane 2 holds as a span of given and one of decoded tokens. */
async function offload(llama: Llama, path: string, decoded: number): Promise<string> {
  const { digest } = await writeImage(path, llama.stateBytes(2), {
    key: imageKey(llama.info, modelDigest), identity: IDENTITY, library: llama.info.library,
    cpuKernel: llama.info.cpuKernel, model: { digest: modelDigest, tokenizer: '', template: '', adapter: '' },
    spans: [
      { id: 'given', tokens: llama.laneUsed(2) - decoded, origin: 'prefilled' },
      { id: 'answer', tokens: decoded, origin: 'decoded' },
    ],
  })
  return digest
}

for (const flashAttention of [false, true]) {
  const name = `flash attention ${flashAttention ? 'on' : 'off'}`

  test(`a State goes on in another engine of other lanes as if it had stayed, ${name}`, async () => {
    const path = join(folder, `moved-${flashAttention}`)
    const here = load({ flashAttention })
    await feed(here, 0, 'somebody else is in the first lane', 0)
    await feed(here, 2, 'the stage is kept', 3)
    const digest = await offload(here, path, 3)
    const stayed = await feed(here, 2, ' for the same play', 2)
    const key = imageKey(here.info, modelDigest)
    here.dispose()

    const there = load({ flashAttention, lanes: 8, laneTokens: 700 })
    assert.equal(imageKey(there.info, modelDigest), key)
    const { blob, manifest } = await readImage(path, { key, digest, identity: IDENTITY }, there.info.lanes)
    assert.equal(manifest.form.transposed, !flashAttention)
    assert(there.loadState(7, blob))
    assert.equal(there.laneUsed(7), manifest.tokens)
    assert.deepEqual(await feed(there, 7, ' for the same play', 2), stayed)
    there.dispose()
  })
}

test('engines that differ in layout, weights or model have different image keys', () => {
  const keys = new Set<string>()
  for (const change of [{}, { flashAttention: true }, { extraBuffers: false }]) {
    const llama = load(change)
    keys.add(imageKey(llama.info, modelDigest))
    keys.add(imageKey(llama.info, 'another'))
    llama.dispose()
  }
  assert.equal(keys.size, 6)
})

test('a State longer than a lane is refused by the engine and leaves the lane empty', async () => {
  const path = join(folder, 'long')
  const here = load({ laneTokens: 1024 })
  const sixty = 'a part of sixty characters, which are sixty tokens, no less.'
  for (let part = 0; part < 10; part++) await feed(here, 2, sixty, 0)
  await feed(here, 2, '.', 1)
  const digest = await offload(here, path, 1)
  const key = imageKey(here.info, modelDigest)
  here.dispose()
  const there = load()
  const { blob } = await readImage(path, { key, digest, identity: IDENTITY }, there.info.lanes)
  assert.equal(there.loadState(0, blob), false)
  assert.equal(there.laneUsed(0), 0)
  await feed(there, 0, 'and the lane is as good as new', 1)
  there.dispose()
})

test('a real image with a bit flipped or its end missing is refused, wherever it is', async () => {
  const path = join(folder, 'fuzzed')
  const here = load()
  await feed(here, 2, 'the stage is kept', 3)
  const digest = await offload(here, path, 3)
  const expected = { key: imageKey(here.info, modelDigest), digest, identity: IDENTITY }
  here.dispose()
  const bytes = readFileSync(path)
  let seed = 20_260_912
  const below = (limit: number): number => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0
    return seed % limit
  }
  for (let round = 0; round < FLIPS; round++) {
    const changed = Buffer.from(bytes)
    const at = below(bytes.length)
    changed[at] = (changed[at] ?? 0) ^ (1 << below(8))
    writeFileSync(path, round % 4 === 0 ? bytes.subarray(0, at) : changed)
    await assert.rejects(readImage(path, expected, 4), ImageError, `round ${round}, byte ${at}`)
  }
  writeFileSync(path, bytes)
  await readImage(path, expected, 4)
})

test('on this CPU a State depends on its tokens and their origins alone (E1)', async () => {
  const { verdicts } = await measure({
    modelPath, folder, promptTokens: 100, threads: 1, extraBuffers: true, flashAttention: false, rowUnit: 1,
    chunkMax: 512, libraryDir: null,
  })
  const broken = verdicts.filter((verdict) => verdict.expected === 'equal' && !verdict.holds)
  assert.deepEqual(broken, [])
  assert(verdicts.filter((verdict) => verdict.expected === 'equal').length >= 20)
  const seen = verdicts.filter((verdict) => verdict.rowsEqual < verdict.rows)
  assert(seen.length > 0, 'no schedule made a difference: this measurement cannot see one')
})
