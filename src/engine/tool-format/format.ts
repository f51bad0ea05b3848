/**
 * Owns what a form of tool calls is, and what its reader reads from and tells. One file each has a form; `choose.ts`
 * says which one a template has; `tools.ts` finds calls in a stream with it.
 *
 * F1 what a reader takes and tells depends on the text alone, not on how it came in pieces: it asks for one unit after
 *    the other, and looks at none before it must.
 * F2 a reader that meets what cannot be a call throws NotACall with the cursor before it.
 */
import type { ToolDefinition } from '../../protocol/chat.ts'
import { overlap } from '../stop.ts'

/** What came after an opening is no call. */
export class NotACall extends Error {}

/** Asks for more text by yielding. */
export type Reading<T = void> = Generator<undefined, T, undefined>

export interface ToolFormat {
  readonly name: string
  /** Each opens a section: one call or several. None begins with another. */
  readonly opens: readonly string[]
  /** What in a template's text says that its model has the form; absent: the openings. */
  readonly hints?: readonly string[]
  /** A section may also begin with one of these characters where the message has no text before it. */
  readonly bare: string
  /** What belongs to the form where it stands right before an opening that follows text. */
  readonly lead: string
  /** Other texts of the form; these and the openings are read as text where a vocabulary has them as control tokens. */
  readonly tags: readonly string[]
  /** Reads a section after `open`, '' where it is a bare one. Throws NotACall. */
  read(open: string, section: Section): Reading
  /** Null where the arguments of a call are not written as JSON. */
  readonly writing: CallWriting | null
  /** How one forced call is written where `writing` is null; absent: in the Hermes form. */
  readonly forced?: CallWriting
  /** The same where each value is written on its own. */
  readonly values?: ValueWriting
  /** How calls are written where they are not; absent: the template must do it. */
  write?(calls: readonly Call[]): string
  /** The id of a message's call, where the model reads more in it than a name. */
  callId?(name: string, index: number): string
}

/** How calls are written around their arguments: begin, head, arguments, tail, between, head, ... end. */
export interface CallWriting {
  readonly begin: string
  head(name: string): string
  readonly tail: string
  readonly between: string
  readonly end: string
}

/** How a call is written that has each value between marks: head, then open, value, close of each, then tail. */
export interface ValueWriting {
  head(name: string): string
  open(key: string, isText: boolean): string
  readonly close: string
  readonly tail: string
  /** Ends a value: no text may hold it. */
  readonly mark: string
}

interface Call { readonly name: string; readonly arguments: string }

/** A message as a model of that form writes it. */
export function writeMessage(format: ToolFormat, content: string, calls: readonly Call[]): string {
  if (calls.length === 0) return content
  const { lead, writing } = format
  const written = writing === null ? format.write?.(calls) : writeCalls(writing, calls)
  return written === undefined ? content : content + (content === '' ? '' : lead) + written
}

function writeCalls(writing: CallWriting, calls: readonly Call[]): string {
  const texts = calls.map((call) => writing.head(call.name) + call.arguments + writing.tail)
  return writing.begin + texts.join(writing.between) + writing.end
}

/** Calls as a list of JSON objects after an opening. */
export const listWriting = (open: string, close = '', keys = { name: 'name', arguments: 'arguments' }): CallWriting => ({
  begin: `${open}[`,
  head: (called) => `{"${keys.name}": ${JSON.stringify(called)}, "${keys.arguments}": `,
  tail: '}',
  between: ', ',
  end: `]${close}`,
})

// ---------------------------------------------------------------- what a reader works on

/** Who is told of the calls of a section, as they come. */
interface CallListener {
  begun(name: string): void
  added(given: string): void
  done(): void
}

/** One section: its text as it comes, and the calls found in it. */
export class Section {
  readonly tools: readonly ToolDefinition[]
  readonly #told: CallListener
  #text = ''
  #at = 0
  #ended = false

  constructor(tools: readonly ToolDefinition[], told: CallListener) {
    this.tools = tools
    this.#told = told
  }

