/**
 * Owns the rules of one grammar in GBNF (`gbnf.ts` reads it), and what every JSON value is made of. Leaves schemas
 * to `schema-rules.ts`.
 *
 * G1 rules are on one line; an empty alternative is written `""`; nothing is left-recursive.
 * G2 every place has one way on for one character wherever that is possible, so few stacks are open at once.
 * G3 what is accepted is strict JSON without free space, numbers and escapes that every parser reads alike.
 */
import { endlessRule } from './endless.ts'
import { SchemaError } from './schema-error.ts'

export const RULES_MAX = 4_000
export const GRAMMAR_CHARS_MAX = 512 * 1024
/** A number has no more digits before its point, so that an integer is exact as a double. */
export const DIGITS_MAX = 15
/** Nor more behind it: as many as any double needs. */
const FRACTION_DIGITS_MAX = 17

/** No control characters, no surrogates. */
const PLAIN = String.raw`[\x20-\x21\x23-\x5B\x5D-\x7E\u00A0-\uD7FF\uE000-\U0010FFFF]`
/** No surrogates: one escape is one character, so lengths can be counted. */
const ESCAPE = String.raw`"\\" (["\\/bfnrt] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))`

const BASIC: Readonly<Record<string, string>> = {
  char: `${PLAIN} | ${ESCAPE}`,
  string: String.raw`"\"" char* "\""`,
  frac: `"." [0-9]{1,${FRACTION_DIGITS_MAX}}`,
  nonneg: `"0" | [1-9] [0-9]{0,${DIGITS_MAX - 1}}`,
  integer: `"0" | "-"? [1-9] [0-9]{0,${DIGITS_MAX - 1}}`,
  number: '"-"? nonneg frac? ([eE] [-+]? [1-9] [0-9]?)?',
  boolean: '"true" | "false"',
  null: '"null"',
  value: 'object | array | string | number | boolean | null',
  pair: 'string ": " value',
  object: '"{" (pair (", " pair)*)? "}"',
  array: '"[" (value (", " value)*)? "]"',
}

const NEEDS: Readonly<Record<string, readonly string[]>> = {
  string: ['char'],
  number: ['nonneg', 'frac'],
  value: ['object', 'array', 'string', 'number', 'boolean', 'null'],
  pair: ['string', 'value'],
  object: ['pair'],
  array: ['value'],
}

export class Rules {
  readonly #rules = new Map<string, string>()
  /** Where in a schema a rule came from. */
  readonly #paths = new Map<string, string>()
  #fresh = 0
  #chars = 0

  /** A basic rule's name, defined with all it needs. */
  basic(name: keyof typeof BASIC & string): string {
    if (this.#rules.has(name)) return name
    this.define(name, BASIC[name] ?? '""', name)
    for (const needed of NEEDS[name] ?? []) this.basic(needed)
    return name
  }

  /** A name that no rule has yet. */
  reserve(): string {
    this.#fresh++
    return `r${this.#fresh}`
  }

  define(name: string, body: string, path: string): string {
    this.#rules.set(name, body)
    this.#paths.set(name, path)
    this.#chars += name.length + body.length + 6
    if (this.#rules.size > RULES_MAX) throw new SchemaError(path, `the grammar would have more than ${RULES_MAX} rules`)
    if (this.#chars > GRAMMAR_CHARS_MAX) {
      throw new SchemaError(path, `the grammar would be longer than ${GRAMMAR_CHARS_MAX} characters`)
    }
    return name
  }

  add(body: string, path: string): string {
    return this.define(this.reserve(), body, path)
  }

  /** Throws SchemaError where nothing finite fits a rule. */
  text(): string {
    const endless = endlessRule(this.#rules)
    if (endless !== null) throw new SchemaError(this.#paths.get(endless) ?? endless, 'nothing satisfies it that has an end')
    return [...this.#rules].map(([name, body]) => `${name} ::= ${body}\n`).join('')
  }
}

/** Exactly this text. */
export const literal = (text: string): string => `"${text.replace(/["\\\n\r\t]/g, (char) => ESCAPES[char] ?? char)}"`

const ESCAPES: Readonly<Record<string, string>> = { '"': '\\"', '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' }

/** `least` to `most` of an item. */
export function repeated(item: string, least: number, most: number | null): string {
  if (most === 0) return '""'
  if (most === null) return least === 0 ? `${item}*` : least === 1 ? `${item}+` : `${item}{${least},}`
  if (least === 1 && most === 1) return item
  return least === most ? `${item}{${least}}` : `${item}{${least},${most}}`
}
