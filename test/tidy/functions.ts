/** Owns the finding of functions and their lengths, signature to closing brace. */
import { bracketsOf, type Token } from './tokens.ts'

export interface FunctionSpan {
  readonly name: string
  readonly line: number
  readonly lines: number
  /** It holds tests: a group of them, whatever its length. */
  readonly groupsTests: boolean
}

const GROUPED = /^(test|describe|it)$/
const STATEMENTS = new Set(['if', 'while', 'for', 'with', 'switch', 'catch', 'await'])
const TYPE_CONTINUES = new Set(['|', '&', ':', ',', '=>', '?', '.', 'is', 'keyof', 'readonly', 'typeof', 'asserts', 'extends', 'infer', 'new', '<'])
/** Where one stands, the type ended before, without a body: the function is an arrow, or only declared. */
const NOT_IN_TYPES = new Set(['class', 'const', 'let', 'export', 'import', 'function', 'return', 'if', 'for', 'while', 'describe', 'test'])
/** At the end or the start of a line, one of these joins it to its neighbour. */
const JOINS = new Set(['.', '?.', '?', ':', '??', '&&', '||', '+', '-', '*', '/', '|', '&', '=', '=>', ',', '<', '>', 'satisfies', 'as', 'in', 'instanceof'])

export function functionsOf(code: readonly Token[]): FunctionSpan[] {
  const pairs = bracketsOf(code)
  const found: FunctionSpan[] = []
  code.forEach((token, place) => {
    if (token.text === '=>' && token.kind === 'punct') {
      const end = arrowEnd(code, pairs, place)
      found.push(span(code, arrowStart(code, pairs, place), end))
    }
    if (token.text === '(' && token.kind === 'punct') {
      const end = bodyEnd(code, pairs, place)
      if (end !== null) found.push(span(code, Math.max(0, place - 1), end))
    }
  })
  return found
}

function span(code: readonly Token[], start: number, end: number): FunctionSpan {
  const line = code[start]?.line ?? 0
  const name = code[start]?.kind === 'word' ? code[start].text : 'a function'
  const groupsTests = code.slice(start + 1, end).some((token, at) => GROUPED.test(token.text) && code[start + at + 2]?.text === '(')
  return { name, line, lines: (code[end]?.line ?? line) - line + 1, groupsTests }
}

/** `name(parameters): type {`: the place of the body's closing brace, or null where no body follows. */
function bodyEnd(code: readonly Token[], pairs: ReadonlyMap<number, number>, open: number): number | null {
  if (STATEMENTS.has(code[open - 1]?.text ?? '')) return null
  const close = pairs.get(open)
  if (close === undefined) return null
  let at = close + 1
  if (code[at]?.text === ':') at = typeEnd(code, pairs, at + 1)
  return code[at]?.text === '{' && code[at]?.kind === 'punct' ? pairs.get(at) ?? null : null
}

/** The place after a type that begins at `at`: a brace where an operand stood is the body. */
function typeEnd(code: readonly Token[], pairs: ReadonlyMap<number, number>, at: number): number {
  let operand = false
  for (let place = at; place < code.length; place++) {
    const token = code[place]
    if (token === undefined) break
    if (token.text === '{' && operand) return place
    if (token.text === '=>' && code[place - 1]?.text !== ')') return place
    if (token.kind === 'word' && NOT_IN_TYPES.has(token.text)) return place
    if (token.kind === 'punct' && '([{'.includes(token.text)) {
      place = pairs.get(place) ?? code.length
      operand = true
    } else if (TYPE_CONTINUES.has(token.text)) operand = false
    else if (token.kind === 'punct' && token.text !== '>') return place
    else operand = true
  }
  return code.length
}

function arrowStart(code: readonly Token[], pairs: ReadonlyMap<number, number>, arrow: number): number {
  return code[arrow - 1]?.text === ')' ? pairs.get(arrow - 1) ?? arrow : arrow
}

/** Last token of an arrow function's body, block or expression. */
function arrowEnd(code: readonly Token[], pairs: ReadonlyMap<number, number>, arrow: number): number {
  if (code[arrow + 1]?.text === '{') return pairs.get(arrow + 1) ?? arrow
  let last = arrow
  for (let place = arrow + 1; place < code.length; place++) {
    const token = code[place]
    const before = code[last]
    if (token === undefined || before === undefined) break
    if (token.kind === 'punct' && ')]},;'.includes(token.text)) break
    if (token.line > before.line && !JOINS.has(token.text) && (before.text === '>' || !JOINS.has(before.text))) break
    if (token.kind === 'punct' && '([{'.includes(token.text)) place = pairs.get(place) ?? place
    last = place
  }
  return last
}
