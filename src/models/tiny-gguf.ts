/**
 * Owns the tiny model: a GGUF file of the llama architecture with random weights, written here from a seed, the same
 * bytes every time. Its text is gibberish; the transformer, its KV and its tokenizer are real.
 *
 * Tokens 0 to 255 are the bytes, so any text becomes its UTF-8 and comes back; six special tokens follow. Weights are
 * Q8_0, because there the company in a batch changes no bit of a logit (F16 and F32 need two rows in every batch).
 * Only sums, products and roundings make the weights: no function whose last bit a platform may choose.
 */
import { writeFileSync } from 'node:fs'
import { F32, ggufFile, Q8_0, quantised, type Tensor, type Value } from './gguf-writer.ts'

const LAYERS = 4
const WIDTH = 128
const HEADS = 4
const KV_HEADS = 2
const HEAD_WIDTH = WIDTH / HEADS
const FEED_FORWARD = 384

/** Control tokens, after the bytes; eight, because the fast matrix kernels want rows in multiples of eight. */
const SPECIAL = [
  '<|endoftext|>', '<|im_start|>', '<|im_end|>', '<|pad|>',
  '<|reserved_0|>', '<|reserved_1|>', '<|reserved_2|>', '<|reserved_3|>',
] as const

const special = (name: (typeof SPECIAL)[number]): number => 256 + SPECIAL.indexOf(name)

export const TINY_MODEL = {
  name: 'entracte-tiny',
  layers: LAYERS,
  width: WIDTH,
  kvHeads: KV_HEADS,
  headWidth: HEAD_WIDTH,
  vocabulary: 256 + SPECIAL.length,
  contextTokens: 32_768,
  bytes: 919_264,
  /** SHA-256 of the file; a change of one weight is a change of the model. */
  digest: '26b101ada35cc56868209e18923e2a443236774861416ab87da6f487584f0148',
  bos: special('<|endoftext|>'),
  turnStart: special('<|im_start|>'),
  eos: special('<|im_end|>'),
} as const

const CHAT_TEMPLATE = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
  + "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

/** Writes the model to `path`, over what is there; with another chat template it is another model of the same weights. */
export function writeTinyGguf(path: string, chatTemplate = CHAT_TEMPLATE): void {
  writeFileSync(path, ggufFile(metadata(chatTemplate), weights()))
}

// ---------------------------------------------------------------- metadata

const u32 = (value: number): Value => ({ kind: 'u32', value })
const text = (value: string): Value => ({ kind: 'text', value })

function metadata(chatTemplate: string): readonly (readonly [string, Value])[] {
  return [
    ['general.architecture', text('llama')],
    ['general.name', text(TINY_MODEL.name)],
    ['general.license', text('apache-2.0')],
    ['general.file_type', u32(7)],
    ['general.quantization_version', u32(2)],
    ['llama.block_count', u32(LAYERS)],
    ['llama.context_length', u32(TINY_MODEL.contextTokens)],
    ['llama.embedding_length', u32(WIDTH)],
    ['llama.feed_forward_length', u32(FEED_FORWARD)],
    ['llama.attention.head_count', u32(HEADS)],
    ['llama.attention.head_count_kv', u32(KV_HEADS)],
    ['llama.attention.layer_norm_rms_epsilon', { kind: 'f32', value: 1e-5 }],
    ['llama.rope.dimension_count', u32(HEAD_WIDTH)],
    ['llama.rope.freq_base', { kind: 'f32', value: 10_000 }],
    ['llama.vocab_size', u32(TINY_MODEL.vocabulary)],
    ...tokenizer(),
    ['tokenizer.chat_template', text(chatTemplate)],
  ]
}

/** Bytes as tokens, and the special ones. */
export function tokenizer(): readonly (readonly [string, Value])[] {
  const ordinary = 1
  const control = 3
  return [
    ['tokenizer.ggml.model', text('gpt2')],
    ['tokenizer.ggml.pre', text('gpt-2')],
    ['tokenizer.ggml.tokens', { kind: 'texts', value: [...byteAlphabet(), ...SPECIAL] }],
    ['tokenizer.ggml.token_type', {
      kind: 'i32s', value: [...Array<number>(256).fill(ordinary), ...SPECIAL.map(() => control)],
    }],
    ['tokenizer.ggml.merges', { kind: 'texts', value: [] }],
    ['tokenizer.ggml.bos_token_id', u32(TINY_MODEL.bos)],
    ['tokenizer.ggml.eos_token_id', u32(TINY_MODEL.eos)],
    ['tokenizer.ggml.padding_token_id', u32(special('<|pad|>'))],
    ['tokenizer.ggml.add_bos_token', { kind: 'bool', value: false }],
  ]
}

