/**
 * Owns the regular part of the patterns of JSON Schema (ECMAScript's, as with the flag `u`) as an expression over the
 * characters of a JSON string. What looks around or back is refused by name. Where a pattern is not anchored,
 * anything may stand before or after it.
 */
import { DIGITS, LINE_ENDS, SPACE, WORD, complement, written } from './char-set.ts'
import type { CharSet } from './char-set.ts'
import { repeated } from './rules.ts'
import type { Rules } from './rules.ts'
import { SchemaError } from './schema-error.ts'

const PATTERN_CHARS_MAX = 1_000
const GROUPS_DEPTH_MAX = 16
const REPEATS_MAX = 10_000

/** What stands between the quotes. Throws SchemaError. */
export function patternText(rules: Rules, pattern: string, path: string): string {
  return new PatternReader(rules, pattern, path).read()
}

const CLASSES: Readonly<Record<string, CharSet>> = {
  d: DIGITS, D: complement(DIGITS), w: WORD, W: complement(WORD), s: SPACE, S: complement(SPACE),
}
const CONTROLS: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13, 0: 0 }

class PatternReader {
  readonly #rules: Rules
  readonly #chars: readonly string[]
  readonly #path: string
  #at = 0

  constructor(rules: Rules, pattern: string, path: string) {
    this.#rules = rules
    this.#chars = [...pattern]
    this.#path = path
    if (this.#chars.length > PATTERN_CHARS_MAX) this.#refuse(`of more than ${PATTERN_CHARS_MAX} characters`)
  }

  read(): string {
    const whole: string[] = []
    do {
      const free = `${this.#rules.basic('char')}*`
      const before = this.#take('^') ? [] : [free]
      whole.push([...before, this.#sequence(0), ...(this.#take('$') ? [] : [free])].join(' '))
    } while (this.#take('|'))
    if (this.#at < this.#chars.length) this.#refuse(`with ${JSON.stringify(this.#chars[this.#at])} at ${this.#at}`)
    return whole.join(' | ')
  }

  #refuse(what: string): never {
    throw new SchemaError(this.#path, `"pattern" ${what} cannot be enforced`)
  }

  #alternatives(depth: number): string {
    if (depth > GROUPS_DEPTH_MAX) this.#refuse(`with groups deeper than ${GROUPS_DEPTH_MAX}`)
    const all = [this.#sequence(depth)]
    while (this.#take('|')) all.push(this.#sequence(depth))
    const [only] = all
    if (only !== undefined && all.length === 1) return only
    return this.#rules.add(all.join(' | '), this.#path)
  }

  #sequence(depth: number): string {
    const pieces: string[] = []
    for (let item = this.#item(depth); item !== null; item = this.#item(depth)) pieces.push(this.#quantified(item))
    return pieces.length === 0 ? '""' : pieces.join(' ')
  }

  /** Null: the sequence ends here. */
  #item(depth: number): string | null {
    const char = this.#chars[this.#at]
    if (char === undefined || char === '|' || char === ')' || char === '$' || char === '^') return null
    this.#at++
    switch (char) {
      case '(': return this.#group(depth)
      case '[': return this.#one(this.#set())
      case '.': return this.#one(complement(LINE_ENDS))
      case '\\': return this.#one(this.#escape())
      case '*': case '+': case '?': case '{': case '}': case ']': return this.#refuse(`with ${char} at ${this.#at - 1}`)
      default: return this.#one(single(char))
    }
  }

  #group(depth: number): string {
    if (this.#take('?') && !this.#take(':')) {
      const isName = this.#chars[this.#at] === '<' && !['=', '!'].includes(this.#chars[this.#at + 1] ?? '')
      if (!isName) this.#refuse('that looks around')
      while (this.#at < this.#chars.length && !this.#take('>')) this.#at++
    }
    const text = this.#alternatives(depth + 1)
    if (!this.#take(')')) this.#refuse('with anchors or an open group inside')
    return `(${text})`
  }

  #quantified(item: string): string {
    const [least, most] = this.#quantifier() ?? [1, 1]
    if (least === 1 && most === 1) return item
    if (Math.max(least, most ?? 0) > REPEATS_MAX) this.#refuse(`with more than ${REPEATS_MAX} repetitions`)
    if (most !== null && most < least) this.#refuse('with a repetition that ends before it begins')
    return repeated(this.#rules.add(item, this.#path), least, most)
  }

  #quantifier(): readonly [number, number | null] | null {
    const found = /^(?:[*+?]|\{(\d+)(?:(,)(\d*))?\})/.exec(this.#chars.slice(this.#at, this.#at + 20).join(''))
    if (found === null) return null
    const [all, low, comma, high] = found
    this.#at += all.length
    // Whether it takes much or little first changes no text that matches.
    this.#take('?')
    if (low !== undefined) return [Number(low), comma === undefined ? Number(low) : high === '' ? null : Number(high)]
    return all === '?' ? [0, 1] : [all === '*' ? 0 : 1, null]
  }

  #one(set: CharSet): string {
    return written(set) ?? this.#refuse('with a character that a string cannot hold')
  }

  /** After `[`. */
  #set(): CharSet {
    const negated = this.#take('^')
    const set: (readonly [number, number])[] = []
    while (!this.#take(']')) {
      const low = this.#member()
      const isRange = this.#chars[this.#at] === '-' && this.#chars[this.#at + 1] !== ']'
      if (!isRange) {
        set.push(...low)
        continue
      }
      this.#at++
      const high = this.#member()
      const [from, to] = [low[0]?.[0] ?? 0, high[0]?.[0] ?? 0]
      const plain = [low, high].every((one) => one.length === 1 && one[0]?.[0] === one[0]?.[1])
      if (!plain || to < from) this.#refuse('with a range that is none')
      set.push([from, to])
    }
    return negated ? complement(set) : set
  }

  #member(): CharSet {
    const char = this.#chars[this.#at++]
    if (char === undefined) return this.#refuse('with a set that does not end')
    return char === '\\' ? this.#escape() : single(char)
  }

  /** After the backslash. */
  #escape(): CharSet {
    const char = this.#chars[this.#at++] ?? ''
    const known = CLASSES[char]
    if (known !== undefined) return known
    const control = CONTROLS[char]
    if (control !== undefined) return [[control, control]]
    if (char === 'x' || char === 'u') return this.#point(char)
    if (/^[^a-zA-Z0-9]$/u.test(char)) return single(char)
    return this.#refuse(`with \\${char}`)
  }

  #point(kind: 'x' | 'u'): CharSet {
    const rest = this.#chars.slice(this.#at, this.#at + 10).join('')
    const found = (kind === 'x' ? /^([0-9a-fA-F]{2})/ : /^(?:([0-9a-fA-F]{4})|\{([0-9a-fA-F]{1,6})\})/).exec(rest)
    if (found === null) return this.#refuse(`with \\${kind} and no number`)
    this.#at += found[0].length
    const point = Number.parseInt(found[1] ?? found[2] ?? '', 16)
    return [[point, point]]
  }

  #take(char: string): boolean {
    if (this.#chars[this.#at] !== char) return false
    this.#at++
    return true
  }
}

const single = (char: string): CharSet => [[char.codePointAt(0) ?? 0, char.codePointAt(0) ?? 0]]
