/**
 * Owns the scripted engine's image files: a head of JSON and filler as long as the KV it stands for, so that budgets,
 * digests and damaged files behave as they do with a real engine. The digest is the CRC32 of the whole file.
 */
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import { crc32 } from 'node:zlib'
import type { ImageIdentity, ImageSpan } from '../driver/ports.ts'
import type { Bytes, Tokens } from '../core/units.ts'

const MAGIC = 'ENTRSCRI'
const HEAD_BYTES = 16

interface Head { readonly key: string; readonly identity: ImageIdentity; readonly spans: readonly ImageSpan[] }

/** Why an image was refused. */
export class ScriptedImageError extends Error {
  /** No engine can read it, now or later. */
  readonly sourceLost: boolean

  constructor(message: string, sourceLost: boolean) {
    super(message)
    this.sourceLost = sourceLost
  }
}

/** Written beside `path`, renamed, read back; nothing is left where it throws. */
export async function writeImage(path: string, head: Head, kvBytes: Bytes): Promise<{ bytes: Bytes; digest: string }> {
  const json = Buffer.from(JSON.stringify(head))
  const file = Buffer.alloc(Math.max(kvBytes, HEAD_BYTES + json.length), 0x5a)
  file.write(MAGIC, 0, 'latin1')
  file.writeUInt32LE(json.length, 8)
  file.writeUInt32LE(crc32(json), 12)
  json.copy(file, HEAD_BYTES)
  const digest = digestOf(file)
  try {
    await writeFile(`${path}.part`, file, { mode: 0o600 })
    await rename(`${path}.part`, path)
    if (digestOf(await readFile(path)) !== digest) throw new Error('the image was read back and has another digest')
  } catch (error) {
    await Promise.all([rm(`${path}.part`, { force: true }), rm(path, { force: true })])
    throw error
  }
  return { bytes: file.length, digest }
}

interface ExpectedImage { readonly key: string; readonly digest: string; readonly identity: ImageIdentity }

/** Throws ScriptedImageError where the file is not the image that is wanted. */
export async function readImage(path: string, expected: ExpectedImage): Promise<{ tokens: Tokens; bytes: Bytes }> {
  const file = await readFile(path).catch((error: unknown) => {
    const why = error instanceof Error ? error.message : String(error)
    throw new ScriptedImageError(`the image cannot be read: ${why}`, true)
  })
  if (digestOf(file) !== expected.digest) {
    throw new ScriptedImageError('the image has another digest than was recorded', true)
  }
  const { key, identity, spans } = readHead(file)
  if (key !== expected.key) {
    throw new ScriptedImageError(`the image was made by ${key}, and ${expected.key} reads it`, false)
  }
  if (identity.tenant !== expected.identity.tenant) {
    throw new ScriptedImageError('the image belongs to another tenant', true)
  }
  if (identity.state !== expected.identity.state) {
    throw new ScriptedImageError(`the image holds ${identity.state}, not ${expected.identity.state}`, true)
  }
  return { tokens: spans.reduce((sum, { tokens }) => sum + tokens, 0), bytes: file.length }
}

function readHead(file: Buffer): Head {
  const end = file.length < HEAD_BYTES ? -1 : HEAD_BYTES + file.readUInt32LE(8)
  const json = file.subarray(HEAD_BYTES, end)
  const isWhole = end >= 0 && end <= file.length && file.toString('latin1', 0, 8) === MAGIC
  if (!isWhole || crc32(json) !== file.readUInt32LE(12)) {
    throw new ScriptedImageError('the file is no image of a scripted engine', true)
  }
  // Its digest held, so it is what `writeImage` wrote.
  return JSON.parse(json.toString('utf8')) as Head
}

const digestOf = (bytes: Buffer): string => crc32(bytes).toString(16).padStart(8, '0')
