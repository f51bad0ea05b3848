/**
 * Owns one grammar's place in a text of tokens: which tokens may come next, and moving on by one. Leaves what a grammar
 * says to its author, characters to `machine.ts`, and which token is drawn to the sampler.
 *
 * G1 what is allowed is a function of the grammar and of the tokens so far (E2).
 * G2 a control token that does not end generation is allowed only where it is read as its text, as the marks of calls
 *    are: of any other nobody would see what it spells.
 * G3 bytes that are no UTF-8 are not allowed, nor those that begin a character which does not fit.
 * G4 where a grammar is too much for the machine (its A1), nothing is allowed any more and `fault` says why.
 */
import type { Machine, State } from './machine.ts'
import { GrammarError } from './schema-error.ts'
import type { TokenBytes } from './token-bytes.ts'

/** For the states of one grammar; more than this is forgotten. */
const MASKS_BYTES_MAX = 4 * 1024 * 1024

const SURROGATE_FIRST = 0xd800
const SURROGATE_LAST = 0xdfff
const POINT_MAX = 0x10ffff

/** A place between two bytes: a state, and the character that began before it, if its bytes are not all there. */
interface Place {
  readonly state: State
  /** Of that character: bits so far, bytes still to come, and the least it may be. */
  readonly bits: number
  readonly left: number
  readonly least: number
}

/** A grammar that was read. Several calls may use it at a time. */
export class ReadGrammar {
  readonly machine: Machine
  readonly tokens: TokenBytes
  #masks = new Map<State, Uint32Array>()
  #age = 0

  constructor(machine: Machine, tokens: TokenBytes) {
    this.machine = machine
    this.tokens = tokens
  }

  /** Throws GrammarError. */
  start(): Place {
    this.machine.begin()
    return { state: this.machine.start(), bits: 0, left: 0, least: 0 }
  }

  /** The place after a token; null where it is not allowed. Throws GrammarError. */
  after(place: Place, token: number): Place | null {
    const { places, begins, bytes } = this.tokens
    const at = places[token] ?? -1
    if (at === -1) return null
    let reached: Place | null = place
    for (let i = begins[at] ?? 0; reached !== null && i < (begins[at + 1] ?? 0); i++) reached = this.#step(reached, bytes[i] ?? 0)
    return reached !== null && this.#mayStop(reached) ? reached : null
  }

  mayEnd(place: Place): boolean {
    return place.left === 0 && place.state.ends
  }

