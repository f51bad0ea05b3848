/**
 * Owns reading one JSON object character by character: whether what came so far can be one, where it ends, and where
 * the values of its own members lie. Strict, as JSON.parse is. It keeps positions; whoever feeds it keeps the text.
 */
export type ScanState = 'open' | 'done' | 'bad'

export interface Member {
  /** As written, with its quotes. */
  readonly keyBegin: number
  readonly keyEnd: number
  readonly valueBegin: number
  /** Null while the value is still coming. */
  readonly valueEnd: number | null
}

/** Deeper nesting is not read as a call. */
const DEPTH_MAX = 256

type Expect = 'value' | 'key' | 'keyOrEnd' | 'valueOrEnd' | 'colon' | 'commaOrEnd'

const LITERALS = ['true', 'false', 'null']
const NUMBER = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?$/
const NUMBER_CHARS = /[-+.0-9eE]/
const HEX = /[0-9a-fA-F]/

export class JsonScanner {
  #state: ScanState = 'open'
  #length = 0
  #expect: Expect = 'value'
  readonly #open: ('{' | '[')[] = []
  /** A string under way: 'no', inside it, after a backslash, or in that many hex digits still to come. */
  #string: 'no' | 'in' | 'escape' | number = 'no'
  /** A number or a literal under way. */
  #word = ''
  #keyBegin = 0
  #keyEnd = 0
  readonly #members: Member[] = []

  get state(): ScanState {
    return this.#state
  }

  /** Members of the outermost object, in order; the last may have no end yet. */
  get members(): readonly Member[] {
    return this.#members
  }

  /** Feeds one UTF-16 unit. After 'done' and 'bad' nothing more may come. */
  push(unit: string): ScanState {
    if (this.#string !== 'no') this.#inString(unit)
    else if (!this.#inWord(unit)) this.#outside(unit)
    this.#length++
    return this.#state
  }

  #inString(unit: string): void {
    if (typeof this.#string === 'number') {
      if (!HEX.test(unit)) this.#state = 'bad'
      this.#string = this.#string === 1 ? 'in' : this.#string - 1
    } else if (this.#string === 'escape') {
      if (!'"\\/bfnrtu'.includes(unit)) this.#state = 'bad'
      this.#string = unit === 'u' ? 4 : 'in'
    } else if (unit === '\\') {
      this.#string = 'escape'
    } else if (unit === '"') {
      this.#string = 'no'
      this.#endString()
    } else if (unit < ' ') {
      this.#state = 'bad'
    }
  }

  #endString(): void {
    if (this.#expect === 'key') {
      this.#keyEnd = this.#length + 1
      this.#expect = 'colon'
    } else {
      this.#endValue(this.#length + 1)
    }
  }

  /** True where `unit` went on with a word. A word ends at the first unit that is none of its own. */
  #inWord(unit: string): boolean {
    if (this.#word === '') return false
    const grown = this.#word + unit
    const isNumber = !'tfn'.includes(this.#word.charAt(0))
    if (isNumber ? NUMBER_CHARS.test(unit) : LITERALS.some((literal) => literal.startsWith(grown))) {
      this.#word = grown
      return true
    }
    if (!NUMBER.test(this.#word) && !LITERALS.includes(this.#word)) this.#state = 'bad'
    this.#word = ''
    this.#endValue(this.#length)
    return false
  }

  #outside(unit: string): void {
    if (this.#state !== 'open' || ' \t\n\r'.includes(unit)) return
    switch (this.#expect) {
      case 'colon':
        if (unit === ':') this.#expect = 'value'
        else this.#state = 'bad'
        return
      case 'commaOrEnd':
        if (unit === ',') this.#expect = this.#open.at(-1) === '{' ? 'key' : 'value'
        else this.#close(unit)
        return
      case 'key':
      case 'keyOrEnd':
        if (unit === '"') this.#beginKey()
        else if (this.#expect === 'keyOrEnd') this.#close(unit)
        else this.#state = 'bad'
        return
      case 'value':
      case 'valueOrEnd':
        if (this.#expect === 'valueOrEnd' && unit === ']') this.#close(unit)
        else this.#beginValue(unit)
    }
  }

  #beginKey(): void {
    this.#keyBegin = this.#length
    this.#expect = 'key'
    this.#string = 'in'
  }

  #beginValue(unit: string): void {
    if (this.#open.length === 0 && unit !== '{') {
      this.#state = 'bad'
      return
    }
    if (this.#open.length === 1) {
      this.#members.push({
        keyBegin: this.#keyBegin, keyEnd: this.#keyEnd, valueBegin: this.#length, valueEnd: null,
      })
    }
    if (unit === '{' || unit === '[') {
      if (this.#open.length === DEPTH_MAX) this.#state = 'bad'
      this.#open.push(unit)
      this.#expect = unit === '{' ? 'keyOrEnd' : 'valueOrEnd'
    } else if (unit === '"') {
      this.#expect = 'value'
      this.#string = 'in'
    } else if (/[-0-9tfn]/.test(unit)) {
      this.#word = unit
    } else {
      this.#state = 'bad'
    }
  }

  #close(unit: string): void {
    if (unit !== (this.#open.at(-1) === '{' ? '}' : ']')) {
      this.#state = 'bad'
      return
    }
    this.#open.pop()
    this.#endValue(this.#length + 1)
  }

  #endValue(end: number): void {
    this.#expect = 'commaOrEnd'
    const last = this.#open.length === 1 ? this.#members.pop() : undefined
    if (last !== undefined) this.#members.push({ ...last, valueEnd: end })
    if (this.#open.length === 0 && this.#state === 'open') this.#state = 'done'
  }
}
