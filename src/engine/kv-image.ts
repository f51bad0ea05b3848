/**
 * Owns the file that a State waits in: format version 1, durable, with golden files in `test/golden`. Takes the
 * library's blob of one sequence apart by span and puts it together again for any number of lanes. Leaves where files
 * are, their budget and their names to the control plane, and the form of a blob to `llama/blob.ts`.
 *
 *   bytes   what
 *   8       `ENTRKVIM`
 *   4       format version, u32 little-endian, as all numbers here
 *   4       length of the manifest
 *   4       CRC32 of the manifest
 *   ...     manifest: JSON, UTF-8
 *   ...     one chunk a span, in order: for each plane (K by layer, then V by layer) its rows, cut to the span's tokens
 *
 * I1 what comes back is byte for byte what went in, or an ImageError: every byte of the file is under a CRC32.
 * I2 a chunk does not depend on where its span lies in the State: an equal span has an equal chunk.
 * I3 a file under its final name was read back after it was written, and had the digest that is reported.
 * I4 the digest is the CRC32 of the whole file in eight hex digits: anybody can check a file without its format.
 */
import { open, rename, rm } from 'node:fs/promises'
import type { FileHandle } from 'node:fs/promises'
import { crc32 } from 'node:zlib'
import { PARTIAL_SUFFIX } from '../protocol/engine.ts'
import type { WireIdentity } from '../protocol/engine.ts'
import { joinCrc } from './crc-join.ts'
import { ImageError, hex32, planManifest, readManifest, writeManifest } from './kv-manifest.ts'
import type { ImageAbout, ImageManifest } from './kv-manifest.ts'
import { emptyBlob, parseBlob, pieces, putPiece, takePiece } from './llama/blob.ts'
import type { Blob, Piece } from './llama/blob.ts'
import { LlamaError } from './llama/error.ts'

export { ImageError, imageKey } from './kv-manifest.ts'
export type { ImageAbout } from './kv-manifest.ts'

const IMAGE_VERSION = 1

const MAGIC = Buffer.from('ENTRKVIM', 'latin1')
const HEAD_BYTES = 20
/** Room for tens of thousands of spans. */
const MANIFEST_BYTES_MAX = 16 * 1024 * 1024
/** Goes through one buffer before other work gets a turn: under 4 ms. */
const PIECE_BYTES = 4 * 1024 * 1024
/** The owner alone reads what a program said. */
const FILE_MODE = 0o600

/** What a reader knows of the image it wants. */
interface ImageExpected {
  readonly key: string
  readonly digest: string
  readonly identity: WireIdentity
}

/**
 * Writes beside `path`, reads back, renames. The spans must be all that the blob holds. Nothing is left where it
 * throws.
 */
export async function writeImage(
  path: string, blob: Uint8Array, about: ImageAbout,
): Promise<{ readonly bytes: number; readonly digest: string; readonly manifest: ImageManifest }> {
  const source = Buffer.from(blob.buffer, blob.byteOffset, blob.byteLength)
  const parsed = parsedBlob(source)
  const plan = planManifest(about, parsed.form, null)
  if (plan.tokens !== parsed.tokens) {
    throw new ImageError('format', `the spans have ${plan.tokens} tokens and the State ${parsed.tokens}`)
  }
  const partial = `${path}${PARTIAL_SUFFIX}`
  try {
    const manifest = await written(partial, source, plan, about)
    const digest = digestOf(head(manifest), manifest)
    await verify(partial, digest, parsed)
    await rename(partial, path)
    return { bytes: fileBytes(manifest), digest, manifest }
  } catch (error) {
    await rm(partial, { force: true })
    throw isSystem(error) ? new ImageError('unwritable', `the image ${path} cannot be written: ${say(error)}`) : error
  }
}

/** Checks everything, then gives the blob for a context of `lanes` lanes. */
export async function readImage(
  path: string, expected: ImageExpected, lanes: number,
): Promise<{ readonly blob: Uint8Array; readonly manifest: ImageManifest }> {
  return await withFile(path, async (file) => {
    const { manifest, headBytes, digest } = await readHead(file)
    checkIdentity(manifest, expected)
    if (digest !== expected.digest) {
      throw new ImageError('digest', `the image ${path} has the digest ${digest}, not ${expected.digest}`)
    }
    const { bytes, blob } = emptyBlob(manifest.form, manifest.tokens, lanes)
    await readChunks(file, manifest, headBytes, blob, (piece, position, tokens, data) => {
      putPiece(bytes, blob, piece, position, tokens, data)
    })
    return { blob: bytes, manifest }
  })
}

