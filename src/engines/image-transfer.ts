/**
 * Owns images on the way between our files and an engine on another machine: what an offload sends is put together beside
 * its place, checked and renamed before anybody hears that it moved; what an onboard reads is sent before its command.
 */
import { closeSync, openSync, renameSync, rmSync, writeSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { crc32 } from 'node:zlib'
import { IMAGE_PIECE_BYTES, PARTIAL_SUFFIX, type EngineEvent, type EngineRequest, type WireImageDropped, type WireImagePiece } from '../protocol/engine.ts'

interface Wire {
  send(message: EngineRequest | WireImagePiece | WireImageDropped, bin?: readonly Uint8Array[]): void
  /** Resolves when there is room for more; false: the connection is over. */
  room(): Promise<boolean>
  /** Said in the engine's place. */
  event(event: EngineEvent): void
}

/** `fault`: why it cannot be kept here; the engine sends on all the same. */
interface Incoming { readonly path: string; bytes: number; crc: number; fault: string | null }

type Onboard = Extract<EngineRequest, { kind: 'onboard' }>

export class ImageTransfer {
  readonly #wire: Wire
  readonly #incoming = new Map<string, Incoming>()

  constructor(wire: Wire) {
    this.#wire = wire
  }

  send(message: EngineRequest, bin: readonly Uint8Array[]): void {
    if (message.kind === 'onboard') return void this.#sendImage(message)
    if (message.kind === 'offload') this.#incoming.set(message.move, { path: message.path, bytes: 0, crc: 0, fault: null })
    this.#wire.send(message, bin)
  }

  piece({ move, offset }: WireImagePiece, bytes: Uint8Array): void {
    const incoming = this.#incoming.get(move)
    // Of a move that is over for us, or not in its place: then its digest is another.
    if (incoming === undefined || incoming.fault !== null || offset !== incoming.bytes) return
    incoming.fault = attempt(() => write(`${incoming.path}${PARTIAL_SUFFIX}`, bytes, offset))
    incoming.bytes += bytes.length
    incoming.crc = crc32(bytes, incoming.crc)
  }

  /** The event as it is to be heard. */
  settle(event: EngineEvent): EngineEvent {
    if (event.kind !== 'moved' && event.kind !== 'moveFailed') return event
    const incoming = this.#incoming.get(event.move)
    this.#incoming.delete(event.move)
    if (incoming === undefined) return event
    const partial = `${incoming.path}${PARTIAL_SUFFIX}`
    const digest = incoming.crc.toString(16).padStart(8, '0')
    if (event.kind === 'moved' && incoming.bytes === event.bytes && digest === event.digest) {
      const fault = incoming.fault ?? attempt(() => renameSync(partial, incoming.path))
      if (fault === null) return event
      incoming.fault = fault
    }
    attempt(() => rmSync(partial, { force: true }))
    if (event.kind === 'moveFailed') return event
    if (incoming.fault !== null) return { kind: 'moveFailed', move: event.move, sourceLost: false, why: `the image ${incoming.path} cannot be written: ${incoming.fault}` }
    return { kind: 'moveFailed', move: event.move, sourceLost: false, why: `of its image ${incoming.bytes} of ${event.bytes} bytes came, with the digest ${digest}, not ${event.digest}` }
  }

  async #sendImage(command: Onboard): Promise<void> {
    const { move } = command
    try {
      const file = await open(command.path, 'r')
      try {
        for (let offset = 0; ;) {
          const { bytesRead, buffer } = await file.read(Buffer.alloc(IMAGE_PIECE_BYTES), 0, IMAGE_PIECE_BYTES, offset)
          if (bytesRead === 0) break
          this.#wire.send({ kind: 'imagePiece', move, offset }, [buffer.subarray(0, bytesRead)])
          offset += bytesRead
          if (!await this.#wire.room()) return
        }
      } finally {
        await file.close()
      }
      this.#wire.send(command)
    } catch (error) {
      this.#wire.send({ kind: 'imageDropped', move })
      this.#wire.event({ kind: 'moveFailed', move, why: `its image cannot be read: ${String(error)}`, sourceLost: true })
    }
  }
}

function write(path: string, bytes: Uint8Array, offset: number): void {
  const file = openSync(path, offset === 0 ? 'w' : 'r+', 0o600)
  try {
    writeSync(file, bytes, 0, bytes.length, offset)
  } finally {
    closeSync(file)
  }
}

/** Why the file system would not; null where it did. */
function attempt(act: () => void): string | null {
  try {
    act()
    return null
  } catch (error) {
    if (error instanceof Error && 'syscall' in error) return error.message
    throw error
  }
}
