/**
 * Owns arithmetic for agents: + - * / % ^, parentheses, decimals. A parser of its own, since what a model writes is
 * never evaluated as code.
 */
type Calculation = { readonly ok: true; readonly value: number } | { readonly ok: false; readonly why: string }

const EXPRESSION_CHARACTERS_MAX = 200
const NESTING_MAX = 32

export function calculate(expression: string): Calculation {
  if (expression.length > EXPRESSION_CHARACTERS_MAX) return { ok: false, why: `longer than ${EXPRESSION_CHARACTERS_MAX} characters` }
  try {
    const value = new Reader(expression).whole()
    return Number.isFinite(value) ? { ok: true, value } : { ok: false, why: 'the result is not a finite number' }
  } catch (error) {
    if (error instanceof ExpressionError) return { ok: false, why: error.message }
    throw error
  }
}

class ExpressionError extends Error {}

const TOKEN = /\s*(\d+\.?\d*|\.\d+|[-+*/%^()])/y

class Reader {
  readonly #tokens: string[] = []
  #at = 0
  #depth = 0

  constructor(text: string) {
    const trimmed = text.trimEnd()
    TOKEN.lastIndex = 0
    while (TOKEN.lastIndex < trimmed.length) {
      const start = TOKEN.lastIndex
      const found = TOKEN.exec(trimmed)
      if (found?.[1] === undefined) throw new ExpressionError(`cannot read ${JSON.stringify(trimmed.slice(start, start + 12))}`)
      this.#tokens.push(found[1])
    }
  }

  whole(): number {
    const value = this.#sum()
    const left = this.#tokens[this.#at]
    if (left !== undefined) throw new ExpressionError(`did not expect ${left}`)
    return value
  }

  #sum(): number {
    let value = this.#product()
    for (let sign = this.#take('+', '-'); sign !== null; sign = this.#take('+', '-')) {
      const right = this.#product()
      value = sign === '+' ? value + right : value - right
    }
    return value
  }

  #product(): number {
    let value = this.#signed()
    for (let sign = this.#take('*', '/', '%'); sign !== null; sign = this.#take('*', '/', '%')) {
      const right = this.#signed()
      value = sign === '*' ? value * right : sign === '/' ? value / right : value % right
    }
    return value
  }

  #signed(): number {
    return this.#nested(() => {
      const sign = this.#take('-', '+')
      if (sign === null) return this.#power()
      return sign === '-' ? -this.#signed() : this.#signed()
    })
  }

  #power(): number {
    const base = this.#atom()
    return this.#take('^') === null ? base : base ** this.#signed()
  }

  #atom(): number {
    if (this.#take('(') !== null) {
      const value = this.#sum()
      if (this.#take(')') === null) throw new ExpressionError('a parenthesis is not closed')
      return value
    }
    const token = this.#tokens[this.#at]
    if (token === undefined) throw new ExpressionError('it ends too early')
    if (!/^[\d.]/.test(token)) throw new ExpressionError(`did not expect ${token}`)
    this.#at += 1
    return Number(token)
  }

  /** Bounds the stack whatever is written. */
  #nested(read: () => number): number {
    this.#depth += 1
    if (this.#depth > NESTING_MAX) throw new ExpressionError('nested too deeply')
    const value = read()
    this.#depth -= 1
    return value
  }

  #take(...wanted: readonly string[]): string | null {
    const token = this.#tokens[this.#at]
    if (token === undefined || !wanted.includes(token)) return null
    this.#at += 1
    return token
  }
}
