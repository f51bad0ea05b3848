/**
 * Owns reading GBNF, the notation of grammars that llama.cpp made known, into rules that `machine.ts` runs. What it
 * reads is what that project reads, but for rules that end in a token's name (`<...>`): those are refused.
 *
 * B1 time and memory go with the length of the text: a repetition stays one item, however often it repeats.
 * B2 no rule leads back to itself before a character: with none of that, every way to the next character is finite.
 */
import { Item, leftRecursive, reachable } from './rule-graph.ts'
import type { CharRanges, Rule } from './rule-graph.ts'
import { GrammarError } from './schema-error.ts'

export interface Gbnf { readonly root: Rule }

/** No text is longer and no count larger: what a count would need of memory is one number. */
const REPEATS_MAX = 1_000_000
const GROUPS_DEPTH_MAX = 64
const POINT_MAX = 0x10ffff

/** Throws GrammarError. */
export function readGbnf(text: string): Gbnf {
  const rules = new Reader(text).read()
  const root = rules.get('root')
  if (root === undefined) throw new GrammarError('it has no rule "root"')
  const all = reachable(root)
  const missing = all.find(({ heads }) => heads.length === 0)
  if (missing !== undefined) throw new GrammarError(`the rule "${missing.name}" is named and not there`)
  const endless = leftRecursive(all)
  if (endless !== null) throw new GrammarError(`the rule "${endless.name}" leads to itself before any character (left recursion)`)
  return { root }
}

const SPACE = /[ \t]/
const NAME = /[a-zA-Z0-9-]+/y
const ESCAPES: ReadonlyMap<string, number> = new Map([
  ['t', 9], ['r', 13], ['n', 10], ...['\\', '"', '[', ']', '-'].map((char) => [char, char.charCodeAt(0)] as const),
])
const HEX_DIGITS: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 }

/** Items of one alternative, first to last. */
type Sequence = Item[]

class Reader {
  readonly #text: string
  readonly #rules = new Map<string, Rule>()
  readonly #sets = new Map<string, CharRanges>()
  #at = 0
  #items = 0
  #name = ''
  #depth = 0

  constructor(text: string) {
    this.#text = text
  }

