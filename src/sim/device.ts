/**
 * Owns an engine's device memory: which State lies there, fed with what, who runs on it, what was granted. A command that
 * does not fit what lies there is a breach by whoever gave it, answered with its description and nothing changed.
 *
 * L1 granules of all States fit the device: the grant of a running one, the filled ones of the others. L2 no more States
 * than sequences. L3 one call runs a State. L4 nobody keeps tokens that are not there.
 */
import type { CallId, StateId } from '../core/ids.ts'
import type { Held } from '../core/input.ts'
import type { EngineMemory, Origin } from '../core/state.ts'
import type { Granules, Tokens } from '../core/units.ts'
import { addRun, cutRuns, EMPTY_DIGEST, fedDigest, type Run } from './content.ts'

/** KV of one State: the digest of every position, and how each was fed. */
export class Kv {
  #digests: Int32Array
  tokens: Tokens
  runs: Run[]

  constructor(digests: Int32Array, runs: Run[], tokens: Tokens) {
    this.#digests = digests
    this.tokens = tokens
    this.runs = runs
  }

  feed(token: number, origin: Origin): void {
    if (this.tokens === this.#digests.length) {
      const larger = new Int32Array(Math.max(64, this.tokens * 2))
      larger.set(this.#digests)
      this.#digests = larger
    }
    this.#digests[this.tokens] = fedDigest(this.last, token, origin)
    this.tokens += 1
    addRun(this.runs, origin, 1)
  }

  /** Tokens that nobody looks at. */
  skip(tokens: Tokens, origin: Origin): void {
    this.tokens += tokens
    addRun(this.runs, origin, tokens)
  }

  /** Of the last position: what the next token depends on. */
  get last(): number {
    return this.at(this.tokens)
  }

  at(tokens: Tokens): number {
    return tokens === 0 ? EMPTY_DIGEST : (this.#digests[tokens - 1] ?? 0) >>> 0
  }

  cut(tokens: Tokens): void {
    if (tokens >= this.tokens) return
    this.tokens = tokens
    this.runs = cutRuns(this.runs, tokens)
  }

  copy(tokens: Tokens): Kv {
    return new Kv(this.#digests.slice(0, tokens), cutRuns(this.runs, tokens), tokens)
  }

  /** As a bad chip would. */
  spoil(place: Tokens): void {
    if (place < this.tokens) this.#digests[place] = (this.#digests[place] ?? 0) ^ 0x5bad
  }

  /** Over all of it, as an image's digest is. */
  checksum(): string {
    let sum = this.tokens
    for (let place = 0; place < Math.min(this.tokens, this.#digests.length); place += 1) sum = Math.imul(sum ^ (this.#digests[place] ?? 0), 0x01000193) ^ (sum >>> 13)
    return (sum >>> 0).toString(16)
  }
}

export interface Resident {
  readonly lane: number
  readonly kv: Kv
  running: { readonly call: CallId; grant: Granules } | null
  moving: boolean
  /** What it was when a call of it ended as a whole. */
  mark: { readonly epoch: number; readonly tokens: Tokens } | null
}

export class Device {
  readonly memory: EngineMemory
  readonly states = new Map<StateId, Resident>()

  constructor(memory: EngineMemory) {
    this.memory = memory
  }

  start(state: StateId, call: CallId, keepTokens: Tokens, grant: Granules): Resident | string {
    const there = this.states.get(state)
    if (there?.running) return `${state} is run by ${there.running.call} and was started for ${call}`
    if (there?.moving === true) return `${state} was started while it is being copied`
    if (keepTokens > (there?.kv.tokens ?? 0)) return `${state} has ${there?.kv.tokens ?? 0} tokens and ${keepTokens} were to be kept`
    const short = this.#shortage(state, grant)
    if (short !== null) return short
    const resident = there ?? this.#take(state, new Kv(new Int32Array(0), [], 0))
    resident.kv.cut(keepTokens)
    resident.running = { call, grant }
    resident.mark = null
    return resident
  }

  grant(state: StateId, grant: Granules): string | null {
    const running = this.states.get(state)?.running
    const short = running == null ? null : this.#shortage(state, grant)
    if (running != null && short === null) running.grant = grant
    return short
  }

  /** The call is off; at most `keepTokens` stay. */
  stop(state: StateId, keepTokens: Tokens): void {
    const there = this.states.get(state)
    if (there === undefined) return
    there.running = null
    there.kv.cut(keepTokens)
  }

  copyOut(state: StateId, tokens: Tokens): Resident | string {
    const there = this.states.get(state)
    if (there === undefined) return `${state} is not on the device and was to be offloaded`
    if (there.running) return `${state} is run by ${there.running.call} and was to be offloaded`
    // More may lie there: what a call fed that came to nothing is cut by whoever reads next.
    if (tokens > there.kv.tokens) return `${state} has ${there.kv.tokens} tokens and its spans say ${tokens}`
    there.moving = true
    return there
  }

  copyIn(state: StateId, kv: Kv): string | null {
    if (this.states.has(state)) return `${state} is on the device and was to be onboarded`
    const short = this.#shortage(state, this.#granules(kv.tokens))
    if (short === null) this.#take(state, kv).moving = true
    return short
  }

  discard(state: StateId): string | null {
    const running = this.states.get(state)?.running
    if (running) return `${state} is run by ${running.call} and was to be discarded`
    this.states.delete(state)
    return null
  }

  mark(state: StateId, epoch: number): void {
    const there = this.states.get(state)
    if (there !== undefined) there.mark = { epoch, tokens: there.kv.tokens }
  }

  /** All that can be named, for whoever takes the engine over; the rest goes. */
  inventory(): Held[] {
    const held: Held[] = []
    for (const [state, { kv, mark, moving, running }] of [...this.states]) {
      if (mark === null || mark.tokens !== kv.tokens || moving || running !== null) this.states.delete(state)
      else held.push({ state, epoch: mark.epoch, tokens: kv.tokens, digest: kv.last.toString(16) })
    }
    return held
  }

  #take(state: StateId, kv: Kv): Resident {
    const taken = new Set([...this.states.values()].map(({ lane }) => lane))
    let lane = 0
    while (taken.has(lane)) lane += 1
    const resident: Resident = { lane, kv, running: null, moving: false, mark: null }
    this.states.set(state, resident)
    return resident
  }

  #granules(tokens: Tokens): Granules {
    return Math.ceil(tokens / this.memory.granule)
  }

  #shortage(state: StateId, granules: Granules): string | null {
    let used = 0
    let others = 0
    for (const [id, { kv, running }] of this.states) {
      if (id === state) continue
      others += 1
      used += Math.max(this.#granules(kv.tokens), running?.grant ?? 0)
    }
    const total = Math.floor(this.memory.cells / this.memory.granule)
    if (used + granules > total) return `${state} was given ${granules} granules and ${total - used} of ${total} are free`
    if (others + 1 > this.memory.sequences) return `${state} would be one more than ${this.memory.sequences} sequences`
    return null
  }
}
