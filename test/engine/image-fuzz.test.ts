/**
 * A State image that is not what was written, given to an engine: cut, changed in a byte, changed in a field with every
 * digest set right, of another model or of another layout. It is refused with a reason, or it is byte for byte the State
 * and goes on with its tokens; the engine lives on. ENTRACTE_FUZZ=5000 tries so many instead of some hundreds.
 */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { crc32 } from 'node:zlib'
import { imageKey, writeImage } from '../../src/engine/kv-image.ts'
import { Llama } from '../../src/engine/llama/llama.ts'
import type { LlamaOptions } from '../../src/engine/llama/llama.ts'
import { tinyModel } from '../real-model.ts'
import { writeShape } from '../models/shapes.ts'
import { EngineUnderTest, PROVEN } from './engine-under-test.ts'
import { Dice } from './exact-plot.ts'
import type { Command } from './played-engine.ts'

const MUTATIONS = Number(process.env['ENTRACTE_FUZZ'] ?? 400)
const HEAD_BYTES = 20
const IDENTITY = { tenant: 't', state: 's', owner: 'o', epoch: 0, reign: 1 }
/** One engine may hear no more than this; what it said is let go of now and then. */
const FORGET_EVERY = 100

/** Bytes as they lie in the file, and the digest under which the control plane knows it. */
interface Mutant { readonly kind: string; readonly bytes: Buffer; readonly digest: string; readonly mustFail: boolean }

const folder = mkdtempSync(join(tmpdir(), 'entracte-fuzz-'))
let engine: EngineUnderTest
let image: Buffer
let digest = ''
let wanted: readonly number[] = []
let next: Extract<Command, { kind: 'start' }>
let prepared: Uint8Array = new Uint8Array()

after(async () => {
  await engine.kill()
  rmSync(folder, { recursive: true, force: true })
})

before(async () => {
  engine = new EngineUnderTest({ modelPath: await tinyModel(), lanes: 3, laneTokens: 512, chunkTokens: 64, threads: 1, flashAttention: false, exact: PROVEN })
  const said = (text: string): object => ({ role: 'user', content: text, toolCalls: [], toolCallId: null })
  const first = await begun('first', [said('What waits is kept.')], [])
  const { spans, record, content } = await finished(first.start, first.prepared)
  const path = join(folder, 'whole')
  engine.tell({ kind: 'offload', move: 'out', state: 's', path, spans, identity: IDENTITY })
  const { event } = await engine.next(({ kind }) => kind === 'moved' || kind === 'moveFailed')
  assert(event.kind === 'moved', JSON.stringify(event))
  digest = event.digest
  image = readFileSync(path)
  const answer = { role: 'assistant', content, toolCalls: [], toolCallId: null }
  const second = await begun('second', [said('What waits is kept.'), answer, said('Go on.')], [record])
  next = { ...second.start, baseTokens: second.matched, keepTokens: second.matched }
  prepared = second.prepared
  wanted = (await finished(next, prepared)).tokens
  engine.tell({ kind: 'discard', state: 's' })
})

test(`${MUTATIONS} images that are not what was written: each is refused with a reason, or is the State and goes on with its tokens`, async (context) => {
  const dice = new Dice(20_270_101)
  const foreign = await strangers()
  const outcomes: Record<string, number> = {}
  for (let round = 0; round < MUTATIONS; round++) {
    const mutant = foreign[round] ?? mutate(dice)
    const outcome = await offer(mutant, round)
    const key = `${mutant.kind}: ${outcome}`
    outcomes[key] = (outcomes[key] ?? 0) + 1
    if (round % FORGET_EVERY === 0) engine.heard.length = 0
  }
  const whole = await offer({ kind: 'whole', bytes: image, digest, mustFail: false }, MUTATIONS)
  assert.equal(whole, 'goes on')
  context.diagnostic(JSON.stringify(outcomes, null, 1))
})

