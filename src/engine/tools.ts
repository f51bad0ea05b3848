/**
 * Owns the text of tool calls (the Hermes form) and finding them in a stream of text:
 *
 *   content\n<tool_call>\n{"name": "x", "arguments": {...}}\n</tool_call>\n<tool_call>\n...
 *
 * The one newline before the first tag belongs to the form, not to the content, and so does the space between and after
 * calls; so what `callsText` writes of a parsed message is what the model wrote, where it wrote the form exactly.
 *
 * T1 what is not a call stays text, every character of it. A call is an object with a `name` and an object `arguments`,
 *    followed by the closing tag or the end. So a call that nothing forces is shown when it is complete; one that a
 *    grammar holds is shown as it comes.
 * T2 what is shown depends on the text alone, not on how it came in pieces.
 */
import type { WirePart } from '../protocol/engine.ts'
import { JsonScanner } from './json-scanner.ts'
import type { Member } from './json-scanner.ts'
import { overlap } from './stop.ts'
import type { CommittedMessage } from './token-record.ts'

export const CALL_OPEN = '<tool_call>'
export const CALL_CLOSE = '</tool_call>'

type Call = CommittedMessage['toolCalls'][number]

/** What comes before the arguments of a call, and after them. */
export const callHead = (name: string): string => `${CALL_OPEN}\n{"name": ${JSON.stringify(name)}, "arguments": `
export const CALL_TAIL = `}\n${CALL_CLOSE}`

/** The calls of a message as they follow its content. */
export function callsText(content: string, calls: readonly Call[]): string {
  const texts = calls.map((call) => callHead(call.name) + call.arguments + CALL_TAIL)
  return [...(content === '' ? [] : [content]), ...texts].join('\n')
}

/**
 * Where the parser is:
 *   text   in content; the end of it may be held back
 *   gap    after a call: space is dropped if nothing but calls follow it
 *   call   after an opening tag, inside the object
 *   close  after the object, before the closing tag
 */
type Place = 'text' | 'gap' | 'call' | 'close'

export class ToolCallParser {
  /** Show a call's arguments as they come. */
  readonly #streamed: boolean
  #place: Place = 'text'
  /** Held back: not yet shown and not yet part of a call's object. */
  #held = ''
  /** What stood for the opening tag, the space before it included: text again if no call follows. */
  #opener = ''
  /** Since the opening tag. */
  #body = ''
  #scanner = new JsonScanner()
  /** Where in `#body` the object begins. */
  #objectAt = 0
  /** Arguments of the present call that were shown; null before its name was. */
  #shown: number | null = null
  readonly #calls: { name: string; arguments: string }[] = []
  #content = ''
  #parts: WirePart[] = []
  #cutShort = false

  constructor(streamed: boolean) {
    this.#streamed = streamed
  }

  get message(): CommittedMessage {
    return { content: this.#content, toolCalls: this.#calls.map((call) => ({ ...call })) }
  }

  push(text: string): WirePart[] {
    let rest = text
    while (rest !== '') rest = this.#step(rest)
    return this.#take()
  }

  end(): WirePart[] {
    while (this.#place === 'call' && this.#shown === null) {
      let rest = this.#notACall()
      while (rest !== '') rest = this.#step(rest)
    }
    this.#cutShort = this.#place === 'call'
    if (this.#place === 'close') this.#showCall()
    else if (this.#place === 'text' || withoutSpace(this.#held) !== '') this.#text(this.#held)
    this.#held = ''
    return this.#take()
  }

  /** The last call was shown in part and never became whole. */
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
    switch (this.#place) {
      case 'text': return this.#inText(this.#held + rest)
      case 'gap': return this.#inGap(this.#held + rest)
      case 'call': return this.#inCall(rest)
      case 'close': return this.#beforeClose(this.#held + rest)
    }
  }

  #inText(all: string): string {
    const tag = all.indexOf(CALL_OPEN)
    if (tag === -1) {
      const keep = Math.max(overlap(all, CALL_OPEN), overlap(all, `\n${CALL_OPEN}`))
      this.#text(all.slice(0, all.length - keep))
      this.#held = all.slice(all.length - keep)
      return ''
    }
    const from = all[tag - 1] === '\n' ? tag - 1 : tag
    this.#text(all.slice(0, from))
    return this.#enterCall(all.slice(from, tag + CALL_OPEN.length), all.slice(tag + CALL_OPEN.length))
  }

  #inGap(all: string): string {
    const next = withoutSpace(all)
    if (next.startsWith(CALL_OPEN)) {
      const tagEnd = all.length - next.length + CALL_OPEN.length
      return this.#enterCall(all.slice(0, tagEnd), all.slice(tagEnd))
    }
    this.#held = all
    if (CALL_OPEN.startsWith(next)) return ''
    this.#place = 'text'
    this.#held = ''
    return all
  }

