/**
 * Owns the grammar of calls that the model may make and need not: nothing is held until it opens a call, then that call
 * is, and those that follow it, to the end of the answer.
 *
 * Y1 whether a call is open is the reader's word (`tools.ts`), so what is held is what is read as a call.
 * Y2 what was written before the opening was noticed (a token may spell more than the opening) must fit; where it does
 *    not, this section stays free: it is no worse than without. So do tools whose schemas cannot be held.
 * Y3 a function of the tokens given, so a resume that gives the shown ones is where it was (E2).
 */
import type { TokenGrammar } from './sampler.ts'

/** A grammar that moves with the tokens. */
export interface MovingGrammar extends TokenGrammar {
  /** Why it allows nothing any more. */
  readonly fault: string | null
  accept(token: number): void
}

interface LazyOptions {
  /** Null: these calls cannot be held. */
  readonly make: () => MovingGrammar | null
  readonly tokenize: (text: string) => Iterable<number>
  /** Text of the open section from its opening on; null where none is open. */
  readonly opened: () => string | null
}

export class LazyGrammar implements MovingGrammar {
  readonly #options: LazyOptions
  #held: MovingGrammar | null = null
  /** The open section was found not to fit. */
  #passedOver = false
  #impossible = false

  constructor(options: LazyOptions) {
    this.#options = options
  }

  get fault(): string | null {
    return this.#held?.fault ?? null
  }

  allows(token: number): boolean {
    return this.#held?.allows(token) ?? true
  }

  mask(logits: Float32Array): void {
    this.#held?.mask(logits)
  }

  accept(token: number): void {
    this.#held?.accept(token)
  }

  /** To be asked after the reader has read a token. */
  look(): void {
    const text = this.#held === null && !this.#impossible ? this.#options.opened() : null
    if (text === null) {
      this.#passedOver = false
      return
    }
    if (this.#passedOver) return
    const grammar = this.#options.make()
    this.#impossible = grammar === null
    if (grammar === null) return
    for (const token of this.#options.tokenize(text)) {
      if (!grammar.allows(token)) {
        this.#passedOver = true
        return
      }
      grammar.accept(token)
    }
    this.#held = grammar
  }
}
