/**
 * Owns finding tool calls in a stream of text, in whatever form the model has (`tool-format/`).
 *
 * What a form puts before its first opening belongs to the form, not to the content, and so does the space between and
 * after calls; so what `writeMessage` writes of a parsed message is what the model wrote, where it wrote the form
 * exactly.
 *
 * T1 what is not a call stays text, every character of it, once and in its place.
 * T2 once an opening, the name of a tool that was offered and the opening of its arguments stand there, it is a call:
 *    it is shown from there on as it comes, the name first. Where it goes on as none it ends there, and what its calls
 *    did not show is text. A call of a name that was not offered is shown when its section is whole, or when a call of
 *    its section was shown already and it is whole itself; till then it may be text.
 * T3 what is shown depends on the text alone, not on how it came in pieces.
 */
import type { ToolDefinition } from '../protocol/chat.ts'
import type { WirePart } from '../protocol/engine.ts'
import { overlap } from './stop.ts'
import { NotACall, Section, isSpace } from './tool-format/format.ts'
import type { Reading, ToolFormat } from './tool-format/format.ts'
import type { CommittedMessage } from './token-record.ts'

/**
 * What looked like a call for long and was none is read again for calls inside it, up to this many characters of a
 * message; after that all of it is text, so that no output takes time in the square of its length.
 */
const READ_AGAIN_CHARS_MAX = 2_000_000

/**
 * Where the parser is:
 *   start  before anything but space: a bare section may begin
 *   text   in content; the end of it may be held back
 *   gap    after a section: space is dropped if nothing but calls follow it
 *   call   after an opening, inside a section
 *   over   all that follows is text
 */
type Place = 'start' | 'text' | 'gap' | 'call' | 'over'

interface ToolParserOptions {
  readonly format: ToolFormat
  readonly tools: readonly ToolDefinition[]
}

export class ToolCallParser {
  readonly #options: ToolParserOptions
  #place: Place
  /** Held back: not yet shown and not yet part of a section. */
  #held = ''
  /** What stood for the opening, what leads to it included: text again if no call follows. */
  #opener = ''
  /** The opening itself. */
  #open = ''
  #section: Section
  #reading: Reading
  /** Calls of the present section that are not shown yet. */
  #waiting: { name: string; arguments: string }[] = []
  /** The call under way is shown as it comes. */
  #showing = false
  /** Characters of the present section that its shown calls are made of, with all before them; null: none is shown. */
  #shownTo: number | null = null
  readonly #calls: { name: string; arguments: string }[] = []
  #content = ''
  #parts: WirePart[] = []
  #cutShort = false
  #readAgainChars = 0

  constructor(options: ToolParserOptions) {
    this.#options = options
    this.#place = options.format.bare === '' ? 'text' : 'start'
    this.#section = this.#newSection()
    this.#reading = options.format.read('', this.#section)
  }

  get message(): Pick<CommittedMessage, 'content' | 'toolCalls'> {
    return { content: this.#content, toolCalls: this.#calls.map((call) => ({ ...call })) }
  }

  /** The open section from its opening on; null where none is open, or one without an opening. */
  get openText(): string | null {
    return this.#place === 'call' && this.#open !== '' ? this.#open + this.#section.text : null
  }

  push(text: string): WirePart[] {
    let rest = text
    while (rest !== '') rest = this.#step(rest)
    return this.#take()
  }

  end(): WirePart[] {
    while (this.#place === 'call') {
      this.#section.end()
      let rest = this.#read()
      while (rest !== '') rest = this.#step(rest)
    }
    if (this.#place !== 'gap' || withoutSpace(this.#held) !== '') this.#text(this.#held)
    this.#held = ''
    return this.#take()
  }

  /** The end came in the middle of a call that was shown already. */
  get cutShort(): boolean {
    return this.#cutShort
  }

  #take(): WirePart[] {
    const parts = this.#parts
    this.#parts = []
    return parts
  }

  /** Takes some of `rest` and returns what is left of it. */
  #step(rest: string): string {
    const all = this.#held + rest
    switch (this.#place) {
      case 'start': return this.#atStart(all)
      case 'text': return this.#inText(all)
      case 'gap': return this.#inGap(all)
      case 'call':
        this.#section.push(rest)
        return this.#read()
      case 'over':
        this.#text(rest)
        return ''
    }
  }

  #atStart(all: string): string {
    const next = withoutSpace(all)
    this.#held = next === '' ? all : ''
    if (next === '') return ''
    if (this.#isBare(next)) return this.#enter(all.slice(0, all.length - next.length), '', next)
    this.#place = 'text'
    return all
  }

