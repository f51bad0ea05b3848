/**
 * Owns the requests that wait for the next fact of a program, and their limit. However many facts a turn says and however
 * many requests wait, each request looks once after the turn.
 */
import type { FastifyReply } from 'fastify'
import type { TenantId } from '../core/ids.ts'
import type { Gateway } from '../driver/gateway.ts'

/** Requests of one tenant that wait at once; beyond it one is refused (`tenant_full`). */
export const FACT_WAITS_MAX = 100

interface Wait { readonly tenant: TenantId; readonly hasNews: () => boolean; readonly end: () => void }

export class FactWaits {
  readonly #waits = new Set<Wait>()
  readonly #unwatch: () => void
  #lookDue = false

  constructor(gateway: Gateway) {
    this.#unwatch = gateway.watch(() => this.#lookSoon())
  }

  isFull(tenant: TenantId): boolean {
    let count = 0
    for (const wait of this.#waits) if (wait.tenant === tenant) count += 1
    return count >= FACT_WAITS_MAX
  }

  /** Resolves when there is news, when the time is over, or when nobody listens any more. */
  next(tenant: TenantId, reply: FastifyReply, hasNews: () => boolean, waitMs: number): Promise<void> {
    return new Promise((resolve) => {
      const end = (): void => {
        this.#waits.delete(wait)
        clearTimeout(timer)
        reply.raw.off('close', end)
        resolve()
      }
      const wait: Wait = { tenant, hasNews, end }
      const timer = setTimeout(end, waitMs)
      reply.raw.once('close', end)
      this.#waits.add(wait)
    })
  }

  close(): void {
    this.#unwatch()
    for (const { end } of [...this.#waits]) end()
  }

  #lookSoon(): void {
    if (this.#lookDue || this.#waits.size === 0) return
    this.#lookDue = true
    setImmediate(() => {
      this.#lookDue = false
      for (const { hasNews, end } of [...this.#waits]) if (hasNews()) end()
    })
  }
}
