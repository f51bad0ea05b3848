/**
 * Owns the grammars an engine has read: those used last are kept, with what was worked out of them, since an agent's
 * calls have the same one again and again.
 */
import { readGbnf } from './gbnf.ts'
import { Machine } from './machine.ts'
import { TokenBytes } from './token-bytes.ts'
import type { Vocabulary } from './token-bytes.ts'
import { ReadGrammar, TokenGrammar } from './token-grammar.ts'

const KEPT_MAX = 8

export class Grammars {
  readonly #vocabulary: Vocabulary
  readonly #tags: ReadonlySet<string>
  #tokens: TokenBytes | null = null
  /** By their text, the one used last at the end. */
  readonly #kept = new Map<string, ReadGrammar>()

  /** `tags`: control tokens that are read as their text. */
  constructor(vocabulary: Vocabulary, tags: ReadonlySet<string> = new Set()) {
    this.#vocabulary = vocabulary
    this.#tags = tags
  }

  /** A grammar at its beginning. Throws GrammarError where the text is none, or opens too many ways. */
  begin(gbnf: string): TokenGrammar {
    const read = this.#kept.get(gbnf) ?? this.#read(gbnf)
    this.#kept.delete(gbnf)
    this.#kept.set(gbnf, read)
    const [oldest] = this.#kept.keys()
    if (this.#kept.size > KEPT_MAX && oldest !== undefined) this.#kept.delete(oldest)
    return new TokenGrammar(read)
  }

  #read(gbnf: string): ReadGrammar {
    const machine = new Machine(readGbnf(gbnf))
    machine.check()
    this.#tokens ??= new TokenBytes(this.#vocabulary, this.#tags)
    return new ReadGrammar(machine, this.#tokens)
  }
}