  #inText(all: string): string {
    const { opens, lead } = this.#options.format
    const found = firstOf(all, opens)
    if (found === null) {
      const marks = opens.flatMap((open) => [open, lead + open])
      const keep = Math.max(0, ...marks.map((mark) => overlap(all, mark)))
      this.#text(all.slice(0, all.length - keep))
      this.#held = all.slice(all.length - keep)
      return ''
    }
    const { at, open } = found
    const from = all.slice(0, at).endsWith(lead) ? at - lead.length : at
    this.#text(all.slice(0, from))
    return this.#enter(all.slice(from, at + open.length), open, all.slice(at + open.length))
  }

  #inGap(all: string): string {
    const next = withoutSpace(all)
    // Some openings begin with space: they are looked for in all of it.
    for (const text of [next, all]) {
      const open = this.#options.format.opens.find((each) => text.startsWith(each))
      if (open === undefined) continue
      const end = all.length - text.length + open.length
      return this.#enter(all.slice(0, end), open, all.slice(end))
    }
    if (next !== '' && this.#content === '' && this.#isBare(next)) {
      return this.#enter(all.slice(0, all.length - next.length), '', next)
    }
    this.#held = all
    if (this.#options.format.opens.some((open) => open.startsWith(next) || open.startsWith(all))) return ''
    this.#place = 'text'
    this.#held = ''
    return all
  }

  #isBare(next: string): boolean {
    return this.#options.format.bare.includes(next.charAt(0))
  }

  // -------------------------------------------------------------- a section

  #newSection(): Section {
    return new Section(this.#options.tools, {
      begun: (name) => this.#begun(name), added: (given) => this.#added(given), done: () => this.#done(),
    })
  }

  #enter(opener: string, open: string, rest: string): string {
    this.#place = 'call'
    this.#opener = opener
    this.#open = open
    this.#held = ''
    this.#section = this.#newSection()
    this.#reading = this.#options.format.read(open, this.#section)
    this.#waiting = []
    this.#showing = false
    this.#shownTo = null
    return rest
  }

  /** Reads on; what is left where the section is over. */
  #read(): string {
    try {
      if (this.#reading.next().done !== true) return ''
    } catch (error) {
      if (!(error instanceof NotACall)) throw error
      return this.#broken()
    }
    this.#showWaiting()
    this.#place = 'gap'
    return this.#section.rest
  }

  /** A call that was shown cannot be taken back: it ends here. What no call has shown is text. */
  #broken(): string {
    this.#place = 'text'
    const { taken, rest, text } = this.#section
    const from = this.#shownTo ?? 0
    this.#cutShort = this.#showing && rest === ''
    if (this.#shownTo === null) this.#text(this.#opener)
    this.#readAgainChars += taken - from
    if (this.#readAgainChars > READ_AGAIN_CHARS_MAX) this.#place = 'over'
    return text.slice(from)
  }

  #begun(name: string): void {
    this.#showing = this.#options.tools.some((tool) => tool.name === name)
    if (!this.#showing) {
      this.#waiting.push({ name, arguments: '' })
      return
    }
    this.#showWaiting()
    this.#show(name, '')
  }

  #added(given: string): void {
    const waiting = this.#waiting.at(-1)
    if (this.#showing) this.#show(null, given)
    else if (waiting !== undefined) waiting.arguments += given
  }

  #done(): void {
    if (this.#showing) this.#shownTo = this.#section.taken
    this.#showing = false
    if (this.#shownTo !== null) this.#showWaiting()
  }

  #showWaiting(): void {
    for (const call of this.#waiting) this.#show(call.name, call.arguments)
    this.#waiting = []
  }

  #show(name: string | null, given: string): void {
    this.#shownTo = this.#section.taken
    if (name !== null) this.#calls.push({ name, arguments: '' })
    const call = this.#calls.at(-1)
    if (call !== undefined) call.arguments += given
    const last = this.#parts.at(-1)
    const index = this.#calls.length - 1
    if (name === null && last?.kind === 'toolCall' && last.index === index) {
      this.#parts[this.#parts.length - 1] = { ...last, arguments: last.arguments + given }
    } else {
      this.#parts.push({ kind: 'toolCall', index, name, arguments: given })
    }
  }

  #text(text: string): void {
    if (text === '') return
    this.#content += text
    const last = this.#parts.at(-1)
    if (last?.kind === 'text') this.#parts[this.#parts.length - 1] = { kind: 'text', text: last.text + text }
    else this.#parts.push({ kind: 'text', text })
  }
}

function firstOf(text: string, opens: readonly string[]): { readonly at: number; readonly open: string } | null {
  let first: { readonly at: number; readonly open: string } | null = null
  for (const open of opens) {
    const at = text.indexOf(open)
    if (at !== -1 && (first === null || at < first.at)) first = { at, open }
  }
  return first
}

/** JSON's space only. */
function withoutSpace(text: string): string {
  let at = 0
  while (isSpace(text.charAt(at))) at++
  return text.slice(at)
}
