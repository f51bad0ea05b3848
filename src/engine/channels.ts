/**
 * Owns telling apart the messages of an answer in channels (gpt-oss): what it thinks, what it says, and whom it calls.
 *
 *   <|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>final<|message|>answer
 *   <|channel|>commentary to=functions.x <|constrain|>json<|message|>{...}<|call|>
 *
 * The prompt ends with `<|start|>assistant`. A call goes on as text, with its heading in one form, for the reader of tool
 * calls. Where no heading comes, all is text. What is told depends on the text alone, not on how it came in pieces.
 */
import { ReasoningParser } from './reasoning.ts'
import type { ReasoningTags, Told } from './reasoning.ts'
import { overlap } from './stop.ts'

export const CALL_OPEN = '<|channel|>commentary to=functions.'
export const MESSAGE = '<|message|>'
export const CALL_END = '<|call|>'

const ENDS = ['<|end|>', CALL_END, '<|return|>']
/** What a heading begins with; more of it may follow. */
const HEADS = ['<|start|>assistant', '<|channel|>', ' to=']
const HEAD_CHARS_MAX = 256
const BREAK = '\n'

/** What tells reasoning from the rest. */
export type ReasoningReader = Pick<ReasoningParser, 'reasoning' | 'push' | 'end'>

export const readerOf = (tags: ReasoningTags, opened: boolean): ReasoningReader =>
  tags.inChannels === true ? new ChannelParser() : new ReasoningParser(tags, opened)

type Kind = 'reasoning' | 'text' | 'call'

class ChannelParser implements ReasoningReader {
  /** Null: in a heading. */
  #kind: Kind | null = null
  #held = ''
  #reasoning = ''
  #hasText = false

  get reasoning(): string {
    return this.#reasoning
  }

  push(text: string): Told {
    const told = { reasoning: '', text: '' }
    let rest = this.#held + text
    this.#held = ''
    while (rest !== '') rest = this.#kind === null ? this.#head(rest, told) : this.#body(rest, this.#kind, told)
    return told
  }

  end(): Told {
    const told = { reasoning: '', text: '' }
    this.#tell(this.#kind ?? 'text', this.#held, told)
    this.#held = ''
    return told
  }

  /** What is left of `rest`; what may yet be a heading is held. */
  #head(rest: string, told: { reasoning: string; text: string }): string {
    const at = rest.indexOf(MESSAGE)
    if (!mayBeHead(at === -1 ? rest : rest.slice(0, at + MESSAGE.length - 1))) {
      this.#kind = 'text'
      return rest
    }
    if (at === -1) {
      this.#held = rest
      return ''
    }
    this.#begin(rest.slice(0, at), told)
    return rest.slice(at + MESSAGE.length)
  }

  #begin(head: string, told: { reasoning: string; text: string }): void {
    const called = / to=functions\.([^\s<]+)/.exec(head)?.[1]
    this.#kind = called !== undefined ? 'call' : head.includes('<|channel|>analysis') ? 'reasoning' : 'text'
    if (called !== undefined) told.text += `${CALL_OPEN}${called}${MESSAGE}`
    else if (this.#kind === 'text' ? this.#hasText : this.#reasoning !== '') this.#tell(this.#kind, BREAK, told)
  }

  #body(rest: string, kind: Kind, told: { reasoning: string; text: string }): string {
    const found = ENDS.map((mark) => ({ mark, at: rest.indexOf(mark) })).filter(({ at }) => at !== -1).sort((a, b) => a.at - b.at)[0]
    if (found === undefined) {
      const free = rest.length - Math.max(...ENDS.map((mark) => overlap(rest, mark)))
      this.#tell(kind, rest.slice(0, free), told)
      this.#held = rest.slice(free)
      return ''
    }
    this.#tell(kind, rest.slice(0, found.at) + (kind === 'call' ? CALL_END : ''), told)
    this.#kind = null
    return rest.slice(found.at + found.mark.length)
  }

  #tell(kind: Kind, text: string, told: { reasoning: string; text: string }): void {
    if (text === '') return
    if (kind === 'reasoning') {
      this.#reasoning += text
      told.reasoning += text
    } else {
      this.#hasText ||= kind === 'text'
      told.text += text
    }
  }
}

/** True of every beginning of a text of which it is true. */
const mayBeHead = (text: string): boolean => text.length <= HEAD_CHARS_MAX && !text.includes('\n')
  && HEADS.some((head) => head.startsWith(text) || text.startsWith(head))
