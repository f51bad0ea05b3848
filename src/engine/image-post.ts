/**
 * Owns images on the way between this engine and a control plane on another machine: pieces that come are put together
 * in a folder of our own before the onboard that reads them, pieces of what an offload wrote go out before its answer. No
 * path that came over the wire is ever used.
 */
import { closeSync, openSync, rmSync, writeSync } from 'node:fs'
import { open, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { IMAGE_PIECE_BYTES, MOVE_NAME } from '../protocol/engine.ts'
import type { EngineEvent, WireImagePiece } from '../protocol/engine.ts'

interface Wire {
  send(message: EngineEvent | WireImagePiece, bin?: readonly Uint8Array[]): void
  /** Resolves when there is room for more. */
  room(): Promise<void>
}

export class ImagePost {
  readonly #folder: string
  readonly #wire: Wire
  readonly #offloads = new Set<string>()

  /** The folder is ours alone, and goes with the process. */
  constructor(folder: string, wire: Wire) {
    this.#folder = folder
    this.#wire = wire
  }

  /** What the loop is to hear in place of a message; null where it was of an image. Anything else is left to the loop's checks. */
  receive(message: unknown, bin: readonly Uint8Array[]): unknown {
    if (!isMove(message)) return message
    const { kind, move } = message
    if (kind === 'imagePiece') {
      const { offset } = message
      if (typeof offset === 'number' && Number.isSafeInteger(offset) && offset >= 0) this.#keep(move, offset, bin[0] ?? new Uint8Array())
      return null
    }
    if (kind === 'imageDropped') {
      rmSync(this.#path(move), { force: true })
      return null
    }
    if (kind === 'offload') this.#offloads.add(move)
    return kind === 'offload' || kind === 'onboard' ? { ...message, path: this.#path(move) } : message
  }

  emit(event: EngineEvent, bin: readonly Uint8Array[] = []): void {
    if (event.kind !== 'moved' && event.kind !== 'moveFailed') return this.#wire.send(event, bin)
    const isOffload = this.#offloads.delete(event.move)
    if (event.kind === 'moved' && isOffload) return void this.#sendImage(event)
    rmSync(this.#path(event.move), { force: true })
    this.#wire.send(event)
  }

  #path(move: string): string {
    return join(this.#folder, MOVE_NAME.test(move) ? `${move}.kv` : 'nameless.kv')
  }

  /** A hole, or what could not be written, gives another digest, and the onboard refuses it. */
  #keep(move: string, offset: number, bytes: Uint8Array): void {
    let file: number | null = null
    try {
      file = openSync(this.#path(move), offset === 0 ? 'w' : 'r+', 0o600)
      writeSync(file, bytes, 0, bytes.length, offset)
    } catch (error) {
      if (!(error instanceof Error && 'syscall' in error)) throw error
      process.stderr.write(`an image that comes in cannot be kept: ${error.message}\n`)
    } finally {
      if (file !== null) closeSync(file)
    }
  }

  async #sendImage(event: Extract<EngineEvent, { kind: 'moved' }>): Promise<void> {
    const { move } = event
    try {
      const file = await open(this.#path(move), 'r')
      try {
        for (let offset = 0; ;) {
          const { bytesRead, buffer } = await file.read(Buffer.alloc(IMAGE_PIECE_BYTES), 0, IMAGE_PIECE_BYTES, offset)
          if (bytesRead === 0) break
          this.#wire.send({ kind: 'imagePiece', move, offset }, [buffer.subarray(0, bytesRead)])
          offset += bytesRead
          await this.#wire.room()
        }
      } finally {
        await file.close()
        await rm(this.#path(move), { force: true })
      }
      this.#wire.send(event)
    } catch (error) {
      this.#wire.send({ kind: 'moveFailed', move, why: `its image could not be sent: ${String(error)}`, sourceLost: false })
    }
  }
}

function isMove(message: unknown): message is { readonly kind: unknown; readonly move: string; readonly offset?: unknown } {
  return typeof message === 'object' && message !== null && 'kind' in message && 'move' in message && typeof message.move === 'string'
}
