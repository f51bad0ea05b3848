/**
 * Owns which form of tool calls a chat template has, found out by asking it: it renders a conversation with calls, and
 * the form is the one whose reader gets those calls back out of what was rendered.
 *
 *   native   the template writes tools, calls and results
 *   written  it writes the tools but no calls, and its text names the opening of a form: calls go into the content
 *   plain    neither: the tools go into the system text and the calls into the content, in the Hermes form
 */
import { sameJson } from '../grammar/json-text.ts'
import { readerOf } from '../channels.ts'
import { opensReasoning } from '../reasoning.ts'
import type { ReasoningTags } from '../reasoning.ts'
import type { CommittedMessage } from '../token-record.ts'
import { ToolCallParser } from '../tools.ts'
import { nativeTool, nativeTurns, turn } from '../turns.ts'
import type { Turn } from '../turns.ts'
import { writeMessage } from './format.ts'
import type { ToolFormat } from './format.ts'
import { apertus } from './apertus.ts'
import { gemma } from './gemma.ts'
import { glm } from './glm.ts'
import { granite } from './granite.ts'
import { harmony } from './harmony.ts'
import { hermes } from './hermes.ts'
import { invoke } from './invoke.ts'
import { json } from './json.ts'
import { llama3 } from './llama3.ts'
import { markedJson } from './marked-json.ts'
import { mistral, mistralList } from './mistral.ts'
import { namedJson } from './named-json.ts'
import { python } from './python.ts'
import { qwenCoder } from './qwen-coder.ts'

/**
 * How a template takes the arguments of a call: a placeholder as text or as the key of an object, which is filled with
 * what was written; or the values themselves, where the template writes each of them on its own.
 */
type ArgumentsAs = 'text' | 'object' | 'values'

export type ToolUse =
  | { readonly kind: 'native'; readonly format: ToolFormat; readonly argumentsAs: ArgumentsAs }
  | { readonly kind: 'written'; readonly format: ToolFormat; readonly results: 'tool' | 'user' }
  | { readonly kind: 'plain'; readonly format: ToolFormat; readonly because: 'no tools' | 'unknown form' }

interface AskedTemplate {
  readonly source: string
  readonly reasoning: ReasoningTags | null
  /** Null where the template refuses. */
  render(turns: readonly Turn[], tools: readonly unknown[] | null, again: boolean): string | null
}

/** Those that are told from others by more of their text come first. */
export const FORMATS: readonly ToolFormat[] = [
  hermes, qwenCoder, glm, mistralList, mistral, granite, ...markedJson, ...namedJson, ...invoke,
  apertus, python, gemma, harmony, json, llama3,
]

/** Plain letters, so that no filter changes them. */
const PROBE = 'entracteprobe'

const TOOL = {
  name: `${PROBE}tool`,
  description: 'd',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string', description: 'd' }, days: { type: 'integer', description: 'd' } },
    required: ['city'],
  },
}
const CALLS = ['{"city": "Bad Urach", "days": 3}', '{"city": "Ulm", "days": 1}']
  .map((given, i) => ({ id: `${i}`, name: TOOL.name, arguments: given }))

export function chooseToolUse(template: AskedTemplate): ToolUse {
  if (!template.render([turn('user', 'x')], [nativeTool(TOOL)], true)?.includes(TOOL.name)) {
    return { kind: 'plain', format: hermes, because: 'no tools' }
  }
  const exact = nativeUse(template, writesExactly)
  if (exact !== null) return exact
  return nativeUse(template, readsBack) ?? writtenUse(template) ?? { kind: 'plain', format: hermes, because: 'unknown form' }
}

type Test = (format: ToolFormat, asked: Asked, template: AskedTemplate) => boolean

function nativeUse(template: AskedTemplate, test: Test): ToolUse | null {
  for (const argumentsAs of ['text', 'object', 'values'] as const) {
    for (const format of FORMATS) {
      // Some templates take one call a message, or drop all but one.
      const holds = [CALLS, CALLS.slice(0, 1)].some((calls) => {
        const asked = ask(template, format, argumentsAs, calls)
        return asked !== null && test(format, asked, template)
      })
      if (holds) return { kind: 'native', format, argumentsAs }
    }
  }
  return null
}