  #enterCall(opener: string, rest: string): string {
    this.#place = 'call'
    this.#opener = opener
    this.#body = ''
    this.#objectAt = 0
    this.#scanner = new JsonScanner()
    this.#held = ''
    return rest
  }

  #inCall(rest: string): string {
    for (let at = 0; at < rest.length; at++) {
      const unit = rest.charAt(at)
      if (this.#body.length === this.#objectAt && withoutSpace(unit) === '') {
        this.#body += unit
        this.#objectAt++
        continue
      }
      const state = this.#scanner.push(unit)
      if (state === 'bad') return this.#broken(rest.slice(at))
      this.#body += unit
      if (this.#streamed) this.#stream()
      if (state === 'done') {
        this.#place = 'close'
        return this.#call() === null ? this.#broken(rest.slice(at + 1)) : rest.slice(at + 1)
      }
    }
    return ''
  }

  /** A call that was shown already cannot be taken back: it ends here, and what follows is text. */
  #broken(rest: string): string {
    if (this.#shown === null) return this.#notACall() + rest
    this.#leaveCall()
    this.#place = 'text'
    return rest
  }

  #beforeClose(all: string): string {
    const next = withoutSpace(all)
    this.#held = all
    if (next.startsWith(CALL_CLOSE)) {
      this.#showCall()
      this.#leaveCall()
      this.#held = ''
      return next.slice(CALL_CLOSE.length)
    }
    if (CALL_CLOSE.startsWith(next)) return ''
    this.#held = ''
    return this.#broken(all)
  }

  /** Everything since the opening tag is text; another tag may be in it. */
  #notACall(): string {
    this.#place = 'text'
    this.#text(this.#opener)
    const rest = this.#body + this.#held
    this.#held = ''
    return rest
  }

  #leaveCall(): void {
    this.#place = 'gap'
    this.#shown = null
  }

  /** The call whose object is complete, or null where the object is none. */
  #call(): Call | null {
    const name = this.#name()
    const given = this.#member('arguments')
    if (name === null || given === null || given.valueEnd === null) return null
    return { name, arguments: this.#slice(given.valueBegin, given.valueEnd) }
  }

  #name(): string | null {
    const member = this.#member('name')
    if (member === null || member.valueEnd === null) return null
    const name: unknown = JSON.parse(this.#slice(member.valueBegin, member.valueEnd))
    return typeof name === 'string' && name !== '' ? name : null
  }

  /** The one member of that name; `arguments` only where it is an object. */
  #member(key: 'name' | 'arguments'): Member | null {
    const found = this.#scanner.members.filter(({ keyBegin, keyEnd }) => this.#slice(keyBegin, keyEnd) === `"${key}"`)
    const [member] = found
    if (member === undefined || found.length > 1) return null
    return key === 'arguments' && this.#slice(member.valueBegin, member.valueBegin + 1) !== '{' ? null : member
  }

  #slice(begin: number, end: number): string {
    return this.#body.slice(this.#objectAt + begin, this.#objectAt + end)
  }

  /** Shows the complete call, where it was not shown as it came. */
  #showCall(): void {
    const call = this.#call()
    if (call === null || this.#shown !== null) return
    this.#parts.push({ kind: 'toolCall', index: this.#calls.length, ...call })
    this.#calls.push(call)
  }

  #stream(): void {
    const given = this.#member('arguments')
    if (given === null) return
    const shown = this.#shown ?? 0
    const added = this.#slice(given.valueBegin + shown, given.valueEnd ?? this.#body.length - this.#objectAt)
    const name = this.#shown === null ? this.#name() : null
    if (added === '' || (this.#shown === null && name === null)) return
    if (name !== null) this.#calls.push({ name, arguments: '' })
    const call = this.#calls.at(-1)
    if (call !== undefined) call.arguments += added
    this.#shown = shown + added.length
    this.#showArguments(name, added)
  }

  #showArguments(name: string | null, added: string): void {
    const last = this.#parts.at(-1)
    const index = this.#calls.length - 1
    if (name === null && last?.kind === 'toolCall' && last.index === index) {
      this.#parts[this.#parts.length - 1] = { ...last, arguments: last.arguments + added }
    } else {
      this.#parts.push({ kind: 'toolCall', index, name, arguments: added })
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

/** JSON's space only. */
const withoutSpace = (text: string): string => text.replace(/^[ \t\n\r]+/, '')
