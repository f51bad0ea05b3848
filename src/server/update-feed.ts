/**
 * Owns the wait of one request for its call: the next update, or what comes before it (a pause long enough for a sign
 * of life, the client's leaving, the server's end). The client's leaving is told to the gateway the moment it is seen,
 * whatever the request is waiting for, so that place, sequence and cells are free at once. An update is taken only when
 * asked for: a reader that is slow holds back its own call's updates and nothing else.
 */
import type { ServerResponse } from 'node:http'
import type { CallUpdate } from '../driver/gateway.ts'
import type { ChoicesHandle, ChoiceUpdate } from './choices.ts'

export type FeedStep =
  | { readonly kind: 'update'; readonly choice: number; readonly update: CallUpdate }
  /** Nothing came for the time that was given. */
  | { readonly kind: 'still' }
  /** The client is gone and the call was hung up. */
  | { readonly kind: 'gone' }
  | { readonly kind: 'closing' }
  /** The gateway broke its word; a bug of ours. */
  | { readonly kind: 'broken'; readonly why: string }

export class UpdateFeed {
  readonly #handle: ChoicesHandle
  readonly #iterator: AsyncIterator<ChoiceUpdate>
  #pending: Promise<IteratorResult<ChoiceUpdate>> | null = null
  #wake: ((step: FeedStep) => void) | null = null
  /** Set once; every later wait gets it. */
  #over: FeedStep | null = null

  /** `left` is called once, if the client leaves before the response is complete. */
  constructor(handle: ChoicesHandle, response: ServerResponse, left: () => void) {
    this.#handle = handle
    this.#iterator = handle.updates[Symbol.asyncIterator]()
    const close = (): void => {
      if (response.writableFinished || this.#over?.kind === 'gone') return
      left()
      this.#end({ kind: 'gone' })
    }
    if (response.destroyed) close()
    else response.once('close', close)
  }

  next(waitMs: number): Promise<FeedStep> {
    if (this.#over !== null) return Promise.resolve(this.#over)
    return new Promise((resolve) => {
      const settle = (step: FeedStep): void => {
        clearTimeout(timer)
        this.#wake = null
        resolve(step)
      }
      const timer = setTimeout(() => settle({ kind: 'still' }), waitMs)
      this.#wake = settle
      this.#pending ??= this.#iterator.next()
      const broken = (error: unknown): void => settle({ kind: 'broken', why: String(error) })
      this.#pending.then((result) => this.#arrived(settle, result), broken)
    })
  }

  /** The call is given up on our side. */
  hangUp(): void {
    this.#end({ kind: 'gone' })
  }

  /** The server stops: whoever waits is told. The call is not hung up, so that after the next start it can go on. */
  stop(): void {
    this.#over ??= { kind: 'closing' }
    this.#wake?.(this.#over)
  }

  #arrived(settle: (step: FeedStep) => void, result: IteratorResult<ChoiceUpdate>): void {
    if (this.#wake !== settle) return
    this.#pending = null
    if (result.done === true) settle({ kind: 'broken', why: 'the call ended without a last word' })
    else settle({ kind: 'update', ...result.value })
  }

  #end(step: FeedStep): void {
    this.#over ??= step
    this.#handle.hangUp()
    this.#wake?.(this.#over)
  }
}
