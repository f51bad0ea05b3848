/**
 * Owns one life of an engine on another machine, as far as we see it: connected, proved on both sides, and gone. Its
 * process is its own machine's: it ends with its connection, or after its lease, and another is started there, so that a
 * life we have lost never speaks again and holds nothing of what it held.
 */
import { once } from 'node:events'
import { connect, isIP, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import type { EngineEvent, EngineRequest } from '../protocol/engine.ts'
import { admitEngine, HandshakeError } from '../protocol/handshake.ts'
import { EngineLink, type LinkTerms } from './engine-link.ts'
import { ImageTransfer } from './image-transfer.ts'

export interface RemoteOptions {
  readonly host: string
  readonly port: number
  readonly secret: string
  /** Null: in clear. `ca`: in PEM; null: those of the system. */
  readonly tls: { readonly ca: string | null } | null
}

interface RemoteHandlers {
  event(event: EngineEvent, bin: readonly Uint8Array[]): void
  lost(why: string, refused: boolean): void
}

/** A connection that is not there by then does not come. */
const CONNECT_MS_MAX = 10_000
const KEEP_ALIVE_MS = 15_000

export class EngineRemote {
  /** Nothing of it is ours to wait for. */
  readonly gone = Promise.resolve()
  readonly #options: RemoteOptions & LinkTerms
  readonly #handlers: RemoteHandlers
  readonly #images: ImageTransfer
  #socket: Socket
  #link: EngineLink | null = null
  #lost = false

  constructor(options: RemoteOptions & LinkTerms, handlers: RemoteHandlers) {
    this.#options = options
    this.#handlers = handlers
    this.#socket = this.#connect()
    this.#images = new ImageTransfer({
      send: (message, bin) => this.#link?.send(message, bin),
      room: () => this.#room(),
      event: (event) => { if (!this.#lost) handlers.event(event, []) },
    })
  }

  send(message: EngineRequest, bin: readonly Uint8Array[] = []): void {
    if (this.#link !== null) this.#images.send(message, bin)
  }

  async stop(): Promise<void> {
    this.#lost = true
    this.#link?.destroy()
    this.#socket.destroy()
  }

  condemn(why: string): void {
    if (this.#lost) return
    void this.stop()
    this.#handlers.lost(why, false)
  }

  #connect(): Socket {
    const { host, port, tls, secret } = this.#options
    const where = `${host}:${port}`
    const socket = tls === null ? connect(port, host) : connectTls({ host, port, minVersion: 'TLSv1.3', ...(tls.ca === null ? {} : { ca: tls.ca }), ...servername(host) })
    const failed = (error: Error): void => this.condemn(`no engine can be reached at ${where}: ${error.message}`)
    const late = setTimeout(() => failed(new Error(`nothing within ${CONNECT_MS_MAX / 1_000} s`)), CONNECT_MS_MAX).unref()
    socket.once('error', failed)
    socket.once('close', () => clearTimeout(late))
    socket.once(tls === null ? 'connect' : 'secureConnect', () => {
      clearTimeout(late)
      socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_MS)
      admitEngine(socket, secret).then(() => {
        socket.off('error', failed)
        this.#greet(socket)
      }, (error: unknown) => {
        if (!(error instanceof HandshakeError)) throw error
        this.condemn(`the engine at ${where} is not let in, or does not let us in: ${error.message}`)
      })
    })
    return socket
  }

  #greet(socket: Socket): void {
    if (this.#lost) return
    this.#link = new EngineLink(socket, this.#options, {
      event: (event, bin) => this.#handlers.event(this.#images.settle(event), bin),
      piece: (piece, bytes) => this.#images.piece(piece, bytes),
      failed: (why) => this.condemn(why),
      closed: (why) => this.condemn(why ?? 'it closed its connection'),
    })
    socket.resume()
  }

  async #room(): Promise<boolean> {
    const socket = this.#socket
    if (socket.writableNeedDrain && !socket.destroyed) {
      // Of the two that are waited for, one does not come: its listeners go too.
      const over = new AbortController()
      const { signal } = over
      await Promise.race([once(socket, 'drain', { signal }), once(socket, 'close', { signal })]).catch(() => undefined)
      over.abort()
    }
    return !this.#lost
  }
}

/** Certificates are for names; of an address there is none to ask for. */
const servername = (host: string): { servername?: string } => (isIP(host) === 0 ? { servername: host } : {})
