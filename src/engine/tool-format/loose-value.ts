/**
 * Owns reading values that are written nearly as in JSON: other quotes, other words, keys without quotes. They are told
 * as JSON, piece by piece as they come.
 */
import { NAME_CHARS_MAX, NotACall, VALUE_CHARS_MAX } from './format.ts'
import type { Reading, Section } from './format.ts'

export interface LooseSyntax {
  /** What text stands between. `escaped`: a backslash means something in it. */
  readonly quotes: readonly { readonly mark: string; readonly escaped: boolean }[]
  /** Keys of objects may stand without quotes. */
  readonly bareKeys: boolean
}

const DEPTH_MAX = 64
const NUMBER = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$/
const WORDS: ReadonlyMap<string, string> = new Map([
  ['true', 'true'], ['false', 'false'], ['null', 'null'], ['True', 'true'], ['False', 'false'], ['None', 'null'], ['none', 'null'],
])
const ESCAPES: ReadonlyMap<string, string> = new Map([['n', '\n'], ['t', '\t'], ['r', '\r'], ['b', '\b'], ['f', '\f']])
/** What may follow the end of a text; a quote before anything else is part of it, as some templates escape none. */
const AFTER_TEXT = ',)]}: \n'

/** One value, told to the section as JSON. */
export function* readLoose(section: Section, syntax: LooseSyntax, depth = 0): Reading {
  if (depth > DEPTH_MAX) throw new NotACall()
  yield* section.space()
  if (yield* readText(section, syntax)) return
  const unit = yield* section.peek()
  if (unit === '[' || unit === '{') {
    section.take()
    yield* readParts(section, syntax, unit, depth)
    return
  }
  const word = yield* readWord(section)
  const known = WORDS.get(word) ?? (NUMBER.test(word) ? word : null)
  if (known === null) throw new NotACall()
  section.add(known)
}

/** Members `key: value` up to `}`, after the `{`; told without the braces. */
export function* readMembers(section: Section, syntax: LooseSyntax, depth: number): Reading {
  yield* section.space()
  if (yield* section.found('}')) return
  for (;;) {
    yield* readKey(section, syntax)
    yield* readLoose(section, syntax, depth + 1)
    yield* section.space()
    if (!(yield* section.found(','))) return yield* section.must('}')
    section.add(', ')
    yield* section.space()
  }
}

function* readParts(section: Section, syntax: LooseSyntax, open: '[' | '{', depth: number): Reading {
  section.add(open)
  if (open === '{') {
    yield* readMembers(section, syntax, depth)
    section.add('}')
    return
  }
  yield* section.space()
  if (!(yield* section.found(']'))) {
    for (;;) {
      yield* readLoose(section, syntax, depth + 1)
      yield* section.space()
      if (!(yield* section.found(','))) break
      section.add(', ')
    }
    yield* section.must(']')
  }
  section.add(']')
}

function* readKey(section: Section, syntax: LooseSyntax): Reading {
  if (!(yield* readText(section, syntax))) {
    if (!syntax.bareKeys) throw new NotACall()
    const key = (yield* section.until([':'], NAME_CHARS_MAX)).text.trim()
    if (key === '') throw new NotACall()
    section.add(`${JSON.stringify(key)}: `)
    return
  }
  yield* section.space()
  yield* section.must(':')
  section.add(': ')
}

/** False where no text begins. */
function* readText(section: Section, { quotes }: LooseSyntax): Reading<boolean> {
  for (const { mark, escaped } of quotes) {
    if (!(yield* section.found(mark))) continue
    section.add('"')
    if (escaped) yield* readEscaped(section, mark)
    else yield* section.pieces(mark, VALUE_CHARS_MAX, (piece) => section.add(inJson(piece)))
    section.add('"')
    return true
  }
  return false
}

function* readEscaped(section: Section, quote: string): Reading {
  for (let chars = 0; chars < VALUE_CHARS_MAX; chars++) {
    const unit = yield* section.peek()
    if (unit === '') throw new NotACall()
    section.take()
    if (unit === quote) {
      const next = yield* section.peek()
      if (next === '' || AFTER_TEXT.includes(next)) return
    }
    section.add(unit === '\\' ? yield* readEscape(section) : inJson(unit))
  }
  throw new NotACall()
}

/** After the backslash, as JSON. */
function* readEscape(section: Section): Reading<string> {
  const unit = yield* section.peek()
  if (unit === '') throw new NotACall()
  section.take()
  if (unit !== 'u') return inJson(ESCAPES.get(unit) ?? unit)
  let digits = ''
  while (digits.length < 4 && /[0-9a-fA-F]/.test(yield* section.peek())) {
    digits += yield* section.peek()
    section.take()
  }
  return digits.length === 4 ? `\\u${digits}` : inJson(`u${digits}`)
}

function* readWord(section: Section): Reading<string> {
  let word = ''
  while (/[-+.0-9a-zA-Z]/.test(yield* section.peek()) && word.length < NAME_CHARS_MAX) {
    word += yield* section.peek()
    section.take()
  }
  return word
}

/** Half a character stays as it is: the other half may come. */
const inJson = (text: string): string => /^[\ud800-\udfff]$/.test(text) ? text : JSON.stringify(text).slice(1, -1)
