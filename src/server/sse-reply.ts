/**
 * Owns the writing of one event stream past fastify, and its pace: at most `streamBufferBytesMax` unsent bytes are held
 * for a reader, who is let go when it takes nothing for `slowReaderMs`.
 */
import type { FastifyReply } from 'fastify'
import { SSE_HEADERS } from '../protocol/sse.ts'
import type { DoorLimits } from './door.ts'

export class SseReply {
  readonly #reply: FastifyReply
  readonly #limits: DoorLimits
  #open = false

  constructor(reply: FastifyReply, limits: DoorLimits) {
    this.#reply = reply
    this.#limits = limits
  }

  /** Headers are sent: an error can only be an event. */
  get isOpen(): boolean { return this.#open }

  /** False where the reader is gone or was let go. */
  async write(text: string): Promise<boolean> {
    this.#start()
    const { raw } = this.#reply
    if (raw.destroyed) return false
    const flowing = raw.write(text)
    if (flowing || raw.writableLength < this.#limits.streamBufferBytesMax) return true
    return this.#drained()
  }

  /** With the last text, so that both leave in one piece. */
  end(text: string): void {
    this.#start()
    const { raw } = this.#reply
    raw.end(text)
    if (raw.writableFinished || raw.destroyed) return
    const timer = setTimeout(() => raw.destroy(), this.#limits.slowReaderMs)
    raw.once('close', () => clearTimeout(timer))
  }

  #start(): void {
    if (this.#open) return
    this.#open = true
    const headers = Object.entries({ ...this.#reply.getHeaders(), ...SSE_HEADERS })
    this.#reply.hijack()
    for (const [name, value] of headers) if (value !== undefined) this.#reply.raw.setHeader(name, value)
    this.#reply.raw.writeHead(200)
  }

  #drained(): Promise<boolean> {
    const { raw } = this.#reply
    return new Promise((resolve) => {
      const settle = (flows: boolean): void => {
        clearTimeout(timer)
        raw.off('drain', drained)
        raw.off('close', closed)
        if (!flows) raw.destroy()
        resolve(flows)
      }
      const drained = (): void => settle(true)
      const closed = (): void => settle(false)
      const timer = setTimeout(closed, this.#limits.slowReaderMs)
      raw.once('drain', drained)
      raw.once('close', closed)
    })
  }
}
