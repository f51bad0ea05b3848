/**
 * Owns what a kept snapshot looks like and what it must show before it is believed: its head, a line a text, and the
 * checksum of all of it but its last line, which is the checksum.
 */
import { crc32 } from 'node:zlib'
import type { Snapshot } from '../core/snapshot.ts'
import type { Us } from '../core/units.ts'

const NEWLINE = 0x0a

interface Head { readonly version: number; readonly seq: number; readonly atUs: Us }
interface Foot { readonly crc32: number }

/** A line of head, a line a text, a line of foot. JSON has no line breaks of its own. */
export function* piecesOf({ version, seq, atUs, texts }: Snapshot): Generator<Uint8Array> {
  let crc = 0
  const line = (text: string): Uint8Array => {
    const bytes = Buffer.from(`${text}\n`)
    crc = crc32(bytes, crc)
    return bytes
  }
  const head: Head = { version, seq, atUs }
  yield line(JSON.stringify(head))
  for (const text of texts) yield line(text)
  const foot: Foot = { crc32: crc }
  yield Buffer.from(`${JSON.stringify(foot)}\n`)
}

/** What is wrong with it, or the snapshot. */
export function parsed(seq: number, file: Uint8Array | null): Snapshot | string {
  if (file === null) return 'its file cannot be read'
  const bytes = Buffer.from(file.buffer, file.byteOffset, file.byteLength)
  const footAt = bytes.lastIndexOf(NEWLINE, bytes.length - 2) + 1
  const foot = record(bytes.toString('utf8', footAt))
  if (footAt === 0 || foot === null) return 'its end is missing'
  if (crc32(bytes.subarray(0, footAt)) !== foot['crc32']) return 'its bytes are not those that were written'
  const headEnd = bytes.indexOf(NEWLINE)
  const { version, atUs, ...rest } = record(bytes.toString('utf8', 0, headEnd)) ?? {}
  if (rest['seq'] !== seq) return 'it is not what its name says'
  if (typeof version !== 'number' || typeof atUs !== 'number') return 'its head is not whole'
  return { version, seq, atUs, texts: { [Symbol.iterator]: () => lines(bytes.subarray(headEnd + 1, footAt)) } }
}

/** One at a time: all of them at once would be as large as the file again. */
function* lines(bytes: Buffer): Generator<string> {
  for (let from = 0; from < bytes.length;) {
    const to = bytes.indexOf(NEWLINE, from)
    yield bytes.toString('utf8', from, to)
    from = to + 1
  }
}

function record(text: string): Readonly<Record<string, unknown>> | null {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === 'object' && value !== null ? value as Readonly<Record<string, unknown>> : null
  } catch (thrown) {
    if (thrown instanceof SyntaxError) return null
    throw thrown
  }
}
