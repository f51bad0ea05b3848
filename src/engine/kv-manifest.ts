/**
 * Owns what an image says about itself: the manifest's fields, their text and their check. Leaves the file to
 * `kv-image.ts`. Fields are only ever added; a reader ignores those it does not know.
 */
import type { WireIdentity, WireSpan } from '../protocol/engine.ts'
import { attentionName } from './llama/attention.ts'
import { tokenBytes } from './llama/blob.ts'
import type { BlobForm, PlaneForm } from './llama/blob.ts'
import type { LlamaInfo } from './llama/llama.ts'

type ImageFailure = 'missing' | 'truncated' | 'digest' | 'identity' | 'format' | 'version' | 'unwritable'

/** An image that is not there, not whole, not ours, or not to be written. Refusal means recompute, never a guess. */
export class ImageError extends Error {
  readonly reason: ImageFailure

  constructor(reason: ImageFailure, message: string) {
    super(message)
    this.name = 'ImageError'
    this.reason = reason
  }
}

/** Digests of what made the tokens; an empty one is unknown. */
interface ImageModel {
  readonly digest: string
  readonly tokenizer: string
  readonly template: string
  readonly adapter: string
}

/** What the writer knows of a State besides its bytes. */
export interface ImageAbout {
  /** Equal keys can read each other's images (`imageKey`). */
  readonly key: string
  readonly model: ImageModel
  readonly library: string
  readonly cpuKernel: string
  readonly identity: WireIdentity
  /** In order; together they are the whole State. The last may be a private tail. */
  readonly spans: readonly WireSpan[]
}

interface ImageChunk extends WireSpan {
  /** Of the span's first token. */
  readonly position: number
  readonly bytes: number
  /** Eight hex digits. */
  readonly crc32: string
}

export interface ImageManifest extends Omit<ImageAbout, 'spans'> {
  readonly tokens: number
  readonly form: BlobForm
  readonly chunks: readonly ImageChunk[]
}

/** Spans of one State; a longer list is no State of ours. */
const CHUNKS_MAX = 65_536
const LAYERS_MAX = 1_024
const TOKENS_MAX = 1 << 24
/** Of a plane's rows, and of the bytes of one token in one row. */
const PLANE_MAX = 1 << 20

/**
 * What must be equal for one engine to continue a State that another fed: weights and how they are held, the code that
 * computes, and the layout of the KV. The number of lanes, threads and rows in a batch is not among it (E1).
 */
export function imageKey(info: LlamaInfo, modelDigest: string): string {
  return ['kv1', modelDigest, info.library, info.cpuKernel, attentionName(info.flashAttention),
    info.extraBuffers ? 'repacked' : 'plain', info.kvLayout, ...(info.gpu === null ? [] : [info.gpu]),
    ...(info.rowUnit === 1 ? [] : [`rows${info.rowUnit}`])].join('/')
}

export const hex32 = (value: number): string => value.toString(16).padStart(8, '0')

/** One span's chunk and its place; digests are filled in once the bytes are known, without changing the length. */
export function planManifest(about: ImageAbout, form: BlobForm, crcs: readonly number[] | null): ImageManifest {
  const { spans, ...rest } = about
  const perToken = tokenBytes(form)
  let position = 0
  const chunks = spans.map(({ id, tokens, origin }, index): ImageChunk => {
    const chunk = { id, tokens, origin, position, bytes: tokens * perToken, crc32: hex32(crcs?.[index] ?? 0) }
    position += tokens
    return chunk
  })
  return { ...rest, tokens: position, form, chunks }
}

export function writeManifest(manifest: ImageManifest): Buffer {
  const { key, model, library, cpuKernel, identity, tokens, form, chunks } = manifest
  return Buffer.from(JSON.stringify({
    key,
    model: { digest: model.digest, tokenizer: model.tokenizer, template: model.template, adapter: model.adapter },
    library,
    cpuKernel,
    identity: {
      tenant: identity.tenant, state: identity.state, owner: identity.owner,
      epoch: identity.epoch, reign: identity.reign,
    },
    tokens,
    form: { transposed: form.transposed, keys: form.keys.map(planeText), values: form.values.map(planeText) },
    chunks: chunks.map(({ id, tokens: count, origin, position, bytes, crc32 }) => (
      { id, tokens: count, origin, position, bytes, crc32 })),
  }), 'utf8')
}

