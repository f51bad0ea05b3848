/** Owns finding rules that no finite text fits: a recursion that has no way out. */

type Token = string
const TOKENS = /"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|[a-zA-Z][a-zA-Z0-9-]*|[()|*?+]/g

/** The name of such a rule; null where there is none. Reads what `Rules` writes. */
export function endlessRule(rules: ReadonlyMap<string, string>): string | null {
  const open = new Map([...rules].map(([name, body]) => [name, body.match(TOKENS) ?? []]))
  for (let ended = 1; ended > 0;) {
    ended = 0
    for (const [name, tokens] of open) {
      if (!new Body(tokens, (other) => !open.has(other)).ends()) continue
      open.delete(name)
      ended++
    }
  }
  const [first] = open.keys()
  return first ?? null
}

class Body {
  readonly #tokens: readonly Token[]
  readonly #ended: (rule: string) => boolean
  #at = 0

  constructor(tokens: readonly Token[], ended: (rule: string) => boolean) {
    this.#tokens = tokens
    this.#ended = ended
  }

  /** Whether a finite text fits one of the alternatives. */
  ends(): boolean {
    let some = this.#sequence()
    while (this.#tokens[this.#at] === '|') {
      this.#at++
      // Both are read, whatever is known already.
      some = this.#sequence() || some
    }
    return some
  }

  #sequence(): boolean {
    let all = true
    for (;;) {
      const token = this.#tokens[this.#at]
      if (token === undefined || token === '|' || token === ')') return all
      this.#at++
      let item = token.startsWith('"') || token.startsWith('[') || this.#ended(token)
      if (token === '(') {
        item = this.ends()
        this.#at++
      }
      const next = this.#tokens[this.#at] ?? ''
      const isRepeat = /^[*?+{]/.test(next)
      if (isRepeat) this.#at++
      all = (item || (isRepeat && /^[*?]|^\{0[,}]/.test(next))) && all
    }
  }
}
