/**
 * Owns telling what a model thinks from what it says: reasoning stands between two tags at the beginning of its message,
 * and where the template has written the opening one, from the first character on. A tag further on is text.
 *
 *   <think>\nreasoning\n</think>\n\nanswer
 *
 * The line breaks around the tags belong to the form. Reasoning that is never closed is all there is: it stays reasoning.
 * What is told depends on the text alone, not on how it came in pieces.
 */
import { overlap } from './stop.ts'
import { isSpace } from './tool-format/format.ts'

export interface ReasoningTags {
  readonly open: string
  readonly close: string
  /** They are headings of messages: `channels.ts` reads them. */
  readonly inChannels?: true
}

const KNOWN: readonly ReasoningTags[] = [
  { open: '<think>', close: '</think>' },
  { open: '[THINK]', close: '[/THINK]' },
  { open: '<seed:think>', close: '</seed:think>' },
  { open: '<mm:think>', close: '</mm:think>' },
  { open: '<|START_THINKING|>', close: '<|END_THINKING|>' },
  { open: '<|channel>thought', close: '<channel|>' },
  { open: '<|channel|>analysis<|message|>', close: '<|end|>', inChannels: true },
]

/** The tags that a chat template knows; null where it knows none. */
export const reasoningOf = (source: string): ReasoningTags | null =>
  KNOWN.find(({ open, close, inChannels }) => source.includes(close) && (inChannels !== true || source.includes(open))) ?? null

/** The prompt leaves the model in the middle of its reasoning. */
export const opensReasoning = (tags: ReasoningTags, prompt: string): boolean => prompt.trimEnd().endsWith(tags.open)

export interface Told { readonly reasoning: string; readonly text: string }

/** begin: an opening may come; inside: reasoning; gap: after the closing tag; text: for good. */
type Place = 'begin' | 'inside' | 'gap' | 'text'

export class ReasoningParser {
  readonly #tags: ReasoningTags
  #place: Place
  #held = ''
  /** Nothing of the reasoning was told yet. */
  #fresh = true
  #told = ''

  constructor(tags: ReasoningTags, opened: boolean) {
    this.#tags = tags
    this.#place = opened ? 'inside' : 'begin'
  }

  /** All reasoning that was told. */
  get reasoning(): string {
    return this.#told
  }

  push(text: string): Told {
    const all = this.#held + text
    this.#held = ''
    switch (this.#place) {
      case 'begin': return this.#begin(all)
      case 'inside': return this.#inside(all)
      case 'gap': return this.#gap(all)
      case 'text': return { reasoning: '', text: all }
    }
  }

  end(): Told {
    const held = this.#held
    this.#held = ''
    if (this.#place !== 'inside') return { reasoning: '', text: this.#place === 'gap' ? '' : held }
    return { reasoning: this.#tell(withoutBreaks(held)), text: '' }
  }

  #begin(all: string): Told {
    const { open } = this.#tags
    let at = 0
    while (isSpace(all.charAt(at))) at++
    const next = all.slice(at)
    if (next.startsWith(open)) {
      this.#place = 'inside'
      return this.push(next.slice(open.length))
    }
    if (open.startsWith(next)) {
      this.#held = all
      return { reasoning: '', text: '' }
    }
    this.#place = 'text'
    return { reasoning: '', text: all }
  }

  #inside(all: string): Told {
    const { close } = this.#tags
    const from = this.#fresh ? all.length - all.replace(/^\n+/, '').length : 0
    const at = all.indexOf(close)
    if (at !== -1) {
      const reasoning = this.#tell(withoutBreaks(all.slice(Math.min(from, at), at)))
      this.#place = 'gap'
      const { text } = this.push(all.slice(at + close.length))
      return { reasoning, text }
    }
    const shown = withoutBreaks(all.slice(0, all.length - overlap(all, close)))
    const end = Math.max(from, shown.length)
    this.#held = all.slice(end)
    return { reasoning: this.#tell(all.slice(from, end)), text: '' }
  }

  #gap(all: string): Told {
    const text = all.replace(/^\n+/, '')
    if (text !== '') this.#place = 'text'
    return { reasoning: '', text }
  }

  #tell(reasoning: string): string {
    if (reasoning !== '') this.#fresh = false
    this.#told += reasoning
    return reasoning
  }
}

/** Without the line breaks at its end. */
function withoutBreaks(text: string): string {
  let end = text.length
  while (text.charAt(end - 1) === '\n') end--
  return text.slice(0, end)
}
