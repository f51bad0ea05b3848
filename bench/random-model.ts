/**
 * Owns the larger model that speeds are measured on: 0.6 thousand million random weights in the shape of a Llama, in
 * the format of the default model, written once into the cache. Its text is noise; what a token costs is real.
 */
import { createCipheriv } from 'node:crypto'
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { cacheDirectory, openCache, publish } from '../src/models/cache.ts'
import { F32, ggufFile, Q4_1, type Tensor, type Value } from '../src/models/gguf-writer.ts'
import { TINY_MODEL, tokenizer } from '../src/models/tiny-gguf.ts'

const NAME = 'random-0.6b'
const LAYERS = 24
const WIDTH = 1_536
const HEADS = 12
const KV_HEADS = 4
const HEAD_WIDTH = WIDTH / HEADS
const FEED_FORWARD = 4_096
const CONTEXT_TOKENS = 4_096

/** A block of Q4_1: two halves, scale and least, then 32 values of four bits. */
const BLOCK_VALUES = 32
const BLOCK_WORDS = 5
/** Scale 2^-8 and least -7.5 * 2^-8, so that the mean is zero and the deviation 0.018. */
const BLOCK_HEAD = 0xa7801c00

/** Its path; the file is written where it is not there, which takes some seconds and 380 MB. */
export async function randomModel(): Promise<string> {
  const folder = cacheDirectory(process.env)
  await openCache(folder)
  const path = join(folder, `${NAME}.gguf`)
  if (!existsSync(path)) await publish(path, null, (file) => writeFile(file, ggufFile(metadata(), weights())))
  return path
}

const u32 = (value: number): Value => ({ kind: 'u32', value })

const metadata = (): readonly (readonly [string, Value])[] => [
  ['general.architecture', { kind: 'text', value: 'llama' }],
  ['general.name', { kind: 'text', value: NAME }],
  ['general.file_type', u32(Q4_1)],
  ['general.quantization_version', u32(2)],
  ['llama.block_count', u32(LAYERS)],
  ['llama.context_length', u32(CONTEXT_TOKENS)],
  ['llama.embedding_length', u32(WIDTH)],
  ['llama.feed_forward_length', u32(FEED_FORWARD)],
  ['llama.attention.head_count', u32(HEADS)],
  ['llama.attention.head_count_kv', u32(KV_HEADS)],
  ['llama.attention.layer_norm_rms_epsilon', { kind: 'f32', value: 1e-5 }],
  ['llama.rope.dimension_count', u32(HEAD_WIDTH)],
  ['llama.rope.freq_base', { kind: 'f32', value: 10_000 }],
  ['llama.vocab_size', u32(TINY_MODEL.vocabulary)],
  ...tokenizer(),
]

function weights(): readonly Tensor[] {
  const noise = createCipheriv('aes-128-ctr', Buffer.alloc(16), Buffer.alloc(16))
  const matrix = (name: string, columns: number, rows: number): Tensor => {
    const words = new Uint32Array((columns * rows / BLOCK_VALUES) * BLOCK_WORDS)
    const bytes = Buffer.from(words.buffer)
    noise.update(bytes).copy(bytes)
    for (let at = 0; at < words.length; at += BLOCK_WORDS) words[at] = BLOCK_HEAD
    return { name: `${name}.weight`, shape: [columns, rows], type: Q4_1, data: bytes }
  }
  const ones = (name: string): Tensor =>
    ({ name: `${name}.weight`, shape: [WIDTH], type: F32, data: Buffer.from(new Float32Array(WIDTH).fill(1).buffer) })
  const layers = Array.from({ length: LAYERS }, (_, layer) => {
    const of = (part: string): string => `blk.${layer}.${part}`
    return [
      ones(of('attn_norm')), matrix(of('attn_q'), WIDTH, WIDTH), matrix(of('attn_k'), WIDTH, KV_HEADS * HEAD_WIDTH),
      matrix(of('attn_v'), WIDTH, KV_HEADS * HEAD_WIDTH), matrix(of('attn_output'), WIDTH, WIDTH),
      ones(of('ffn_norm')), matrix(of('ffn_gate'), WIDTH, FEED_FORWARD), matrix(of('ffn_up'), WIDTH, FEED_FORWARD),
      matrix(of('ffn_down'), FEED_FORWARD, WIDTH),
    ]
  })
  return [matrix('token_embd', WIDTH, TINY_MODEL.vocabulary), ones('output_norm'), ...layers.flat()]
}