  /** A call begins: its name and what opens its arguments are taken. */
  begin(name: string): void {
    this.#told.begun(name)
  }

  /** Another piece of its arguments, as JSON text; what spells it is taken. */
  add(given: string): void {
    if (given !== '') this.#told.added(given)
  }

  /** The call is whole. */
  done(): void {
    this.#told.done()
  }

  push(text: string): void {
    this.#text += text
  }

  end(): void {
    this.#ended = true
  }

  get text(): string { return this.#text }
  /** Characters that were taken. */
  get taken(): number { return this.#at }
  /** What was not taken. */
  get rest(): string { return this.#text.slice(this.#at) }

  // -------------------------------------------------------------- for readers

  /** The next unit, not taken; '' at the end. */
  *peek(): Reading<string> {
    while (this.#at >= this.#text.length && !this.#ended) yield
    return this.#text.charAt(this.#at)
  }

  take(): void {
    this.#at++
  }

  /** JSON's space. */
  *space(): Reading {
    while (isSpace(yield* this.peek())) this.#at++
  }

  /** True where `mark` follows, which is then taken; nothing is taken else. */
  *found(mark: string): Reading<boolean> {
    const at = this.#at
    for (const unit of mark) {
      if ((yield* this.peek()) !== unit) {
        this.#at = at
        return false
      }
      this.#at++
    }
    return true
  }

  /** Takes `mark`, or as much of it as the end leaves. */
  *close(mark: string): Reading {
    for (const unit of mark) {
      const next = yield* this.peek()
      if (next === '') return
      if (next !== unit) throw new NotACall()
      this.#at++
    }
  }

  /** Takes `mark` whole. */
  *must(mark: string): Reading {
    if (!(yield* this.found(mark))) throw new NotACall()
  }

  /** The text up to the first of `marks`, which is taken too. Longer than `charsMax` is no call. */
  *until(marks: readonly string[], charsMax: number): Reading<{ readonly text: string; readonly mark: string }> {
    const begin = this.#at
    const longest = Math.max(...marks.map((mark) => mark.length))
    for (;;) {
      const { at, mark } = this.#first(marks)
      if (at - begin > charsMax) {
        this.#at = begin + charsMax
        throw new NotACall()
      }
      if (mark !== null) {
        this.#at = at + mark.length
        return { text: this.#text.slice(begin, at), mark }
      }
      if (this.#ended) {
        this.#at = this.#text.length
        throw new NotACall()
      }
      this.#at = Math.max(begin, this.#text.length - longest + 1)
      yield
    }
  }

  /** The text up to `mark`, told in pieces as it comes; the mark is taken too. Longer than `charsMax` is no call. */
  *pieces(mark: string, charsMax: number, tell: (piece: string) => void): Reading {
    const begin = this.#at
    for (;;) {
      const from = this.#at
      const first = this.#first([mark])
      const at = Math.max(from, first.at)
      if (at - begin > charsMax) throw new NotACall()
      this.#at = first.mark === null ? at : at + mark.length
      tell(this.#text.slice(from, at))
      if (first.mark !== null) return
      if (this.#ended) throw new NotACall()
      yield
    }
  }

  /** Where the first mark is, from the cursor on; or where one may begin that is not there yet. */
  #first(marks: readonly string[]): { readonly at: number; readonly mark: string | null } {
    let first: { readonly at: number; readonly mark: string | null } = { at: this.#text.length, mark: null }
    for (const mark of marks) {
      const found = this.#text.indexOf(mark, this.#at)
      const at = found === -1 ? this.#text.length - overlap(this.#text, mark) : found
      if (at < first.at || (at === first.at && first.mark === null)) first = { at, mark: found === -1 ? null : mark }
    }
    return first
  }
}

export const isSpace = (unit: string): boolean => unit === ' ' || unit === '\n' || unit === '\t' || unit === '\r'

/** Names are shorter: what goes on longer is no call. */
export const NAME_CHARS_MAX = 256
/** So are values that a form writes as text. */
export const VALUE_CHARS_MAX = 4_000_000
