/**
 * Owns the scripted engine's device memory as a ledger: which State has how many tokens on it, who runs, what was
 * granted. It moves no bytes. Every change is checked against what the ledger says; what does not fit is a breach of
 * the contract by whoever gave the command, and is answered with its description.
 *
 * L1 Granules of all States fit the device: the grant of a running one, the filled ones of the others.
 * L2 No more States than sequences. L3 One call runs a State. L4 Nobody keeps tokens that are not there.
 */
import type { CallId, StateId } from '../core/ids.ts'
import type { Held } from '../core/input.ts'
import type { EngineMemory } from '../core/state.ts'
import type { Granules, Tokens } from '../core/units.ts'

/** What a State is known by when nobody runs it: whose it was, and the digest of all its tokens. */
interface Mark { readonly epoch: number; readonly digest: string }

interface Resident { tokens: Tokens; running: { readonly call: CallId; grant: Granules } | null; moving: boolean; mark: Mark | null }

export class DeviceLedger {
  readonly #memory: EngineMemory
  readonly #states = new Map<StateId, Resident>()

  constructor(memory: EngineMemory) {
    this.#memory = memory
  }

  tokensOf(state: StateId): Tokens {
    return this.#states.get(state)?.tokens ?? 0
  }

  has(state: StateId): boolean {
    return this.#states.has(state)
  }

  /** Tokens a running State may grow to. */
  roomOf(state: StateId): Tokens {
    return (this.#states.get(state)?.running?.grant ?? 0) * this.#memory.granule
  }

  start(state: StateId, call: CallId, keepTokens: Tokens, grant: Granules): string | null {
    const resident = this.#states.get(state)
    if (resident?.running) return `${state} is run by ${resident.running.call} and was started for ${call}`
    if (resident?.moving) return `${state} was started while it is being copied`
    if (keepTokens > (resident?.tokens ?? 0)) {
      return `${state} has ${resident?.tokens ?? 0} tokens and ${keepTokens} were to be kept`
    }
    const short = this.#shortage(state, grant)
    if (short !== null) return short
    this.#states.set(state, { tokens: keepTokens, running: { call, grant }, moving: false, mark: null })
    return null
  }

  grant(call: CallId, grant: Granules): string | null {
    for (const [state, { running }] of this.#states) {
      if (running?.call !== call) continue
      const short = this.#shortage(state, grant)
      if (short === null) running.grant = grant
      return short
    }
    return null
  }

  grow(state: StateId, tokens: Tokens): void {
    const resident = this.#states.get(state)
    if (resident !== undefined) resident.tokens += tokens
  }

  /** The call is off; at most `keepTokens` stay. */
  stop(state: StateId, keepTokens: Tokens): void {
    const resident = this.#states.get(state)
    if (resident === undefined) return
    resident.running = null
    resident.tokens = Math.min(resident.tokens, keepTokens)
  }

  /** A copy out begins; its spans say that it has `tokens`. */
  copyOut(state: StateId, tokens: Tokens): string | null {
    const resident = this.#states.get(state)
    if (resident === undefined) return `${state} is not on the device and was to be offloaded`
    if (resident.running) return `${state} is run by ${resident.running.call} and was to be offloaded`
    if (tokens !== resident.tokens) return `${state} has ${resident.tokens} tokens and its spans say ${tokens}`
    resident.moving = true
    return null
  }

  /** A copy in begins; its granules are taken at once. */
  copyIn(state: StateId, tokens: Tokens): string | null {
    if (this.#states.has(state)) return `${state} is on the device and was to be onboarded`
    const short = this.#shortage(state, this.#granules(tokens))
    if (short === null) this.#states.set(state, { tokens, running: null, moving: true, mark: null })
    return short
  }

  moved(state: StateId): void {
    const resident = this.#states.get(state)
    if (resident !== undefined) resident.moving = false
  }

  discard(state: StateId): string | null {
    const running = this.#states.get(state)?.running
    if (running) return `${state} is run by ${running.call} and was to be discarded`
    this.#states.delete(state)
    return null
  }

  /** It ended as a whole: should the control plane be gone, this is what the next may ask for. */
  mark(state: StateId, epoch: number, digest: string): void {
    const resident = this.#states.get(state)
    if (resident !== undefined) resident.mark = { epoch, digest }
  }

  /** All that can be named; the rest nobody can ask for, and it goes. */
  inventory(): Held[] {
    const held: Held[] = []
    for (const [state, { tokens, mark, moving, running }] of [...this.#states]) {
      if (mark === null || moving || running !== null) this.#states.delete(state)
      else held.push({ state, tokens, ...mark })
    }
    return held
  }

  clear(): void {
    this.#states.clear()
  }

  #granules(tokens: Tokens): Granules {
    return Math.ceil(tokens / this.#memory.granule)
  }

  #shortage(state: StateId, granules: Granules): string | null {
    const others = [...this.#states].filter(([id]) => id !== state)
    const used = others.reduce((sum, [, { tokens, running }]) => (
      sum + Math.max(this.#granules(tokens), running?.grant ?? 0)
    ), 0)
    const total = Math.floor(this.#memory.cells / this.#memory.granule)
    if (used + granules > total) {
      return `${state} was given ${granules} granules and ${total - used} of ${total} are free`
    }
    if (others.length + 1 > this.#memory.sequences) {
      return `${state} would be one more than ${this.#memory.sequences} sequences`
    }
    return null
  }
}
