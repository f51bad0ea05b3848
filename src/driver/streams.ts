/**
 * Owns the data plane of open calls: the output tokens and what they show, in order, from an engine to whoever follows
 * the call. The tokens are the journal that lets another attempt go on where this one stopped, without a repeated or a
 * lost character: they are kept here and written behind, within JOURNAL_US. Bounded by `maxTokens` of each open call.
 * A follower is a place in the list, so a slow reader holds nothing that is not held anyway.
 */
import type { CallId, TenantId } from '../core/ids.ts'
import type { CallUpdate } from './gateway.ts'
import { dropJournal, Journal } from './journal.ts'
import type { Bodies, Clock, StreamChunk, StreamPart } from './ports.ts'

const JOURNAL_US = 50_000

interface Stream {
  readonly journal: Journal
  readonly tokens: number[]
  readonly updates: CallUpdate[]
  readonly followers: Set<Follower>
  ended: boolean
}

export class Streams {
  readonly #streams = new Map<CallId, Stream>()
  readonly #bodies: Bodies
  readonly #clock: Clock
  /** Showed something that is not in their journals yet: all are written together. */
  readonly #unwritten = new Set<Stream>()
  #writeDue = false
  #stopped = false

  constructor(bodies: Bodies, clock: Clock) {
    this.#bodies = bodies
    this.#clock = clock
  }

  open(call: CallId, tenant: TenantId, first: CallUpdate): void {
    this.#open(call, tenant, first)
  }

  /** After a restart: what was journalled is shown again to whoever asks for the call again. */
  reopen(call: CallId, tenant: TenantId, first: CallUpdate): void {
    const stream = this.#open(call, tenant, first)
    const { tokens, parts } = stream.journal.restore()
    stream.tokens.push(...tokens)
    for (const part of parts) stream.updates.push({ kind: 'part', part })
  }

  #open(call: CallId, tenant: TenantId, first: CallUpdate): Stream {
    const journal = new Journal(this.#bodies, call, tenant)
    const stream: Stream = { journal, tokens: [], updates: [first], followers: new Set(), ended: false }
    this.#streams.set(call, stream)
    return stream
  }

  has(call: CallId): boolean {
    return this.#streams.has(call)
  }

  hasFollowers(call: CallId): boolean {
    return (this.#streams.get(call)?.followers.size ?? 0) > 0
  }

  tokens(call: CallId): readonly number[] {
    return this.#streams.get(call)?.tokens ?? []
  }

  /** False where the chunk leaves a gap: then it and what follows it cannot be shown. */
  chunk(chunk: StreamChunk): boolean {
    const stream = this.#streams.get(chunk.call)
    if (stream === undefined || stream.ended) return true
    if (chunk.index > stream.tokens.length) return false
    if (chunk.index + chunk.tokens.length <= stream.tokens.length && chunk.tokens.length > 0) return true
    const tokens = chunk.tokens.slice(stream.tokens.length - chunk.index)
    stream.tokens.push(...tokens)
    for (const part of chunk.parts) this.#push(stream, { kind: 'part', part })
    stream.journal.add(tokens, chunk.parts)
    this.#journalSoon(stream)
    return true
  }

  /** What was shown of a call, as parts. */
  parts(call: CallId): StreamPart[] {
    const updates = this.#streams.get(call)?.updates ?? []
    return updates.flatMap((update) => update.kind === 'part' ? [update.part] : [])
  }

  end(call: CallId, last: CallUpdate): void {
    const stream = this.#streams.get(call)
    if (stream === undefined) return dropJournal(this.#bodies, call)
    stream.ended = true
    this.#push(stream, last)
    this.#streams.delete(call)
    this.#unwritten.delete(stream)
    stream.journal.drop()
  }

  /** The bodies close after this: nothing more is written. */
  stop(): void {
    this.#stopped = true
  }

  endAll(last: CallUpdate): void {
    for (const call of [...this.#streams.keys()]) this.end(call, last)
  }

  /** Follows from the first update on; null where the call is not open. */
  follow(call: CallId, left: (followers: number) => void): Follower | null {
    const stream = this.#streams.get(call)
    if (stream === undefined) return null
    const follower = new Follower(stream.updates, () => {
      if (stream.followers.delete(follower) && !stream.ended) left(stream.followers.size)
    })
    stream.followers.add(follower)
    return follower
  }

  #push(stream: Stream, update: CallUpdate): void {
    stream.updates.push(update)
    for (const follower of stream.followers) follower.wake()
  }

  #journalSoon(stream: Stream): void {
    this.#unwritten.add(stream)
    if (this.#writeDue) return
    this.#writeDue = true
    this.#clock.at(this.#clock.nowUs() + JOURNAL_US, () => {
      this.#writeDue = false
      if (!this.#stopped) for (const each of this.#unwritten) each.journal.write()
      this.#unwritten.clear()
    })
  }
}

/** A place in a call's updates; ends after the last, or when its reader leaves. */
export class Follower {
  readonly #updates: readonly CallUpdate[]
  readonly #leave: () => void
  #at = 0
  #left = false
  #wake: (() => void) | null = null

  constructor(updates: readonly CallUpdate[], leave: () => void) {
    this.#updates = updates
    this.#leave = leave
  }

  wake(): void {
    this.#wake?.()
    this.#wake = null
  }

  leave(): void {
    if (this.#left) return
    this.#left = true
    this.#leave()
    this.wake()
  }

  async *read(): AsyncGenerator<CallUpdate> {
    while (!this.#left) {
      const update = this.#updates[this.#at]
      if (update === undefined) {
        await new Promise<void>((resolve) => { this.#wake = resolve })
        continue
      }
      this.#at += 1
      yield update
      if (isLast(update)) return
    }
  }
}

const isLast = (update: CallUpdate): boolean => update.kind === 'done' || update.kind === 'refused' || update.kind === 'failed'