/** What the engine makes of it: the reason without its figures, or that the State went on as it had been. */
async function offer({ kind, bytes, digest: known, mustFail }: Mutant, round: number): Promise<string> {
  const path = join(folder, 'mutant')
  writeFileSync(path, bytes)
  engine.tell({ kind: 'onboard', move: `in${round}`, state: 's', path, digest: known, identity: IDENTITY })
  const { event } = await engine.next((e) => (e.kind === 'moved' || e.kind === 'moveFailed') && e.move === `in${round}`)
  if (event.kind === 'moveFailed') {
    assert.match(event.why, /image|digest|library refuses/, `${kind}, round ${round}: ${event.why}`)
    return event.why.replaceAll(folder, '').replace(/[0-9a-f]{8}|\d+/g, 'N').slice(0, 70)
  }
  assert.equal(mustFail, false, `${kind}, round ${round}: it was taken`)
  const { tokens } = await finished({ ...next, call: `on${round}` }, prepared)
  assert.deepEqual(tokens, wanted, `${kind}, round ${round}`)
  engine.tell({ kind: 'discard', state: 's' })
  return 'goes on'
}

// ---------------------------------------------------------------- mutations

function mutate(dice: Dice): Mutant {
  const kind = dice.of(['byte', 'byte', 'cut', 'digest', 'field', 'field', 'longer'] as const)
  switch (kind) {
    case 'byte': return { kind, bytes: changed(dice), digest, mustFail: true }
    case 'cut': return { kind, bytes: image.subarray(0, dice.whole(0, image.length - 1)), digest, mustFail: true }
    case 'longer': return { kind, bytes: Buffer.concat([image, Buffer.alloc(dice.whole(1, 4_096), 7)]), digest, mustFail: true }
    // As if whoever wrote it had said so: the digest of the whole is right and those inside are not.
    case 'digest': {
      const bytes = changed(dice)
      return { kind, bytes, digest: digestOf(bytes), mustFail: true }
    }
    case 'field': {
      const manifest = manifestOf(image)
      const name = changeField(dice, manifest)
      const bytes = withManifest(manifest)
      return { kind: `field ${name}`, bytes, digest: digestOf(bytes), mustFail: false }
    }
  }
}

/** Another byte somewhere: half of the time in the head, which is small beside the rest. */
function changed(dice: Dice): Buffer {
  const bytes = Buffer.from(image)
  const head = HEAD_BYTES + image.readUInt32LE(12)
  const at = dice.chance(0.5) ? dice.whole(0, head - 1) : dice.whole(0, bytes.length - 1)
  bytes[at] = ((bytes[at] ?? 0) + dice.whole(1, 255)) & 255
  return bytes
}

type Tree = Record<string, unknown> | unknown[]

/** Changes one thing in the tree; its name without places in lists. */
function changeField(dice: Dice, tree: Tree): string {
  const key = dice.of(Object.keys(tree))
  const at = tree as Record<string, unknown>
  const value = at[key]
  const name = Array.isArray(tree) ? '*' : key
  if (typeof value === 'object' && value !== null && Object.keys(value).length > 0 && dice.chance(0.9)) return `${name}.${changeField(dice, value as Tree)}`
  if (Array.isArray(tree) && dice.chance(0.3)) {
    if (dice.chance(0.5)) tree.splice(Number(key), 1)
    else tree.push(value)
    return name
  }
  at[key] = typeof value === 'number' ? dice.of([-1, 0, value + 1, value - 1, value * 2, 2 ** 31, 2 ** 53, 1.5, NaN, String(value)])
    : typeof value === 'boolean' ? dice.of([!value, null, 1])
      : typeof value === 'string' ? dice.of(['', `${value}x`, value.slice(1), value.toUpperCase(), null, 7, [value], '\u0000', 'prefilled', '00000000'])
        : dice.of([null, {}, [], 'x', 7])
  return name
}

const manifestOf = (bytes: Buffer): Record<string, unknown> =>
  JSON.parse(bytes.subarray(HEAD_BYTES, HEAD_BYTES + bytes.readUInt32LE(12)).toString()) as Record<string, unknown>

/** The image with another manifest, every digest of which is right. */
function withManifest(manifest: object, of: Buffer = image): Buffer {
  const text = Buffer.from(JSON.stringify(manifest))
  const head = Buffer.from(of.subarray(0, HEAD_BYTES))
  head.writeUInt32LE(text.length, 12)
  head.writeUInt32LE(crc32(text), 16)
  return Buffer.concat([head, text, of.subarray(HEAD_BYTES + of.readUInt32LE(12))])
}

const digestOf = (bytes: Buffer): string => crc32(bytes).toString(16).padStart(8, '0')