  /** A bit for each token that is allowed. Throws GrammarError. */
  mask(place: Place): Uint32Array {
    if (place.left > 0) return this.#made(place)
    if (this.#age !== this.machine.age) this.#masks = new Map()
    this.#age = this.machine.age
    const known = this.#masks.get(place.state)
    if (known !== undefined) return known
    const made = this.#made(place)
    if ((this.#masks.size + 1) * made.byteLength > MASKS_BYTES_MAX) this.#masks = new Map()
    this.#masks.set(place.state, made)
    return made
  }

  #made(from: Place): Uint32Array {
    const { tokens, begins, bytes, shared, ends, vocabSize } = this.tokens
    const mask = new Uint32Array(Math.ceil(vocabSize / 32))
    const allow = (token: number): void => {
      mask[token >>> 5] = (mask[token >>> 5] ?? 0) | (1 << (token & 31))
    }
    /** By number of bytes of the token at hand. */
    const reached: Place[] = [from]
    /** Tokens that begin with so many of its bytes are not allowed. */
    let barredAt = Infinity
    for (let at = 0; at < tokens.length; at++) {
      const common = shared[at] ?? 0
      if (common >= barredAt) continue
      barredAt = Infinity
      const begin = begins[at] ?? 0
      const length = (begins[at + 1] ?? 0) - begin
      let place: Place | null = reached[common] ?? null
      for (let i = common; place !== null && i < length; i++) {
        place = this.#step(place, bytes[begin + i] ?? 0)
        if (place === null) barredAt = i + 1
        else reached[i + 1] = place
      }
      if (place !== null && this.#mayStop(place)) allow(tokens[at] ?? 0)
    }
    if (this.mayEnd(from)) for (const token of ends) allow(token)
    return mask
  }

  /** Null: the byte is not allowed. */
  #step({ state, bits, left, least }: Place, byte: number): Place | null {
    if (left === 0) {
      if (byte < 0x80) return this.#read(state, byte)
      if (byte < 0xc2 || byte > 0xf4) return null
      if (byte < 0xe0) return { state, bits: byte & 0x1f, left: 1, least: 0x80 }
      if (byte < 0xf0) return { state, bits: byte & 0x0f, left: 2, least: 0x800 }
      return { state, bits: byte & 0x07, left: 3, least: 0x10000 }
    }
    if ((byte & 0xc0) !== 0x80) return null
    const more = bits << 6 | (byte & 0x3f)
    if (left > 1) return { state, bits: more, left: left - 1, least }
    return more < least || more > POINT_MAX || isSurrogate(more) ? null : this.#read(state, more)
  }

  #read(state: State, point: number): Place | null {
    const { machine } = this
    const next = machine.next(state, machine.classOf(point))
    return next === null ? null : { state: next, bits: 0, left: 0, least: 0 }
  }

  /** A token may end here: some character that begins as this one did is allowed. */
  #mayStop({ state, bits, left, least }: Place): boolean {
    if (left === 0) return true
    const low = Math.max(bits << (6 * left), least)
    const high = Math.min(((bits + 1) << (6 * left)) - 1, POINT_MAX)
    return isSurrogate(low)
      ? this.#some(state, SURROGATE_LAST + 1, high)
      : this.#some(state, low, high >= SURROGATE_FIRST && low < SURROGATE_FIRST ? SURROGATE_FIRST - 1 : high)
        || (low < SURROGATE_FIRST && this.#some(state, SURROGATE_LAST + 1, high))
  }

  #some(state: State, low: number, high: number): boolean {
    const { machine } = this
    if (low > high) return false
    for (let each = machine.classOf(low); each <= machine.classOf(high); each++) if (machine.next(state, each) !== null) return true
    return false
  }
}

const isSurrogate = (point: number): boolean => point >= SURROGATE_FIRST && point <= SURROGATE_LAST

/** Moves with the tokens of one text. */
export class TokenGrammar {
  readonly #read: ReadGrammar
  #place: Place
  /** Why nothing is allowed any more. */
  fault: string | null = null

  /** Throws GrammarError. */
  constructor(read: ReadGrammar) {
    this.#read = read
    this.#place = read.start()
  }

  allows(token: number): boolean {
    if (this.#read.tokens.ends.includes(token)) return this.#read.mayEnd(this.#place)
    return this.#tried(() => this.#read.after(this.#place, token)) !== null
  }

  /** Sets the logits of refused tokens to -Infinity in place. */
  mask(logits: Float32Array): void {
    const mask = this.#tried(() => this.#read.mask(this.#place))
    for (let token = 0; token < logits.length; token++) {
      if (mask === null || ((mask[token >>> 5] ?? 0) & (1 << (token & 31))) === 0) logits[token] = -Infinity
    }
  }

  /** Moves on by a token that is allowed, or stays where it ends the text; throws GrammarError for another. */
  accept(token: number): void {
    if (this.#read.tokens.ends.includes(token) && this.#read.mayEnd(this.#place)) return
    const after = this.#tried(() => this.#read.after(this.#place, token))
    if (after === null) throw new GrammarError(this.fault ?? `token ${token} does not fit the grammar at this place`)
    this.#place = after
  }

  #tried<T>(work: () => T | null): T | null {
    if (this.fault !== null) return null
    const { machine } = this.#read
    machine.begin()
    try {
      const state = machine.adopt(this.#place.state)
      if (state !== this.#place.state) this.#place = { ...this.#place, state }
      return work()
    } catch (error) {
      if (!(error instanceof GrammarError)) throw error
      this.fault = error.message
      return null
    }
  }
}
