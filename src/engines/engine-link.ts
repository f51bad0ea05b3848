/**
 * Owns one connection to an engine: greeted, kept alive by pings, read and checked. What the engine says means is the
 * adapter's business; what becomes of a process behind it is its owner's.
 *
 * K1 an engine that answers nothing, or no greeting, for its lease and a third of it is told as hanging, idle or not; so is one whose
 *    batch takes longer than `batchMsMax`, whatever else it still answers.
 * K2 nothing is said after `failed`, `closed` or `destroy`.
 */
import type { Socket } from 'node:net'
import { ENGINE_PROTOCOL, type EngineEvent, type EngineRequest, type WireImageDropped, type WireImagePiece } from '../protocol/engine.ts'
import { encodeFrame, FrameError, FrameReader } from '../protocol/frame.ts'
import { BrokenEvent, OtherProtocol, readEvent, readPiece } from './engine-events.ts'

/** Pings in a lease. */
const PINGS = 3
const MEBIBYTE = 1024 * 1024

/** What holds between the two sides. */
export interface LinkTerms {
  readonly reign: number
  /** Either side takes the other for gone where it hears nothing for so long. */
  readonly leaseMs: number
  /** A batch that takes longer will not end. */
  readonly batchMsMax: number
  /** Resident memory of the engine's process; null: as much as it likes. */
  readonly memoryBytesMax: number | null
}

interface LinkHandlers {
  event(event: EngineEvent, bin: readonly Uint8Array[]): void
  /** A piece of an image; absent: it has no such things to say. */
  piece?(piece: WireImagePiece, bytes: Uint8Array): void
  /** It cannot be gone on with. `hangs`: it may not end by itself. */
  failed(why: string, hangs: boolean): void
  /** The other side is gone; null where nothing says why. */
  closed(why: string | null): void
}

export class EngineLink {
  readonly #socket: Socket
  readonly #terms: LinkTerms
  readonly #handlers: LinkHandlers
  readonly #pinger: NodeJS.Timeout
  #silentTicks = 0
  #welcomed = false
  #error: string | null = null
  #open = true

  /** `socket` is connected. */
  constructor(socket: Socket, terms: LinkTerms, handlers: LinkHandlers) {
    this.#socket = socket
    this.#terms = terms
    this.#handlers = handlers
    const reader = new FrameReader()
    socket.on('data', (bytes: Buffer) => {
      if (this.#welcomed) this.#silentTicks = 0
      this.#read(reader, bytes)
    })
    socket.on('error', (error) => { this.#error ??= `its socket failed: ${error.message}` })
    socket.on('close', () => this.#end(() => handlers.closed(this.#error)))
    this.send({ kind: 'hello', protocol: ENGINE_PROTOCOL, reign: terms.reign, leaseMs: terms.leaseMs })
    this.#pinger = setInterval(() => this.#tick(), terms.leaseMs / PINGS).unref()
  }

  /** Everything it had to say was read. */
  get closed(): boolean { return this.#socket.closed }

  send(message: EngineRequest | WireImagePiece | WireImageDropped, bin: readonly Uint8Array[] = []): void {
    this.#socket.write(encodeFrame(message, bin))
  }

  destroy(): void {
    this.#end(() => undefined)
    this.#socket.destroy()
  }

  #tick(): void {
    this.send({ kind: 'ping', reign: this.#terms.reign })
    this.#silentTicks += 1
    if (this.#silentTicks > PINGS) this.#fail(`it has not answered for ${this.#terms.leaseMs} ms`, true)
  }

  #read(reader: FrameReader, bytes: Buffer): void {
    try {
      for (const { message, bin } of reader.push(bytes)) {
        if (!this.#open) return
        const piece = this.#handlers.piece === undefined ? null : readPiece(message, bin)
        if (piece !== null) {
          this.#handlers.piece?.(piece, bin[0] ?? new Uint8Array())
          continue
        }
        const event = readEvent(message, bin)
        if (event.kind === 'welcome') this.#welcomed = true
        if (event.kind === 'alive') this.#weigh(event.batchMs, event.memoryBytes)
        else this.#handlers.event(event, bin)
      }
    } catch (error) {
      if (error instanceof OtherProtocol) return this.#fail(`${error.message}: both sides are to be of one version of Entracte`, false)
      if (!(error instanceof FrameError || error instanceof BrokenEvent)) throw error
      this.#fail(`it broke the protocol: ${error.message}`, false)
    }
  }

  #weigh(batchMs: number, memoryBytes: number): void {
    const { batchMsMax, memoryBytesMax } = this.#terms
    if (batchMs > batchMsMax) {
      return this.#fail(`one batch has taken ${Math.round(batchMs / 1_000)} s so far, and batchSecondsMax is ${batchMsMax / 1_000}`, true)
    }
    if (memoryBytesMax === null || memoryBytes <= memoryBytesMax) return
    const mebibytes = (count: number): number => Math.round(count / MEBIBYTE)
    this.#fail(`it takes ${mebibytes(memoryBytes)} MiB of memory, and memoryMiBMax is ${mebibytes(memoryBytesMax)}`, true)
  }

  #fail(why: string, hangs: boolean): void {
    this.#end(() => this.#handlers.failed(why, hangs))
  }

  #end(say: () => void): void {
    if (!this.#open) return
    this.#open = false
    clearInterval(this.#pinger)
    say()
  }
}
