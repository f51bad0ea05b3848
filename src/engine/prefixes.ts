/**
 * Owns the reuse of what another lane holds: before a chunk of a prompt is computed, the longest prefix that a lane has
 * of it, equal in tokens and in how each was fed, is copied and only the rest is computed. Asked anew before every chunk:
 * of several calls that begin alike one reads the beginning, and the others have it from that lane. Where that lane is
 * about to be emptied, one that still waits takes it first.
 *
 * P1 what comes of a call is the same with and without: a State is a function of its tokens and origins (E1), and where
 *    the copy ends the plan goes on as from any kept prefix (`plan.ts`).
 * P2 of another tenant's lane nothing is looked at but what the operator has named as public (`public-prefix.ts`): what else
 *    it holds changes no token of this call and not how many are computed.
 * P3 only where the copy takes less time than what it saves, as this engine's own figures say.
 */
import type { LaneCopies } from './lane-copies.ts'
import { heldTokens } from './lanes.ts'
import type { Lane, Lanes } from './lanes.ts'
import type { Llama } from './llama/llama.ts'
import type { Plan } from './plan.ts'
import { commonTokens } from './public-prefix.ts'
import type { Sequence } from './sequence.ts'
import type { Speeds } from './speeds.ts'

/** Fewer tokens are not worth the look: every prompt of a template begins alike. */
const GAIN_TOKENS_MIN = 32

interface Prefix { readonly lane: Lane; readonly tokens: number }

export class Prefixes {
  readonly #llama: Llama
  readonly #lanes: Lanes
  readonly #speeds: Speeds
  readonly #copies: LaneCopies
  readonly #publics: readonly Int32Array[]

  constructor(llama: Llama, lanes: Lanes, speeds: Speeds, copies: LaneCopies, publics: readonly Int32Array[]) {
    this.#llama = llama
    this.#lanes = lanes
    this.#speeds = speeds
    this.#copies = copies
    this.#publics = publics
  }

  /** True: the sequence has more of its prompt than it had, and what it does next must be asked anew. */
  reuse(sequence: Sequence): boolean {
    const found = this.#longest(sequence)
    return found !== null && this.#take(sequence, found)
  }

  /** Before a lane is emptied. Who of the waiting has it now, if anyone: the one that saves most, and by it the others. */
  handOn(lane: Lane, waiting: Iterable<Sequence>): Sequence | null {
    let heir: { readonly sequence: Sequence; readonly found: Prefix } | null = null
    for (const sequence of waiting) {
      if (sequence.piece(Infinity).kind !== 'prefill') continue
      const found = this.#longest(sequence)
      if (found?.lane === lane && found.tokens > (heir?.found.tokens ?? 0)) heir = { sequence, found }
    }
    return heir !== null && this.#take(heir.sequence, heir.found) ? heir.sequence : null
  }

  #take(sequence: Sequence, found: Prefix): boolean {
    const gain = found.tokens - sequence.fed.length
    const held = heldTokens(found.lane)
    if (this.#copies.costNs(held) >= gain * this.#speeds.snapshot().prefillNsPerToken) return false
    const { index } = sequence.lane
    const copied = this.#copies.copy(found.lane.index, index, held)
    sequence.reuse(found.tokens, copied ? this.#llama.cut(index, found.tokens) : 0)
    return copied
  }

  #longest({ lane, plan, fed }: Sequence): Prefix | null {
    const { trims, copies, cutsCopies } = this.#llama.info
    if (!trims || !copies) return null
    let best: Prefix | null = null
    const publicTokens = this.#publicTokens(plan)
    for (const other of this.#lanes.owned()) {
      if (other === lane || other.tenant === null || other.content.kind !== 'fed') continue
      const most = other.tenant === lane.tenant ? Infinity : publicTokens
      if (most < GAIN_TOKENS_MIN) continue
      const tokens = plan.from(Math.min(most, plan.shared(other.content.fed)))
      if (!cutsCopies && tokens < heldTokens(other)) continue
      if (tokens - fed.length >= GAIN_TOKENS_MIN && tokens > (best?.tokens ?? 0)) best = { lane: other, tokens }
    }
    return best
  }

  /** Leading tokens of the plan that are public: the most that any prefix named as such has of them. */
  #publicTokens({ tokens }: Plan): number {
    return this.#publics.reduce((most, named) => Math.max(most, commonTokens(tokens, named)), 0)
  }
}
