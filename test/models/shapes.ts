/**
 * Tiny models of other families than the tiny model's own, with random weights: what they say means nothing, how their
 * State is kept is real.
 */
import { writeFileSync } from 'node:fs'
import { F32, ggufFile, Q8_0, quantised, type Tensor, type Value } from '../../src/models/gguf-writer.ts'
import { Random, TINY_MODEL, tokenizer } from '../../src/models/tiny-gguf.ts'

const WIDTH = 64
const HEADS = 4
const HEAD_WIDTH = WIDTH / HEADS
const FEED_FORWARD = 128
const LAYERS = 3
const INNER = 2 * WIDTH
const STATE = 16
const RANK = 32
const KERNEL = 4

/** `places`: positions of more than one number a token. */
export type Shape = 'dense' | 'grouped' | 'window' | 'places' | 'recurrent' | 'hybrid'
export const SHAPES: readonly Shape[] = ['dense', 'grouped', 'window', 'places', 'recurrent', 'hybrid']

type Pairs = readonly (readonly [string, Value])[]

class Weights {
  readonly tensors: Tensor[] = []
  readonly #random = new Random(7)

  matrix(name: string, columns: number, rows: number, scale = 0.2): void {
    this.tensors.push({ name, shape: [columns, rows], type: Q8_0, data: quantised(columns, rows, () => scale * this.#random.bell()) })
  }

  /** In full precision; of one dimension where `rows` is left out. */
  floats(name: string, at: () => number, columns: number, rows?: number): void {
    const data = Buffer.alloc(columns * (rows ?? 1) * 4)
    for (let index = 0; index < data.length; index += 4) data.writeFloatLE(at(), index)
    this.tensors.push({ name, shape: rows === undefined ? [columns] : [columns, rows], type: F32, data })
  }

  ones(name: string, columns = WIDTH): void {
    this.floats(name, () => 1, columns)
  }

  random(): number {
    return this.#random.bell()
  }
}

export function writeShape(path: string, shape: Shape, more: Pairs = []): void {
  writeFileSync(path, shapeFile(shape, more))
}

export function shapeFile(shape: Shape, more: Pairs = []): Buffer {
  const weights = new Weights()
  weights.matrix('token_embd.weight', WIDTH, TINY_MODEL.vocabulary, 1)
  const kvHeads = shape === 'dense' ? HEADS : 2
  for (let layer = 0; layer < LAYERS; layer++) {
    const at = `blk.${layer}`
    const isRecurrent = shape === 'recurrent' || (shape === 'hybrid' && layer !== 1)
    weights.ones(`${at}.attn_norm.weight`)
    if (shape === 'recurrent') mamba(weights, at)
    else if (isRecurrent) shortConvolution(weights, at)
    else attention(weights, at, kvHeads, shape)
    if (shape !== 'recurrent') feedForward(weights, at, shape)
  }
  weights.ones(shape === 'hybrid' ? 'token_embd_norm.weight' : 'output_norm.weight')
  const kinds = new Map([...headOf(shape, kvHeads), ...tokenizer(), ...more])
  return ggufFile([...kinds], weights.tensors)
}

function attention(weights: Weights, at: string, kvHeads: number, shape: Shape): void {
  weights.matrix(`${at}.attn_q.weight`, WIDTH, WIDTH)
  weights.matrix(`${at}.attn_k.weight`, WIDTH, kvHeads * HEAD_WIDTH)
  weights.matrix(`${at}.attn_v.weight`, WIDTH, kvHeads * HEAD_WIDTH)
  weights.matrix(`${at}.attn_output.weight`, WIDTH, WIDTH)
  if (shape === 'window') weights.ones(`${at}.post_attention_norm.weight`)
  if (shape === 'places') {
    weights.floats(`${at}.attn_q.bias`, () => 0.01, WIDTH)
    for (const part of ['k', 'v']) weights.floats(`${at}.attn_${part}.bias`, () => 0.01, kvHeads * HEAD_WIDTH)
  }
  if (shape !== 'hybrid') return
  weights.ones(`${at}.attn_q_norm.weight`, HEAD_WIDTH)
  weights.ones(`${at}.attn_k_norm.weight`, HEAD_WIDTH)
}

function feedForward(weights: Weights, at: string, shape: Shape): void {
  weights.ones(`${at}.ffn_norm.weight`)
  weights.matrix(`${at}.ffn_gate.weight`, WIDTH, FEED_FORWARD)
  weights.matrix(`${at}.ffn_up.weight`, WIDTH, FEED_FORWARD)
  weights.matrix(`${at}.ffn_down.weight`, FEED_FORWARD, WIDTH)
  if (shape === 'window') weights.ones(`${at}.post_ffw_norm.weight`)
}

function mamba(weights: Weights, at: string): void {
  weights.matrix(`${at}.ssm_in.weight`, WIDTH, 2 * INNER)
  weights.floats(`${at}.ssm_conv1d.weight`, () => 0.3 * weights.random(), KERNEL, INNER)
  weights.floats(`${at}.ssm_conv1d.bias`, () => 0, INNER)
  weights.matrix(`${at}.ssm_x.weight`, INNER, RANK + 2 * STATE)
  weights.matrix(`${at}.ssm_dt.weight`, RANK, INNER)
  weights.floats(`${at}.ssm_dt.bias`, () => 0.1, INNER)
  weights.floats(`${at}.ssm_a`, () => -1, STATE, INNER)
  weights.ones(`${at}.ssm_d`, INNER)
  weights.matrix(`${at}.ssm_out.weight`, INNER, WIDTH)
}

function shortConvolution(weights: Weights, at: string): void {
  weights.floats(`${at}.shortconv.conv.weight`, () => 0.3 * weights.random(), KERNEL - 1, WIDTH)
  weights.matrix(`${at}.shortconv.in_proj.weight`, WIDTH, 3 * WIDTH)
  weights.matrix(`${at}.shortconv.out_proj.weight`, WIDTH, WIDTH)
}

const ARCHITECTURES: Readonly<Record<Shape, string>> = {
  dense: 'llama', grouped: 'llama', window: 'gemma2', places: 'qwen2vl', recurrent: 'mamba', hybrid: 'lfm2',
}

function headOf(shape: Shape, kvHeads: number): Pairs {
  const architecture = ARCHITECTURES[shape]
  const u32 = (key: string, value: number) => [`${architecture}.${key}`, { kind: 'u32', value }] as const
  const perLayer = { kind: 'i32s', value: Array.from({ length: LAYERS }, (_, layer) => layer === 1 ? kvHeads : 0) } as const
  return [
    ['general.architecture', { kind: 'text', value: architecture }],
    u32('block_count', LAYERS), u32('context_length', 4_096), u32('embedding_length', WIDTH), u32('feed_forward_length', shape === 'recurrent' ? 0 : FEED_FORWARD),
    u32('attention.head_count', shape === 'recurrent' ? 0 : HEADS),
    shape === 'hybrid' ? [`${architecture}.attention.head_count_kv`, perLayer] : u32('attention.head_count_kv', shape === 'recurrent' ? 0 : kvHeads),
    [`${architecture}.attention.layer_norm_rms_epsilon`, { kind: 'f32', value: 1e-5 }],
    [`${architecture}.rope.freq_base`, { kind: 'f32', value: 10_000 }],
    u32('vocab_size', TINY_MODEL.vocabulary),
    ...(shape === 'window' ? [u32('attention.sliding_window', 32), u32('attention.key_length', HEAD_WIDTH), u32('attention.value_length', HEAD_WIDTH)] : []),
    ...(shape === 'recurrent' ? [u32('ssm.conv_kernel', KERNEL), u32('ssm.inner_size', INNER), u32('ssm.state_size', STATE), u32('ssm.time_step_rank', RANK)] : []),
    ...(shape === 'places' ? [[`${architecture}.rope.dimension_sections`, { kind: 'i32s', value: [2, 3, 3, 0] }] as const] : []),
    ...(shape === 'hybrid' ? [u32('shortconv.l_cache', KERNEL - 1)] : []),
  ]
}