// ---------------------------------------------------------------- strangers

/** Whole images that others wrote; and the same with our key in it, where what they hold lies otherwise than ours. */
async function strangers(): Promise<readonly Mutant[]> {
  const own = await tinyModel()
  const shape = join(folder, 'grouped.gguf')
  writeShape(shape, 'grouped')
  const mutants: Mutant[] = []
  const others: readonly (readonly [string, Partial<LlamaOptions>, boolean])[] = [
    ['another model', { modelPath: shape }, true], ['K in q8_0', { kvTypeK: 'q8_0' }, true], ['K in f32', { kvTypeK: 'f32' }, true],
    ['V in bf16', { kvTypeV: 'bf16' }, true], ['flash attention', { flashAttention: true }, true],
    ['weights as they are', { extraBuffers: false }, false], ['two rows', { rowUnit: 2 }, false],
  ]
  for (const [kind, change, lies] of others) {
    const bytes = await written({ modelPath: own, ...change })
    mutants.push({ kind, bytes, digest: digestOf(bytes), mustFail: true })
    if (!lies) continue
    const forged = withManifest({ ...manifestOf(bytes), key: manifestOf(image)['key'] }, bytes)
    mutants.push({ kind: `${kind}, with our key`, bytes: forged, digest: digestOf(forged), mustFail: true })
  }
  return mutants
}

async function written(change: Partial<LlamaOptions> & { readonly modelPath: string }): Promise<Buffer> {
  const llama = Llama.load({ lanes: 3, laneTokens: 512, batchTokens: 64, threads: 1, flashAttention: false, extraBuffers: true, libraryDir: null, ...change })
  try {
    const tokens = 60
    await llama.decode(Array.from({ length: tokens }, (_, position) => ({ token: 65 + position, position, lane: 1, logits: position === tokens - 1 })))
    const path = join(folder, 'stranger')
    const modelDigest = createHash('sha256').update(readFileSync(change.modelPath)).digest('hex')
    await writeImage(path, llama.stateBytes(1), {
      key: imageKey(llama.info, modelDigest), library: llama.info.library, cpuKernel: llama.info.cpuKernel, identity: IDENTITY,
      model: { digest: modelDigest, tokenizer: '', template: '', adapter: '' }, spans: [{ id: 'all', tokens, origin: 'prefilled' }],
    })
    return readFileSync(path)
  } finally {
    llama.dispose()
  }
}

// ---------------------------------------------------------------- calls

interface Begun { readonly start: typeof next; readonly prepared: Uint8Array; readonly matched: number }

async function begun(call: string, messages: readonly object[], records: readonly Uint8Array[]): Promise<Begun> {
  const body = JSON.stringify({
    model: 'm', messages, tools: [], toolChoice: 'none', sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 }, stop: [], maxTokens: 12,
  })
  engine.tell({ kind: 'measure', call, body, records: records.map(() => 'first') }, records)
  const { event, bin } = await engine.next((e) => e.kind === 'measured' && e.call === call)
  assert(event.kind === 'measured')
  return {
    prepared: bin[0] ?? new Uint8Array(), matched: event.matched?.tokens ?? 0,
    start: {
      kind: 'start', call, attempt: 1, epoch: 0, state: 's', body, baseTokens: 0, keepTokens: 0, recomputeTokens: 0, replay: 'exact', forced: [],
      seed: 1, maxTokens: 12, rank: 0, tenant: 't', grantGranules: 1,
    },
  }
}

async function finished(start: typeof next, measured: Uint8Array) {
  const from = engine.heard.length
  engine.tell(start, [measured])
  const { event, bin } = await engine.next((e) => (e.kind === 'finished' || e.kind === 'failed') && e.call === start.call)
  assert(event.kind === 'finished', JSON.stringify(event))
  const tokens: number[] = []
  let content = ''
  for (const { event: each } of engine.heard.slice(from)) {
    if (each.kind !== 'tokens' || each.call !== start.call) continue
    tokens.push(...each.tokens)
    for (const part of each.parts) if (part.kind === 'text') content += part.text
  }
  const spans = event.spans.map(({ tokens: count, origin, digest: id }) => ({ id, tokens: count, origin }))
  return { tokens, content, spans, record: bin[0] ?? new Uint8Array() }
}