const planeText = (plane: PlaneForm): readonly number[] => [plane.type, plane.cellBytes, plane.rows]

/** Throws ImageError('format') for what no writer of version 1 writes. */
export function readManifest(bytes: Buffer): ImageManifest {
  const root = record(parse(bytes), 'manifest')
  const model = record(root['model'], 'model')
  const identity = record(root['identity'], 'identity')
  const form = readForm(record(root['form'], 'form'))
  const tokens = count(root['tokens'], 'tokens', TOKENS_MAX)
  const chunks = list(root['chunks'], 'chunks', CHUNKS_MAX).map(readChunk)
  checkChunks(chunks, tokens, tokenBytes(form))
  return {
    key: text(root['key'], 'key'),
    model: {
      digest: text(model['digest'], 'model.digest'), tokenizer: text(model['tokenizer'], 'model.tokenizer'),
      template: text(model['template'], 'model.template'), adapter: text(model['adapter'], 'model.adapter'),
    },
    library: text(root['library'], 'library'),
    cpuKernel: text(root['cpuKernel'], 'cpuKernel'),
    identity: {
      tenant: text(identity['tenant'], 'tenant'), state: text(identity['state'], 'state'),
      owner: text(identity['owner'], 'owner'), epoch: count(identity['epoch'], 'epoch', Number.MAX_SAFE_INTEGER),
      reign: count(identity['reign'], 'reign', Number.MAX_SAFE_INTEGER),
    },
    tokens,
    form,
    chunks,
  }
}

function readForm(form: Record<string, unknown>): BlobForm {
  const keys = list(form['keys'], 'form.keys', LAYERS_MAX).map(readPlane)
  const values = list(form['values'], 'form.values', LAYERS_MAX).map(readPlane)
  const transposed = form['transposed']
  if (typeof transposed !== 'boolean' || keys.length === 0 || keys.length !== values.length) throw odd('form')
  const rows = transposed ? keys : [...keys, ...values]
  if (rows.some((plane) => plane.rows !== 1)) throw odd('form')
  return { transposed, keys, values }
}

function readPlane(value: unknown): PlaneForm {
  const [type, cellBytes, rows, ...more] = list(value, 'plane', 3)
  if (more.length > 0) throw odd('plane')
  return {
    type: count(type, 'plane', 255),
    cellBytes: count(cellBytes, 'plane', PLANE_MAX),
    rows: count(rows, 'plane', PLANE_MAX),
  }
}

function readChunk(value: unknown): ImageChunk {
  const chunk = record(value, 'chunk')
  const { origin, crc32 } = chunk
  if (origin !== 'prefilled' && origin !== 'decoded') throw odd('origin')
  if (typeof crc32 !== 'string' || !/^[0-9a-f]{8}$/.test(crc32)) throw odd('crc32')
  return {
    id: text(chunk['id'], 'id'), tokens: count(chunk['tokens'], 'tokens', TOKENS_MAX), origin,
    position: count(chunk['position'], 'position', TOKENS_MAX),
    bytes: count(chunk['bytes'], 'bytes', Number.MAX_SAFE_INTEGER), crc32,
  }
}

function checkChunks(chunks: readonly ImageChunk[], tokens: number, perToken: number): void {
  let position = 0
  for (const chunk of chunks) {
    const whole = chunk.tokens > 0 && chunk.position === position && chunk.bytes === chunk.tokens * perToken
    if (!whole) throw odd('chunks')
    position += chunk.tokens
  }
  if (position !== tokens || tokens === 0) throw odd('tokens')
}

const odd = (what: string): ImageError => new ImageError('format', `the image's manifest is not well formed: ${what}`)

function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch (error) {
    throw new ImageError('format', `the image's manifest is no JSON: ${String(error)}`)
  }
}

function record(value: unknown, what: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw odd(what)
  return value as Record<string, unknown>
}

function list(value: unknown, what: string, max: number): readonly unknown[] {
  if (!Array.isArray(value) || value.length > max) throw odd(what)
  return value
}

function text(value: unknown, what: string): string {
  if (typeof value !== 'string') throw odd(what)
  return value
}

function count(value: unknown, what: string, max: number): number {
  if (typeof value !== 'number' || !Number.isInteger(value) || value < 0 || value > max) throw odd(what)
  return value
}