  read(): ReadonlyMap<string, Rule> {
    this.#space(true)
    while (this.#at < this.#text.length) this.#rule()
    return this.#rules
  }

  #rule(): void {
    this.#name = this.#readName()
    this.#space(false)
    if (!this.#text.startsWith('::=', this.#at)) this.#refuse('"::=" is expected')
    this.#at += 3
    this.#space(true)
    const rule = this.#named(this.#name)
    rule.heads = this.#alternatives(false)
    if (this.#at < this.#text.length && !/[\r\n]/.test(this.#char())) this.#refuse('a line should end')
    this.#space(true)
  }

  #alternatives(nested: boolean): (Item | null)[] {
    const heads = [this.#sequence(nested)[0] ?? null]
    while (this.#take('|')) {
      this.#space(true)
      heads.push(this.#sequence(nested)[0] ?? null)
    }
    return heads
  }

  #sequence(nested: boolean): Sequence {
    const items: Sequence = []
    for (let part = this.#part(nested); part !== null; part = this.#part(nested)) {
      for (let repeat = this.#repeat(nested); repeat !== null; repeat = this.#repeat(nested)) {
        part = this.#repeated(part, ...repeat)
      }
      for (const item of part) {
        const last = items.at(-1)
        if (last !== undefined) last.next = item
        items.push(item)
      }
    }
    return items
  }

  /** What one repetition would repeat; null: the sequence ends here. */
  #part(nested: boolean): Sequence | null {
    const char = this.#char()
    if (char === '"') return this.#literal(nested)
    if (char === '[') return this.#set(nested)
    if (char === '(') return this.#group(nested)
    if (char === '.') {
      this.#at++
      this.#space(nested)
      return [this.#one([1, POINT_MAX])]
    }
    if (char === '<' || char === '!') this.#refuse('a token by its name is not read; write its text')
    if ('*+?{'.includes(char) && char !== '') this.#refuse('there is nothing to repeat')
    if (!/[a-zA-Z0-9-]/.test(char)) return null
    const rule = this.#named(this.#readName())
    this.#space(nested)
    return [this.#item(null, rule)]
  }

  #literal(nested: boolean): Sequence {
    this.#at++
    const items: Sequence = []
    while (!this.#take('"')) {
      const point = this.#point()
      if (point === 0) this.#refuse('no text holds a NUL')
      items.push(this.#one(joinedRanges([[point, point]])))
      const before = items.at(-2)
      if (before !== undefined) before.next = items.at(-1) ?? null
    }
    this.#space(nested)
    return items
  }

  #set(nested: boolean): Sequence {
    this.#at++
    const negated = this.#take('^')
    const ranges: [number, number][] = []
    while (!this.#take(']')) {
      const low = this.#point()
      const isRange = this.#char() === '-' && this.#text[this.#at + 1] !== ']'
      if (isRange) this.#at++
      ranges.push([low, isRange ? this.#point() : low])
    }
    this.#space(nested)
    const joined = joinedRanges(ranges)
    return [this.#one(negated ? complement(joined) : joined)]
  }

  #group(nested: boolean): Sequence {
    this.#at++
    if (++this.#depth > GROUPS_DEPTH_MAX) this.#refuse(`groups are nested deeper than ${GROUPS_DEPTH_MAX}`)
    this.#space(true)
    const rule: Rule = { name: this.#name, heads: this.#alternatives(true) }
    if (!this.#take(')')) this.#refuse('")" is expected')
    this.#depth--
    this.#space(nested)
    return [this.#item(null, rule)]
  }

  #repeat(nested: boolean): [number, number | null] | null {
    const char = this.#char()
    if (char !== '*' && char !== '+' && char !== '?' && char !== '{') return null
    this.#at++
    this.#space(nested)
    if (char !== '{') return [char === '+' ? 1 : 0, char === '?' ? 1 : null]
    const least = this.#count(nested)
    let most: number | null = least
    if (this.#take(',')) {
      this.#space(nested)
      most = this.#char() === '}' ? null : this.#count(nested)
    }
    if (!this.#take('}')) this.#refuse('"}" is expected')
    this.#space(nested)
    if (most !== null && most < least) this.#refuse('a repetition ends before it begins')
    return [least, most]
  }

  #repeated(part: Sequence, least: number, most: number | null): Sequence {
    return least === 1 && most === 1 ? part : [this.#item(null, { name: this.#name, heads: [part[0] ?? null] }, least, most)]
  }

  // -------------------------------------------------------------- small things

  #item(chars: CharRanges | null, rule: Rule | null, least = 1, most: number | null = 1): Item {
    return new Item(this.#items++, chars, rule, least, most)
  }

  #one(ranges: CharRanges): Item {
    const key = ranges.join()
    const known = this.#sets.get(key) ?? ranges
    this.#sets.set(key, known)
    return this.#item(known, null)
  }

  #named(name: string): Rule {
    const rule = this.#rules.get(name) ?? { name, heads: [] }
    this.#rules.set(name, rule)
    return rule
  }

  #readName(): string {
    NAME.lastIndex = this.#at
    const name = NAME.exec(this.#text)?.[0] ?? this.#refuse('a name is expected')
    this.#at += name.length
    return name
  }

  #count(nested: boolean): number {
    const digits = /^[0-9]+/.exec(this.#text.slice(this.#at, this.#at + 20))?.[0] ?? this.#refuse('a number is expected')
    this.#at += digits.length
    this.#space(nested)
    if (Number(digits) > REPEATS_MAX) this.#refuse(`more than ${REPEATS_MAX} repetitions are not counted`)
    return Number(digits)
  }

  #point(): number {
    const point = this.#text.codePointAt(this.#at) ?? this.#refuse('the text ends too soon')
    this.#at += point > 0xffff ? 2 : 1
    if (point !== 0x5c) return point
    const kind = this.#char()
    this.#at++
    const known = ESCAPES.get(kind)
    if (known !== undefined) return known
    const digits = HEX_DIGITS[kind] ?? this.#refuse(`there is no escape \\${kind}`)
    const hex = this.#text.slice(this.#at, this.#at + digits)
    if (hex.length < digits || !/^[0-9a-fA-F]+$/.test(hex)) this.#refuse(`${digits} hex digits are expected`)
    this.#at += digits
    return Number.parseInt(hex, 16)
  }

  #char(): string {
    return this.#text.charAt(this.#at)
  }

  #take(char: string): boolean {
    if (this.#char() !== char) return false
    this.#at++
    return true
  }

  /** Comments too. */
  #space(lines: boolean): void {
    for (;;) {
      const char = this.#char()
      if (char === '#') {
        while (this.#at < this.#text.length && !/[\r\n]/.test(this.#char())) this.#at++
      } else if (SPACE.test(char) || (lines && (char === '\r' || char === '\n'))) this.#at++
      else return
    }
  }

  #refuse(why: string): never {
    const line = this.#text.slice(0, this.#at).split('\n').length
    const rest = this.#text.slice(this.#at, this.#at + 20)
    throw new GrammarError(`line ${line}: ${why} at ${JSON.stringify(rest)}`)
  }
}

// ---------------------------------------------------------------- ranges

/** Without NUL, which no text has. */
function joinedRanges(ranges: readonly (readonly [number, number])[]): number[] {
  const joined: number[] = []
  for (const [first, high] of [...ranges].sort(([a], [b]) => a - b)) {
    const end = joined.at(-1)
    const low = Math.max(1, first)
    if (low > high) continue
    if (end !== undefined && low <= end + 1) joined[joined.length - 1] = Math.max(end, high)
    else joined.push(low, high)
  }
  return joined
}

/** Of all characters but NUL. */
function complement(ranges: CharRanges): number[] {
  const out: number[] = []
  let next = 1
  for (let i = 0; i < ranges.length; i += 2) {
    const low = ranges[i] ?? 0
    if (low > next) out.push(next, low - 1)
    next = Math.max(next, (ranges[i + 1] ?? 0) + 1)
  }
  if (next <= POINT_MAX) out.push(next, POINT_MAX)
  return out
}
