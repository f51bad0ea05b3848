/**
 * Owns one grammar's place in its text, over the library's own grammar sampler. Leaves what a grammar says to its
 * author and which token is drawn to the sampler.
 *
 * G1 a token is given to the library only after it has said that the grammar allows it: the library answers a refused
 *    token by an exception that ends the process.
 * G2 a control token that does not end generation is never allowed, although its text might fit: nobody would see it.
 */
import koffi from 'koffi'
import { LlamaError } from './error.ts'
import type { Functions } from './functions.ts'
import { TOKEN_DATA_ARRAY_BYTES, TOKEN_DATA_BYTES } from './layout.ts'
import type { Pointer } from './layout.ts'

/** At one token a grammar may take as long; one that takes longer opens too many ways at once. */
const TOKEN_MS_MAX = 1_000

/** What a vocabulary says of a token. */
export const TOKEN_EOG = 1
export const TOKEN_CONTROL = 2

/** One array of candidates, made once and used by every grammar of a model. */
export class Candidates {
  readonly #data: Pointer
  readonly #array: Pointer
  readonly #ids: Int32Array
  readonly #logits: Float32Array
  readonly #head: BigUint64Array
  readonly #sorted: Uint8Array
  readonly vocabSize: number

  constructor(vocabSize: number) {
    this.vocabSize = vocabSize
    this.#data = koffi.alloc('uint8_t', vocabSize * TOKEN_DATA_BYTES) as Pointer
    this.#array = koffi.alloc('uint8_t', TOKEN_DATA_ARRAY_BYTES) as Pointer
    const data = koffi.view(this.#data, vocabSize * TOKEN_DATA_BYTES)
    this.#ids = new Int32Array(data)
    this.#logits = new Float32Array(data)
    const head = koffi.view(this.#array, TOKEN_DATA_ARRAY_BYTES)
    this.#head = new BigUint64Array(head)
    this.#sorted = new Uint8Array(head)
  }

  /** Asks about one token. */
  one(fn: Functions, sampler: Pointer, token: number): boolean {
    this.#ids[0] = token
    this.#logits[1] = 0
    this.#apply(fn, sampler, 1)
    return this.#logits[1] !== -Infinity
  }

  /** Asks about every token that still has a chance, and takes it from those refused. */
  all(fn: Functions, sampler: Pointer, logits: Float32Array): void {
    let count = 0
    for (let token = 0; token < this.vocabSize; token++) {
      if (logits[token] === -Infinity) continue
      this.#ids[count * 3] = token
      this.#logits[count * 3 + 1] = 0
      count++
    }
    if (count === 0) return
    this.#apply(fn, sampler, count)
    for (let index = 0; index < count; index++) {
      if (this.#logits[index * 3 + 1] === -Infinity) logits[this.#ids[index * 3] ?? 0] = -Infinity
    }
  }

  #apply(fn: Functions, sampler: Pointer, count: number): void {
    this.#head[0] = this.#data
    this.#head[1] = BigInt(count)
    this.#head[2] = 0xffff_ffff_ffff_ffffn
    this.#sorted[24] = 0
    fn.samplerApply(sampler, this.#array)
  }

  dispose(): void {
    koffi.free(this.#data)
    koffi.free(this.#array)
  }
}

/** What a grammar needs of its model. */
interface GrammarHost {
  readonly fn: Functions
  readonly candidates: Candidates
  /** TOKEN_EOG and TOKEN_CONTROL, by token. */
  readonly flags: Uint8Array
  /** False once the model is gone. */
  readonly alive: () => boolean
}

export class Grammar {
  readonly #host: GrammarHost
  #sampler: Pointer | null
  /** True once it took longer than TOKEN_MS_MAX. */
  slow = false

  constructor(host: GrammarHost, sampler: Pointer) {
    this.#host = host
    this.#sampler = sampler
  }

  allows(token: number): boolean {
    const flags = this.#host.flags[token]
    if (flags === undefined || flags === TOKEN_CONTROL) return false
    return this.#host.candidates.one(this.#host.fn, this.#live(), token)
  }

  /** Sets the logits of refused tokens to -Infinity in place. */
  mask(logits: Float32Array): void {
    const { candidates, flags, fn } = this.#host
    if (logits.length !== candidates.vocabSize) {
      throw new LlamaError('decode', `a row of ${logits.length} logits for a vocabulary of ${candidates.vocabSize}`)
    }
    for (let token = 0; token < flags.length; token++) if (flags[token] === TOKEN_CONTROL) logits[token] = -Infinity
    const begunMs = performance.now()
    candidates.all(fn, this.#live(), logits)
    this.#took(begunMs)
  }

  /** Moves on by a token that the grammar allows; throws for another. */
  accept(token: number): void {
    if (!this.allows(token)) {
      throw new LlamaError('decode', `token ${token} does not fit the grammar at this place`)
    }
    const begunMs = performance.now()
    this.#host.fn.samplerAccept(this.#live(), token)
    this.#took(begunMs)
  }

  clone(): Grammar {
    const copy = this.#host.fn.samplerClone(this.#live())
    if (copy === null) throw new LlamaError('memory', 'a grammar could not be copied')
    return new Grammar(this.#host, copy)
  }

  dispose(): void {
    if (this.#sampler === null) return
    this.#host.fn.samplerFree(this.#sampler)
    this.#sampler = null
  }

  #took(begunMs: number): void {
    if (performance.now() - begunMs > TOKEN_MS_MAX) this.slow = true
  }

  #live(): Pointer {
    if (this.#sampler === null) throw new LlamaError('decode', 'a grammar was used after it was disposed of')
    if (!this.#host.alive()) throw new LlamaError('decode', 'a grammar was used after its model was disposed of')
    return this.#sampler
  }
}