/** GPT-2's printable name of each byte: itself where it prints, else a letter from U+0100 on. */
function byteAlphabet(): readonly string[] {
  let next = 0x100
  return Array.from({ length: 256 }, (_, byte) => {
    const prints = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae
    return String.fromCodePoint(prints ? byte : next++)
  })
}

// ---------------------------------------------------------------- weights

/**
 * Two dimensions of the residual stream are written by the embedding alone and never by a layer, so they reach the
 * output unmixed: STEADY is the same for every token, which makes a column of the output matrix a bias; LEAD is set
 * by the first byte of a two-byte character, so that its second byte comes next.
 */
const STEADY = 0
const LEAD = 1
const STEADY_SIZE = 8

/** Found by trying: greedy text wanders, and sampled text at temperature 1 is diverse and ends now and then. */
const SCALE = { embedding: 0.5, query: 0.35, value: 0.12, attentionOut: 0.25, gate: 0.1, down: 0.06, output: 0.25 }

function weights(): readonly Tensor[] {
  const random = new Random(0x0e17_ac7e)
  const tensors: Tensor[] = []
  const matrix = (name: string, columns: number, rows: number, at: (row: number, column: number) => number): void => {
    tensors.push({ name: `${name}.weight`, shape: [columns, rows], type: Q8_0, data: quantised(columns, rows, at) })
  }
  const reads = (scale: number) => (_: number, column: number): number => isApart(column) ? 0 : scale * random.bell()
  const writes = (scale: number) => (row: number): number => isApart(row) ? 0 : scale * random.bell()
  const ones = (name: string): void => {
    const data = Buffer.alloc(WIDTH * 4)
    for (let at = 0; at < WIDTH; at++) data.writeFloatLE(1, at * 4)
    tensors.push({ name: `${name}.weight`, shape: [WIDTH], type: F32, data })
  }

  matrix('token_embd', WIDTH, TINY_MODEL.vocabulary, (token, column) => {
    if (column === STEADY) return STEADY_SIZE
    if (column === LEAD) return isLead(token) ? STEADY_SIZE : 0
    return SCALE.embedding * random.bell()
  })
  ones('output_norm')
  matrix('output', WIDTH, TINY_MODEL.vocabulary, (token, column) => {
    if (column === STEADY) return bias(token)
    if (column === LEAD) return isTrail(token) ? 12 : -12
    return isControl(token) && token !== TINY_MODEL.eos ? 0 : SCALE.output * random.bell()
  })
  for (let layer = 0; layer < LAYERS; layer++) {
    const at = `blk.${layer}`
    ones(`${at}.attn_norm`)
    matrix(`${at}.attn_q`, WIDTH, WIDTH, reads(SCALE.query))
    matrix(`${at}.attn_k`, WIDTH, KV_HEADS * HEAD_WIDTH, reads(SCALE.query))
    matrix(`${at}.attn_v`, WIDTH, KV_HEADS * HEAD_WIDTH, reads(SCALE.value))
    matrix(`${at}.attn_output`, WIDTH, WIDTH, writes(SCALE.attentionOut))
    ones(`${at}.ffn_norm`)
    matrix(`${at}.ffn_gate`, WIDTH, FEED_FORWARD, reads(SCALE.gate))
    matrix(`${at}.ffn_up`, WIDTH, FEED_FORWARD, reads(SCALE.gate))
    matrix(`${at}.ffn_down`, FEED_FORWARD, WIDTH, writes(SCALE.down))
  }
  return tensors
}

const isApart = (dimension: number): boolean => dimension === STEADY || dimension === LEAD
const isControl = (token: number): boolean => token >= 256
const isLead = (token: number): boolean => token >= 0xc3 && token <= 0xca
const isTrail = (token: number): boolean => token >= 0x80 && token <= 0xbf

/** How much a token is wanted whatever came before, in the output's STEADY column. */
function bias(token: number): number {
  const character = isControl(token) ? '' : String.fromCharCode(token)
  if (token === TINY_MODEL.eos) return -0.6
  if (character === ' ') return 1.2
  if (/[aeiou]/.test(character)) return 0.6
  if (/[a-z]/.test(character)) return 0.3
  if (/[A-Z0-9.,?!'"-]/.test(character) || isLead(token)) return -0.5
  if (/[\n -~]/.test(character)) return -1
  return -12
}

/** Mulberry32, and a bell of four throws with mean 0 and deviation 1. */
export class Random {
  #state: number

  constructor(seed: number) {
    this.#state = seed
  }

  bell(): number {
    // A throw has variance 1/12, four of them 1/3.
    return (this.#unit() + this.#unit() + this.#unit() + this.#unit() - 2) * 1.7320508
  }

  #unit(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