// ---------------------------------------------------------------- writing

/** The manifest's length is known before its digests are, so the chunks go first and are touched once. */
async function written(path: string, source: Buffer, plan: ImageManifest, about: ImageAbout): Promise<ImageManifest> {
  const blob = parseBlob(source)
  const file = await open(path, 'w', FILE_MODE)
  try {
    const crcs: number[] = []
    const buffer = pieceBuffer(blob, plan)
    let at = head(plan).length
    for (const { position, tokens } of plan.chunks) {
      let crc = 0
      for (const piece of pieces(blob, tokens, PIECE_BYTES)) {
        const data = buffer.subarray(0, piece.bytes)
        takePiece(source, blob, piece, position, tokens, data)
        crc = crc32(data, crc)
        await writeAll(file, data, at)
        at += piece.bytes
      }
      crcs.push(crc)
    }
    const manifest = planManifest(about, blob.form, crcs)
    await writeAll(file, head(manifest), 0)
    return manifest
  } finally {
    await file.close()
  }
}

function parsedBlob(source: Buffer): Blob {
  try {
    return parseBlob(source)
  } catch (error) {
    if (!(error instanceof LlamaError)) throw error
    throw new ImageError('format', `the State is not laid out as expected: ${error.message}`)
  }
}

function head(manifest: ImageManifest): Buffer {
  const text = writeManifest(manifest)
  if (text.length > MANIFEST_BYTES_MAX) {
    throw new ImageError('format', `a manifest of ${text.length} bytes: at most ${MANIFEST_BYTES_MAX} are read`)
  }
  const numbers = Buffer.alloc(HEAD_BYTES - MAGIC.length)
  numbers.writeUInt32LE(IMAGE_VERSION, 0)
  numbers.writeUInt32LE(text.length, 4)
  numbers.writeUInt32LE(crc32(text), 8)
  return Buffer.concat([MAGIC, numbers, text])
}

async function writeAll(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
  let done = 0
  while (done < bytes.length) {
    const { bytesWritten } = await file.write(bytes, done, bytes.length - done, position + done)
    if (bytesWritten === 0) throw new ImageError('unwritable', `no byte after ${position + done} could be written`)
    done += bytesWritten
  }
}

async function verify(path: string, digest: string, blob: Blob): Promise<void> {
  await withFile(path, async (file) => {
    const read = await readHead(file)
    if (read.digest !== digest) {
      throw new ImageError('digest', `the image ${path} reads back with the digest ${read.digest}`)
    }
    await readChunks(file, read.manifest, read.headBytes, blob, () => undefined)
  })
}

// ---------------------------------------------------------------- reading

async function withFile<T>(path: string, use: (file: FileHandle) => Promise<T>): Promise<T> {
  let file: FileHandle
  try {
    file = await open(path, 'r')
  } catch (error) {
    throw new ImageError('missing', `the image ${path} cannot be opened: ${say(error)}`)
  }
  try {
    return await use(file)
  } catch (error) {
    throw isSystem(error) ? new ImageError('missing', `the image ${path} cannot be read: ${say(error)}`) : error
  } finally {
    await file.close()
  }
}

/** The manifest once it is known to be whole, and the digest of the file if its chunks are what the manifest says. */
async function readHead(file: FileHandle): Promise<{ manifest: ImageManifest; headBytes: number; digest: string }> {
  const start = await readAll(file, Buffer.alloc(HEAD_BYTES), 0)
  if (!start.subarray(0, MAGIC.length).equals(MAGIC)) {
    throw new ImageError('format', 'this is no image: it begins otherwise')
  }
  const version = start.readUInt32LE(8)
  if (version !== IMAGE_VERSION) {
    throw new ImageError('version', `the image has format version ${version}; this build reads ${IMAGE_VERSION}`)
  }
  const length = start.readUInt32LE(12)
  if (length > MANIFEST_BYTES_MAX) throw new ImageError('format', `the image's manifest would have ${length} bytes`)
  const { size } = await file.stat()
  if (size < HEAD_BYTES + length) throw new ImageError('truncated', 'the image ends inside its manifest')
  const text = await readAll(file, Buffer.alloc(length), HEAD_BYTES)
  if (crc32(text) !== start.readUInt32LE(16)) throw new ImageError('digest', 'the image\'s manifest has another digest')
  const manifest = readManifest(text)
  const headBytes = HEAD_BYTES + length
  const want = headBytes + chunkBytes(manifest)
  if (size < want) throw new ImageError('truncated', `the image has ${size} of its ${want} bytes`)
  if (size > want) throw new ImageError('format', `the image has ${size} bytes where ${want} belong to it`)
  return { manifest, headBytes, digest: digestOf(Buffer.concat([start, text]), manifest) }
}

