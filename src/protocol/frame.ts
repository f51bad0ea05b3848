/**
 * Owns the framing on an engine's socket: u32 LE length of what follows, u32 LE length of the JSON, the JSON, then the
 * binary parts one after another; the JSON's `bin` lists their lengths. A frame over FRAME_BYTES_MAX, or one that does
 * not parse, ends the connection: the peer is broken and nothing after it can be trusted.
 */
const FRAME_BYTES_MAX = 256 * 1024 * 1024

interface Frame { readonly message: unknown; readonly bin: readonly Uint8Array[] }

export function encodeFrame(message: object, bin: readonly Uint8Array[] = []): Buffer {
  const json = Buffer.from(JSON.stringify(bin.length === 0 ? message : { ...message, bin: bin.map((part) => part.byteLength) }))
  const binBytes = bin.reduce((sum, part) => sum + part.byteLength, 0)
  const head = Buffer.alloc(8)
  head.writeUInt32LE(4 + json.length + binBytes, 0)
  head.writeUInt32LE(json.length, 4)
  return Buffer.concat([head, json, ...bin])
}

/** Feeds on chunks as they arrive and yields whole frames. Throws FrameError where the peer broke the framing. */
export class FrameReader {
  readonly #bytesMax: number
  #held: Buffer = Buffer.alloc(0)

  constructor(bytesMax = FRAME_BYTES_MAX) {
    this.#bytesMax = bytesMax
  }

  /** Bytes of a frame that is not whole, or was not taken yet. */
  get heldBytes(): number { return this.#held.length }

  *push(chunk: Buffer): Generator<Frame> {
    this.#held = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk])
    while (this.#held.length >= 8) {
      const length = this.#held.readUInt32LE(0)
      if (length < 4 || length > this.#bytesMax) throw new FrameError(`a frame says it is ${length} bytes`)
      if (this.#held.length < 4 + length) return
      const frame = this.#held.subarray(4, 4 + length)
      this.#held = this.#held.subarray(4 + length)
      yield decode(frame)
    }
  }
}

function decode(frame: Buffer): Frame {
  const jsonBytes = frame.readUInt32LE(0)
  if (4 + jsonBytes > frame.length) throw new FrameError('the JSON is longer than its frame')
  const message: unknown = parse(frame.subarray(4, 4 + jsonBytes).toString('utf8'))
  const bin: Uint8Array[] = []
  let at = 4 + jsonBytes
  for (const bytes of binLengths(message)) {
    if (at + bytes > frame.length) throw new FrameError('a binary part is longer than its frame')
    bin.push(frame.subarray(at, at + bytes))
    at += bytes
  }
  if (at !== frame.length) throw new FrameError('bytes are left over in a frame')
  return { message, bin }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new FrameError('a frame is not JSON', { cause: error })
  }
}

function binLengths(message: unknown): number[] {
  if (typeof message !== 'object' || message === null || !('bin' in message)) return []
  const { bin } = message
  if (!Array.isArray(bin) || !bin.every((n) => Number.isInteger(n) && n >= 0)) throw new FrameError('bin is not a list of lengths')
  return bin as number[]
}

export class FrameError extends Error {}
