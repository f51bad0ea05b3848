/**
 * Owns the words of a program: its first prompt, and how long a text must be to come to a number of tokens. The counts
 * are of the default model's tokenizer over `data/corpus`; another model's differ, and so does what a call really is.
 */
import { Corpus } from './corpus.ts'
import type { PlannedProgram, ProgramKind } from './mix.ts'
import { cut, TOOLS, type ToolName, type ToolSchema } from './tools.ts'

/** Measured over the passages: 4.57 in the mean, 4.1 to 5.0 each. */
const CHARACTERS_PER_TOKEN = 4.57
/** Measured over the records, which are full of digits. */
const RECORD_CHARACTERS_PER_TOKEN = 3.02
/** A tool message's frame and the next answer's opening. */
const RESULT_FRAME_TOKENS = 26
/** Message frames, the system text and the task of a first prompt, without tools and notes. */
const FIRST_FRAME_TOKENS = 52
/** What the first tool adds to a prompt (with the words around the list), and each other. */
const TOOL_LIST_TOKENS = 113
const TOOL_TOKENS = 76

/** What every conversation begins with. */
export const SYSTEM = 'You are a careful assistant who uses tools and answers in plain words.'

const TASKS: Readonly<Record<ProgramKind, string>> = {
  chat: 'Read the notes and say in a few sentences what they have in common.',
  react: 'Answer from the notes and from what you find by searching: which of these things is the oldest, and why?',
  clerk: 'A customer wants to change an order. Read the notes, look up the parts, ask the person where you are unsure, and then confirm.',
  coder: 'Work through the notes step by step, check the figures with the tools, and then report what you changed.',
  talk: 'Help the person with a text about the notes. Ask what they want, and then write it.',
}

interface FirstPrompt {
  readonly messages: readonly { readonly role: 'system' | 'user'; readonly content: string }[]
  readonly tools: readonly ToolSchema[]
}

/** Deterministic, and different in its first words for every program, so that no two share more than the frame. */
export function firstPrompt(program: PlannedProgram, corpus: Corpus): FirstPrompt {
  const names = toolsOf(program)
  const tokens = (program.calls[0]?.newTokens ?? 0) - frameTokens(names.length)
  return {
    messages: [
      { role: 'system', content: SYSTEM },
      { role: 'user', content: `Case ${program.name}. ${TASKS[program.kind]}\nNotes:\n${notesFor(program.name, corpus, tokens)}` },
    ],
    tools: names.map((name) => TOOLS[name]),
  }
}

/** How long a result of this tool must be to give the next call `newTokens`. */
export function resultCharacters(tool: ToolName, newTokens: number): number {
  const perToken = tool === 'lookup' ? RECORD_CHARACTERS_PER_TOKEN : CHARACTERS_PER_TOKEN
  return Math.max(8, Math.round((newTokens - RESULT_FRAME_TOKENS) * perToken))
}

export const frameTokens = (tools: number): number =>
  FIRST_FRAME_TOKENS + (tools === 0 ? 0 : TOOL_LIST_TOKENS + tools * TOOL_TOKENS)

const toolsOf = (program: PlannedProgram): readonly ToolName[] =>
  [...new Set(program.calls.flatMap(({ tool }) => (tool === null ? [] : [tool])))].sort()

/** Passages in the order in which a search for the name ranks them: its own for each. */
export function notesFor(name: string, corpus: Corpus, tokens: number): string {
  const ranked = corpus.search(name)
  const start = [...name].reduce((sum, letter) => (sum * 31 + letter.charCodeAt(0)) % ranked.length, 7)
  const text = [...ranked.slice(start), ...ranked.slice(0, start)].map((passage) => `${passage.title}: ${passage.text}`).join('\n')
  return cut(text, Math.max(40, Math.round(tokens * CHARACTERS_PER_TOKEN)))
}