/**
 * Tenant and State are who it is. Reign and epoch grow after it was written and the owner may change with them (at a
 * program's last commit); none of them may be from the future.
 */
function checkIdentity(manifest: ImageManifest, expected: ImageExpected): void {
  const has = manifest.identity
  const want = expected.identity
  const wrong = manifest.key !== expected.key ? `it was made by ${manifest.key}, and ${expected.key} reads it`
    : has.tenant !== want.tenant ? 'it belongs to another tenant'
      : has.state !== want.state ? `it holds the State ${has.state}, not ${want.state}`
        : has.reign > want.reign ? `it was written in the later reign ${has.reign}`
          : has.epoch > want.epoch ? `it was written in the later epoch ${has.epoch}` : null
  if (wrong !== null) throw new ImageError('identity', `the image is not the one wanted: ${wrong}`)
}

/** Reads through one buffer. What `use` makes of it counts only if this returns: then every digest held. */
async function readChunks(
  file: FileHandle, manifest: ImageManifest, headBytes: number, blob: Blob,
  use: (piece: Piece, position: number, tokens: number, data: Buffer) => void,
): Promise<void> {
  const buffer = pieceBuffer(blob, manifest)
  let at = headBytes
  for (const chunk of manifest.chunks) {
    let crc = 0
    for (const piece of pieces(blob, chunk.tokens, PIECE_BYTES)) {
      const data = await readAll(file, buffer.subarray(0, piece.bytes), at)
      crc = crc32(data, crc)
      use(piece, chunk.position, chunk.tokens, data)
      at += piece.bytes
    }
    if (hex32(crc) !== chunk.crc32) {
      throw new ImageError('digest', `the image's chunk ${chunk.id} has another digest than its manifest says`)
    }
  }
}

async function readAll(file: FileHandle, into: Buffer, position: number): Promise<Buffer> {
  let done = 0
  while (done < into.length) {
    const { bytesRead } = await file.read(into, done, into.length - done, position + done)
    if (bytesRead === 0) throw new ImageError('truncated', `the image ends after ${position + done} bytes`)
    done += bytesRead
  }
  return into
}

// ---------------------------------------------------------------- digests and sizes

/** The whole file's CRC32, from those of its parts. */
function digestOf(start: Buffer, manifest: ImageManifest): string {
  return hex32(manifest.chunks.reduce(
    (crc, chunk) => joinCrc(crc, Number.parseInt(chunk.crc32, 16), chunk.bytes), crc32(start)))
}

const chunkBytes = (manifest: ImageManifest): number => manifest.chunks.reduce((sum, chunk) => sum + chunk.bytes, 0)

/** For every piece of every span: none is longer than PIECE_BYTES or its only plane, nor than the longest span. */
function pieceBuffer(blob: Blob, manifest: ImageManifest): Buffer {
  const longest = manifest.chunks.reduce((max, chunk) => Math.max(max, chunk.tokens), 0)
  const planes = blob.planes.map((plane) => plane.cellBytes * plane.rows * longest)
  const all = planes.reduce((sum, bytes) => sum + bytes, 0)
  return Buffer.allocUnsafeSlow(Math.min(all, Math.max(PIECE_BYTES, ...planes)))
}

const fileBytes = (manifest: ImageManifest): number => head(manifest).length + chunkBytes(manifest)
/** The file system's answer, as against a fault of ours. */
const isSystem = (error: unknown): boolean => error instanceof Error && 'syscall' in error
const say = (error: unknown): string => error instanceof Error ? error.message : String(error)
