/**
 * Owns which State is in which lane of the device. A lane is this engine's granule: a State has one or none, and
 * free + owned = total at all times (invariant 11). The lowest free lane is given out, because rows of neighbouring
 * lanes run as one batch and a gap splits it.
 */
import assert from 'node:assert/strict'
import { Fed } from './fed.ts'

export interface Lane {
  /** Another once it was moved. */
  index: number
  readonly state: string
  /** Whose calls alone may read it; null: nobody's. */
  readonly tenant: string | null
  content: Content
}

type Content =
  /** Every token in it was fed here. */
  | { readonly kind: 'fed'; readonly fed: Fed }
  /** It is promised to an image on its way in. */
  | { readonly kind: 'arriving' }
  /** It came in as an image: the next call says which tokens these are. */
  | { readonly kind: 'image'; readonly tokens: number }

/** Tokens the lane holds. */
export function heldTokens({ content }: Lane): number {
  if (content.kind === 'fed') return content.fed.length
  return content.kind === 'image' ? content.tokens : 0
}

export class Lanes {
  readonly total: number
  readonly #free: number[]
  readonly #owned = new Map<string, Lane>()

  constructor(total: number) {
    this.total = total
    this.#free = Array.from({ length: total }, (_, index) => index)
  }

  get free(): number {
    return this.#free.length
  }

  find(state: string): Lane | null {
    return this.#owned.get(state) ?? null
  }

  canTake(state: string): boolean {
    return this.#free.length > 0 && !this.#owned.has(state)
  }

  take(state: string, tenant: string | null = null): Lane {
    assert(this.canTake(state), `no lane can be given to ${state}`)
    const index = Math.min(...this.#free)
    this.#free.splice(this.#free.indexOf(index), 1)
    const lane: Lane = { index, state, tenant, content: { kind: 'fed', fed: new Fed() } }
    this.#owned.set(state, lane)
    return lane
  }

  /** The caller has emptied it. */
  release(lane: Lane): void {
    assert(this.#owned.get(lane.state) === lane, `lane ${lane.index} is not owned by ${lane.state}`)
    this.#owned.delete(lane.state)
    this.#free.push(lane.index)
  }

  isFree(index: number): boolean {
    return this.#free.includes(index)
  }

  /** Gives it a free place in exchange for its own; the caller has moved what it holds and emptied the old one. */
  relocate(lane: Lane, to: number): void {
    assert(this.#owned.get(lane.state) === lane && this.isFree(to), `${lane.state} cannot be moved to lane ${to}`)
    this.#free.splice(this.#free.indexOf(to), 1, lane.index)
    lane.index = to
  }

  owned(): Iterable<Lane> {
    return this.#owned.values()
  }

  /** Conservation; checked whenever the engine is idle. */
  check(): void {
    const seen = new Set([...this.#free, ...[...this.#owned.values()].map((lane) => lane.index)])
    const counted = this.#free.length + this.#owned.size
    const balance = `free ${this.#free.length} + owned ${this.#owned.size}`
    assert(counted === this.total && seen.size === this.total, `${balance} is not ${this.total} lanes`)
  }
}
