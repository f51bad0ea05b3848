/**
 * Owns the reading of a source file into tokens, so that no rule is fooled by a string, a comment, a regular expression
 * or a template. Leaves meaning to `modules.ts` and `rules.ts`.
 *
 * It knows just enough of the language: text inside `${}` is code again, and a slash begins a regular expression where
 * no operand stands before it.
 */
export interface Token {
  readonly kind: 'word' | 'number' | 'string' | 'template' | 'regex' | 'punct' | 'comment'
  readonly text: string
  readonly line: number
}

const SPACE = /\s+/y
const COMMENT = /\/\/[^\n]*|\/\*[^]*?\*\/|#![^\n]*/y
const STRING = /'(?:[^'\\\n]|\\[^])*'|"(?:[^"\\\n]|\\[^])*"/y
const NUMBER = /\d[\w.]*/y
const WORD = /[#@]?[\p{ID_Start}$_][\p{ID_Continue}$]*/uy
const REGEX = /\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y
const TEMPLATE_TEXT = /(?:[^`\\$]|\\[^]|\$(?!\{))*/y
const PUNCT = /=>|\?\.|\?\?|\.\.\.|&&|\|\||[^]/y

const BEFORE_OPERAND = new Set([
  'return', 'typeof', 'case', 'in', 'of', 'new', 'delete', 'void', 'throw', 'await', 'yield', 'else', 'do', 'instanceof',
])
const HEADED = new Set(['if', 'while', 'for', 'with'])

class Reader {
  readonly source: string
  readonly tokens: Token[] = []
  at = 0
  line = 1
  /** Word before each open parenthesis: tells `if (x) /re/` from `f(x) / 2`. */
  readonly heads: string[] = []
  closedHead = ''
  /** Open braces; true where one was opened by `${`. */
  readonly braces: boolean[] = []
  last: Token | null = null

  constructor(source: string) {
    this.source = source
  }

  match(pattern: RegExp): string | null {
    pattern.lastIndex = this.at
    return pattern.exec(this.source)?.[0] ?? null
  }

  take(kind: Token['kind'], text: string): void {
    const token: Token = { kind, text, line: this.line }
    this.skip(text)
    if (kind !== 'comment') this.last = token
    this.tokens.push(token)
  }

  skip(text: string): void {
    this.at += text.length
    for (const character of text) if (character === '\n') this.line++
  }

  operandComes(): boolean {
    const { last } = this
    if (last === null) return true
    if (last.kind === 'word') return BEFORE_OPERAND.has(last.text)
    if (last.kind !== 'punct') return false
    if (last.text === ')') return HEADED.has(this.closedHead)
    return last.text !== ']'
  }

  punct(text: string): void {
    if (text === '(') this.heads.push(this.last?.kind === 'word' ? this.last.text : '')
    if (text === ')') this.closedHead = this.heads.pop() ?? ''
    if (text === '{') this.braces.push(false)
    const closesTemplate = text === '}' && this.braces.pop() === true
    this.take('punct', text)
    if (closesTemplate) this.templateText()
  }

  /** After a backtick, or after the brace that ends a `${}`. */
  templateText(): void {
    this.take('template', this.match(TEMPLATE_TEXT) ?? '')
    if (this.source.startsWith('${', this.at)) {
      this.skip('$')
      this.braces.push(true)
      this.take('punct', '{')
    } else {
      this.skip('`')
      this.last = { kind: 'template', text: '`', line: this.line }
    }
  }

  next(): void {
    const space = this.match(SPACE)
    if (space !== null) return this.skip(space)
    const comment = this.match(COMMENT)
    if (comment !== null && (!comment.startsWith('#') || this.at === 0)) return this.take('comment', comment)
    if (this.source[this.at] === '`') {
      this.skip('`')
      return this.templateText()
    }
    if (this.source[this.at] === '/' && this.operandComes()) {
      const regex = this.match(REGEX)
      if (regex !== null) return this.take('regex', regex)
    }
    for (const [kind, pattern] of [['string', STRING], ['number', NUMBER], ['word', WORD]] as const) {
      const text = this.match(pattern)
      if (text !== null) return this.take(kind, text)
    }
    this.punct(this.match(PUNCT) ?? '')
  }
}

export function tokensOf(source: string): readonly Token[] {
  const reader = new Reader(source)
  while (reader.at < source.length) reader.next()
  return reader.tokens
}

/** For every opening bracket the place of its closing one, and the other way round. */
export function bracketsOf(code: readonly Token[]): ReadonlyMap<number, number> {
  const pairs = new Map<number, number>()
  const open: number[] = []
  code.forEach((token, place) => {
    if (token.kind !== 'punct') return
    if ('([{'.includes(token.text)) open.push(place)
    if (')]}'.includes(token.text)) {
      const from = open.pop()
      if (from !== undefined) pairs.set(from, place).set(place, from)
    }
  })
  return pairs
}
