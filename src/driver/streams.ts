/**
 * Owns the data plane of open calls: the output tokens and what they show, in order, from an engine to whoever follows
 * the call. The tokens are the journal that lets another attempt go on where this one stopped, without a repeated or a
 * lost character: they are kept here and written behind, within JOURNAL_US. Bounded by `maxTokens` of each open call.
 * A follower is a place in the list, so a slow reader holds nothing that is not held anyway.
 */
import type { CallId, TenantId } from '../core/ids.ts'
import type { CallUpdate } from './gateway.ts'
import type { Bodies, Clock, StreamChunk, StreamPart } from './ports.ts'
import { journalOf } from './working-bodies.ts'

const JOURNAL_US = 50_000

interface Stream {
  readonly call: CallId
  readonly tenant: TenantId
  readonly tokens: number[]
  readonly updates: CallUpdate[]
  readonly followers: Set<Follower>
  ended: boolean
  journalDue: boolean
}

export class Streams {
  readonly #streams = new Map<CallId, Stream>()
  readonly #bodies: Bodies
  readonly #clock: Clock
  #stopped = false

  constructor(bodies: Bodies, clock: Clock) {
    this.#bodies = bodies
    this.#clock = clock
  }

  open(call: CallId, tenant: TenantId, first: CallUpdate): void {
    this.#streams.set(call, { call, tenant, tokens: [], updates: [first], followers: new Set(), ended: false, journalDue: false })
  }

  /** After a restart: what was journalled is shown again to whoever asks for the call again. */
  reopen(call: CallId, tenant: TenantId, first: CallUpdate): void {
    this.open(call, tenant, first)
    const stream = this.#streams.get(call)
    const journal = stream === undefined ? null : readJournal(this.#bodies.get(journalOf(call)))
    if (stream === undefined || journal === null) return
    stream.tokens.push(...journal.tokens)
    for (const part of journal.parts) stream.updates.push({ kind: 'part', part })
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
    stream.tokens.push(...chunk.tokens.slice(stream.tokens.length - chunk.index))
    for (const part of chunk.parts) this.#push(stream, { kind: 'part', part })
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
    if (stream !== undefined) {
      stream.ended = true
      this.#push(stream, last)
      this.#streams.delete(call)
    }
    this.#bodies.drop(journalOf(call))
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
    if (stream.journalDue) return
    stream.journalDue = true
    this.#clock.at(this.#clock.nowUs() + JOURNAL_US, () => {
      stream.journalDue = false
      if (stream.ended || this.#stopped) return
      const journal = JSON.stringify({ tokens: stream.tokens, parts: this.parts(stream.call) })
      this.#bodies.put(journalOf(stream.call), stream.tenant, Buffer.from(journal))
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

/** A journal is ours, but a disk may hand back anything: what does not parse is as good as none. */
function readJournal(bytes: Uint8Array | null): { tokens: number[]; parts: StreamPart[] } | null {
  if (bytes === null) return null
  const value: unknown = JSON.parse(Buffer.from(bytes).toString('utf8'))
  if (typeof value !== 'object' || value === null || !('tokens' in value) || !('parts' in value)) return null
  const { tokens, parts } = value
  return Array.isArray(tokens) && Array.isArray(parts) ? { tokens, parts } : null
}