/** Not where the template writes calls of its own: then its form is one that is not known. */
function writtenUse(template: AskedTemplate): ToolUse | null {
  const { source, render } = template
  const own = ['values', 'text'] as const
  if (own.some((as) => ask(template, hermes, as, CALLS.slice(0, 1))?.text.includes('Bad Urach') === true)) return null
  const format = FORMATS.find((each) =>
    (each.writing !== null || each.write !== undefined) && (each.hints ?? each.opens).some((hint) => source.includes(hint)))
  if (format === undefined) return null
  const turns = [turn('user', 'x'), turn('assistant', 'y'), turn('tool', PROBE)]
  const results = render(turns, null, true)?.includes(PROBE) === true ? 'tool' : 'user'
  return { kind: 'written', format, results }
}

// ---------------------------------------------------------------- asking

interface Asked { readonly calls: typeof CALLS; readonly text: string; readonly opened: boolean }

/** What a model would have written for the calls. Null where the template does not take them. */
function ask(template: AskedTemplate, format: ToolFormat, as: ArgumentsAs, calls: typeof CALLS): Asked | null {
  const tools = [nativeTool(TOOL)]
  const user = { role: 'user' as const, content: 'x', toolCalls: [], toolCallId: null }
  const prompt = template.render([turn('user', 'x')], tools, true)
  if (prompt === null) return null
  const given: string[] = []
  const message = { role: 'assistant' as const, content: '', toolCalls: calls, toolCallId: null }
  const results = calls.map(({ id }) =>
    ({ role: 'tool' as const, content: `${PROBE}result`, toolCalls: [], toolCallId: id }))
  const turns = nativeTurns([user, message, ...results], format, placer(as, PROBE, given))
  const text = template.render(turns.slice(0, 2), tools, false)
  if (text === null || template.render(turns, tools, true)?.includes(`${PROBE}result`) !== true) return null
  const begin = messageBegin(prompt, text)
  const opened = template.reasoning !== null && opensReasoning(template.reasoning, text.slice(0, begin))
  return { calls, opened, text: fillAll(text.slice(begin), PROBE, given) }
}

function writesExactly(format: ToolFormat, { calls, text }: Asked): boolean {
  return format.writing !== null && text.includes(writeMessage(format, '', calls))
}

function readsBack(format: ToolFormat, { calls, text, opened }: Asked, { reasoning }: AskedTemplate): boolean {
  const { toolCalls } = readMessage(format, text, reasoning === null ? null : { tags: reasoning, opened })
  return toolCalls.length === calls.length && calls.every(({ name, arguments: given }, i) =>
    toolCalls[i]?.name === name && sameJson(toolCalls[i].arguments, given))
}

/** All of a message at once. */
function readMessage(
  format: ToolFormat, text: string, reasoning: { readonly tags: ReasoningTags; readonly opened: boolean } | null,
): Pick<CommittedMessage, 'toolCalls'> {
  const thinking = reasoning === null ? null : readerOf(reasoning.tags, reasoning.opened)
  const said = thinking === null ? text : thinking.push(text).text + thinking.end().text
  const parser = new ToolCallParser({ format, tools: [TOOL] })
  parser.push(said)
  parser.end()
  return parser.message
}

/** Where a message begins in a text, given the prompt before it. No tag of the two is taken apart. */
export function messageBegin(prompt: string, text: string): number {
  let at = 0
  while (at < prompt.length && prompt.charCodeAt(at) === text.charCodeAt(at)) at++
  if (at === prompt.length) return at
  while (at > 0 && !'>]\n'.includes(text.charAt(at - 1))) at--
  return at
}

// ---------------------------------------------------------------- placeholders

/** Gives the template a placeholder for each text of arguments, and collects the texts; or gives their values. */
export function placer(as: ArgumentsAs, mark: string, given: string[]): (text: string) => unknown {
  return (text) => {
    if (as === 'values') return JSON.parse(text)
    const name = `${mark}${given.push(text) - 1}${mark}`
    return as === 'object' ? { [name]: 0 } : name
  }
}

/** Puts the texts where their placeholders came out: as an object's only key, quoted, or bare. */
export function fillAll(text: string, mark: string, given: readonly string[]): string {
  return given.reduce((left, written, i) => fill(left, `${mark}${i}${mark}`, written), text)
}

function fill(text: string, placeholder: string, written: string): string {
  for (const form of [`{${JSON.stringify(placeholder)}: 0}`, JSON.stringify(placeholder), placeholder]) {
    if (text.includes(form)) return text.replace(form, () => written)
  }
  return text
}
