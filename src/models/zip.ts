/**
 * Owns reading one entry of a zip file (a wheel is one) straight to disk: stored or deflated, found through the
 * central directory. No zip64, no encryption, no spanning: those are refused by name.
 */
import { createReadStream, createWriteStream } from 'node:fs'
import { open, type FileHandle } from 'node:fs/promises'
import { pipeline } from 'node:stream/promises'
import { Transform } from 'node:stream'
import { createInflateRaw } from 'node:zlib'

const END_SIGNATURE = 0x06054b50
const ENTRY_SIGNATURE = 0x02014b50
const LOCAL_SIGNATURE = 0x04034b50
const END_BYTES = 22
const COMMENT_BYTES_MAX = 0xffff
const DIRECTORY_BYTES_MAX = 16 << 20

interface Entry {
  readonly name: string
  readonly method: number
  readonly packedBytes: number
  readonly bytes: number
  readonly headerAt: number
}

/** Unpacks the one entry whose name ends in `suffix` to `target`. */
export async function extractEntry(
  zip: string, suffix: string, target: string, onBytes: (bytes: number, totalBytes: number) => void,
): Promise<void> {
  const handle = await open(zip, 'r')
  try {
    const found = (await entries(handle)).filter((entry) => entry.name.endsWith(suffix))
    const entry = found[0]
    if (entry === undefined || found.length > 1) throw new Error(`${found.length} entries end in ${suffix}, not one`)
    const start = await dataStart(handle, entry)
    const source = createReadStream(zip, { start, end: start + entry.packedBytes - 1, highWaterMark: 1 << 20 })
    const counter = counting(entry, onBytes)
    const sink = createWriteStream(target, { mode: 0o644 })
    if (entry.method === 0) await pipeline(source, counter, sink)
    else if (entry.method === 8) await pipeline(source, createInflateRaw({ chunkSize: 1 << 18 }), counter, sink)
    else throw new Error(`the entry is packed by method ${entry.method}; only stored (0) and deflated (8) are read`)
  } finally {
    await handle.close()
  }
}

/** Passes bytes on and refuses more or fewer than the directory promised. */
function counting(entry: Entry, onBytes: (bytes: number, totalBytes: number) => void): Transform {
  let bytes = 0
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length
      if (bytes > entry.bytes) return done(new Error(`${entry.name} unpacks to more than its ${entry.bytes} bytes`))
      onBytes(bytes, entry.bytes)
      done(null, chunk)
    },
    flush(done) {
      done(bytes === entry.bytes ? null : new Error(`${entry.name} ends after ${bytes} of ${entry.bytes} bytes`))
    },
  })
}

async function entries(handle: FileHandle): Promise<readonly Entry[]> {
  const { size } = await handle.stat()
  const tailBytes = Math.min(size, END_BYTES + COMMENT_BYTES_MAX)
  const tail = await read(handle, size - tailBytes, tailBytes)
  let end = tail.length - END_BYTES
  while (end >= 0 && tail.readUInt32LE(end) !== END_SIGNATURE) end--
  if (end < 0) throw new Error('this is no whole zip file: it has no end record')
  const count = tail.readUInt16LE(end + 10)
  const directoryBytes = tail.readUInt32LE(end + 12)
  const directoryAt = tail.readUInt32LE(end + 16)
  if (count === 0xffff || directoryAt === 0xffff_ffff) throw new Error('zip64 files are not read')
  if (directoryBytes > DIRECTORY_BYTES_MAX) throw new Error(`the zip's directory has ${directoryBytes} bytes`)
  const directory = await read(handle, directoryAt, directoryBytes)
  const found: Entry[] = []
  for (let at = 0, index = 0; index < count; index++) {
    if (at + 46 > directory.length || directory.readUInt32LE(at) !== ENTRY_SIGNATURE) {
      throw new Error('the zip\'s directory is damaged')
    }
    const nameBytes = directory.readUInt16LE(at + 28)
    const restBytes = directory.readUInt16LE(at + 30) + directory.readUInt16LE(at + 32)
    if ((directory.readUInt16LE(at + 8) & 1) === 1) throw new Error('encrypted zip files are not read')
    found.push({
      name: directory.toString('utf8', at + 46, at + 46 + nameBytes),
      method: directory.readUInt16LE(at + 10),
      packedBytes: directory.readUInt32LE(at + 20),
      bytes: directory.readUInt32LE(at + 24),
      headerAt: directory.readUInt32LE(at + 42),
    })
    at += 46 + nameBytes + restBytes
  }
  return found
}

/** The local header repeats the name and brings extra fields of its own length before the data. */
async function dataStart(handle: FileHandle, entry: Entry): Promise<number> {
  const header = await read(handle, entry.headerAt, 30)
  if (header.readUInt32LE(0) !== LOCAL_SIGNATURE) throw new Error(`the zip's header of ${entry.name} is damaged`)
  return entry.headerAt + 30 + header.readUInt16LE(26) + header.readUInt16LE(28)
}

async function read(handle: FileHandle, at: number, bytes: number): Promise<Buffer> {
  const buffer = Buffer.alloc(bytes)
  const { bytesRead } = await handle.read(buffer, 0, bytes, at)
  if (bytesRead !== bytes) throw new Error('the zip file is cut short')
  return buffer
}
