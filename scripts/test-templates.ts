/**
 * Owns `npm run test:templates`: every chat template of llama.cpp's source tree is rendered in five ways, and what a
 * model of it would write is parsed back. Templates are read where they lie, and never copied.
 *
 * What a model would write is what the template itself renders of an assistant's message: it is cut out, parsed whole
 * and in two pieces at every byte, and must give the calls and the reasoning that were rendered. Prints a table; exit
 * code 1 where one fails that is not in `templates-known.ts`, or is there and does not fail.
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs'
import { basename, join } from 'node:path'
import { peerFolder } from '../bench/peer.ts'
import { jsonEqual } from '../src/engine/grammar/json-text.ts'
import { OutputPipeline } from '../src/engine/output.ts'
import type { OutputEnd } from '../src/engine/output.ts'
import { opensReasoning } from '../src/engine/reasoning.ts'
import { messageBegin } from '../src/engine/tool-format/choose.ts'
import { ChatTemplate, TemplateError } from '../src/engine/template.ts'
import type { ChatMessage, ToolDefinition } from '../src/protocol/chat.ts'
import type { WirePart } from '../src/protocol/engine.ts'
import { KNOWN } from './templates-known.ts'

const TOOLS: readonly ToolDefinition[] = [{
  name: 'get_weather',
  description: 'The weather of a city.',
  parameters: {
    type: 'object',
    properties: {
      city: { type: 'string', description: 'Its name.' }, days: { type: 'integer', description: 'How many.' },
    },
    required: ['city'],
  },
}]
const REASONING = 'The user wants the weather.\nTwo cities.'
const ANSWER = 'I look.'
/** Also text that a reader must not take for the end of anything. */
const CALLS = ['{"city": "Bad \\"Urach\\" — {x}", "days": 3}', '{"city": "Köln", "days": 1}']
  .map((given, i) => ({ id: `call_${i}`, name: 'get_weather', arguments: given }))

/** What a tool answers. */
const RESULT = 'dry and warm'

const say = (role: ChatMessage['role'], content: string, more: Partial<ChatMessage> = {}): ChatMessage =>
  ({ role, content, toolCalls: [], toolCallId: null, ...more })
const USER = say('user', 'Will it rain?')
const results = (count: number): ChatMessage[] =>
  CALLS.slice(0, count).map(({ id }) => say('tool', RESULT, { toolCallId: id }))

interface Row { readonly name: string; readonly cells: readonly string[]; readonly fault: string | null }

const folder = process.argv[2] ?? process.env['ENTRACTE_TEMPLATES']
  ?? join(peerFolder(), 'llama.cpp', 'models', 'templates')
if (!existsSync(folder)) {
  console.error(`there are no templates at ${folder}: name the folder, or fetch llama.cpp's source with "npm run peer"`)
  process.exitCode = 1
} else {
  process.exitCode = main(folder)
}

function main(from: string): number {
  const names = readdirSync(from).filter((name) => name.endsWith('.jinja')).sort()
  const rows = names.map((name) => check(basename(name, '.jinja'), readFileSync(join(from, name), 'utf8')))
  const head = ['template', 'plain', 'system', 'tools', 'calls', 'reasoning', 'form', 'round trip', 'reasoning back']
  const lines = [head, ...rows.map(({ name, cells }) => [name, ...cells])]
  const widths = head.map((_, i) => Math.max(...lines.map((line) => line[i]?.length ?? 0)))
  for (const line of lines) console.log(line.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join('  ').trimEnd())
  let wrong = 0
  console.log()
  for (const { name, fault } of rows) {
    const known = KNOWN.get(name)
    if (fault === null && known === undefined) continue
    if (fault === null || known === undefined) wrong++
    const sort = fault === null ? 'LISTED BUT HOLDS' : known === undefined ? 'FAILS' : 'known'
    console.log(`${sort}  ${name}: ${fault ?? ''}${known === undefined ? '' : ` (${known})`}`)
  }
  const held = rows.filter(({ fault }) => fault === null).length
  console.log(`\n${rows.length} templates, ${held} hold, ${rows.length - held} do not, ${wrong} of them unexpected`)
  return wrong === 0 && rows.length > 0 ? 0 : 1
}

function check(name: string, source: string): Row {
  const template = attempt(() => ChatTemplate.compile({ source, bosText: '<s>', eosText: '</s>', addBos: false }))
  if (typeof template === 'string') return { name, cells: ['no'], fault: template }
  const faults: string[] = []
  const cell = (what: string, work: () => string | null): string => {
    const failed = attempt(work)
    if (failed !== null) faults.push(`${what}: ${failed}`)
    return failed === null ? 'yes' : 'no'
  }
  const renders = (what: string, wanted: string, messages: readonly ChatMessage[], tools = TOOLS): string =>
    cell(what, () => textOf(template, messages, tools).includes(wanted) ? null : `${JSON.stringify(wanted)} is not there`)
  const calls = callsOf(template)
  const use = template.toolUse
  const cells = [
    renders('plain', 'Will it rain?', [USER, say('assistant', 'No.'), say('user', 'Sure?')], []),
    renders('system', 'Be kind.', [say('system', 'Be kind.'), USER], []),
    renders('tools', 'get_weather', [USER]),
    renders('calls', RESULT, [USER, say('assistant', '', { toolCalls: calls }), ...results(calls.length)]),
    renders('reasoning', 'Sure?', [USER, say('assistant', 'No.', { reasoning: REASONING }), say('user', 'Sure?')], []),
    [use.kind, use.format.name, ...(use.kind === 'native' ? [use.argumentsAs] : [])].join(' '),
    cell('round trip', () => eitherTrip(template, { toolCalls: calls })),
  ]
  if (use.kind === 'plain' && use.because === 'unknown form') faults.push('its form of tool calls is not known')
  const thinks = template.reasoning !== null && writesReasoning(template)
  const back = thinks
    ? cell('reasoning', () => eitherTrip(template, { toolCalls: calls, reasoning: REASONING }))
    : '-'
  return { name, cells: [...cells, back], fault: faults.length === 0 ? null : faults.join('; ') }
}

/** Both, or one where the template takes no more. */
function callsOf(template: ChatTemplate): ChatMessage['toolCalls'] {
  const both = attempt(() => textOf(template, [USER, say('assistant', '', { toolCalls: CALLS }), ...results(2)], TOOLS))
  return both.includes(RESULT) ? CALLS : CALLS.slice(0, 1)
}

function writesReasoning(template: ChatTemplate): boolean {
  const message = say('assistant', '', { toolCalls: callsOf(template), reasoning: REASONING })
  return attempt(() => textOf(template, [USER, message], TOOLS)).includes(REASONING)
}

// ---------------------------------------------------------------- there and back

/** Some templates end the turn between an answer and its calls, or write one call only: then less is asked. */
function eitherTrip(template: ChatTemplate, more: Partial<ChatMessage>): string | null {
  const one = { ...more, toolCalls: CALLS.slice(0, 1) }
  const fault = roundTrip(template, say('assistant', ANSWER, more))
  if (fault === null || roundTrip(template, say('assistant', '', more)) === null) return null
  return [ANSWER, ''].some((answer) => roundTrip(template, say('assistant', answer, one)) === null) ? null : fault
}

function roundTrip(template: ChatTemplate, message: ChatMessage): string | null {
  const { text, opened } = emission(template, message)
  const whole = parse(template, [Buffer.from(text)], opened)
  const fault = differs(whole, message)
  if (fault !== null) return `${fault} in ${JSON.stringify(text)}`
  const bytes = Buffer.from(text)
  for (let cut = 1; cut < bytes.length; cut++) {
    const pieces = parse(template, [bytes.subarray(0, cut), bytes.subarray(cut)], opened)
    if (pieces !== whole && JSON.stringify(pieces) !== JSON.stringify(whole)) return `another message when cut at byte ${cut}`
  }
  return null
}

/** What the template renders of a message, without what comes before it and after it. */
function emission(template: ChatTemplate, message: ChatMessage): { readonly text: string; readonly opened: boolean } {
  const MARK = 'entractemark'
  const prompt = textOf(template, [USER], TOOLS)
  const text = textOf(template, [USER, message], TOOLS)
  const marked = textOf(template, [USER, say('assistant', MARK)], TOOLS)
  const tail = marked.slice(marked.lastIndexOf(MARK) + MARK.length)
  const begin = messageBegin(prompt, text)
  let end = 0
  while (end < tail.length && text.length - end > begin && tail.at(-1 - end) === text.at(-1 - end)) end++
  const { reasoning } = template
  const opened = reasoning !== null && opensReasoning(reasoning, text.slice(0, begin))
  const cut = text.slice(begin, text.length - end)
  if (cut !== '') return { text: cut, opened }
  // Calls that are written only where their results follow: what stands behind them may stay, it is text.
  const answered = textOf(template, [USER, message, ...results(message.toolCalls.length)], TOOLS)
  return { text: answered.slice(messageBegin(prompt, answered)), opened: false }
}

type Message = OutputEnd['message']

/** Each piece as one token; the parts are put together as a client does it. */
function parse(template: ChatTemplate, pieces: readonly Uint8Array[], opened: boolean): Message {
  const { toolUse, reasoning } = template
  const output = new OutputPipeline({
    tokenizer: {
      tokenize: () => new Int32Array(), isEog: () => false, isControl: () => false,
      piece: (token) => pieces[token] ?? new Uint8Array(),
    },
    stops: [], callsTools: true, toolFormat: toolUse.format, tools: TOOLS,
    reasoning: reasoning === null ? null : { tags: reasoning, opened },
  })
  const parts = pieces.flatMap((_, token) => [...output.push(token).parts])
  return assembled([...parts, ...output.end('stop').parts])
}

function assembled(parts: readonly WirePart[]): Message {
  const toolCalls: { name: string; arguments: string }[] = []
  let content = ''
  let reasoning = ''
  for (const part of parts) {
    if (part.kind === 'text') content += part.text
    else if (part.kind === 'reasoning') reasoning += part.text
    else {
      const call = toolCalls[part.index] ??= { name: part.name ?? '', arguments: '' }
      call.arguments += part.arguments
    }
  }
  return { content, toolCalls, reasoning }
}

function differs(found: Message, given: ChatMessage): string | null {
  if (found.toolCalls.length !== given.toolCalls.length) return `${found.toolCalls.length} calls were found`
  for (const [i, { name, arguments: text }] of found.toolCalls.entries()) {
    if (name !== given.toolCalls[i]?.name) return `a call of ${JSON.stringify(name)} was found`
    if (!jsonEqual(JSON.parse(text), JSON.parse(given.toolCalls[i].arguments))) return `the arguments ${text} were found`
  }
  if (given.reasoning !== undefined && found.reasoning !== given.reasoning) {
    return `the reasoning ${JSON.stringify(found.reasoning)} was found`
  }
  return null
}

// ---------------------------------------------------------------- small things

function textOf(template: ChatTemplate, messages: readonly ChatMessage[], tools: readonly ToolDefinition[]): string {
  return template.render(messages, tools).map(({ text }) => text).join('')
}

/** What a template refuses is said, all else is thrown. */
function attempt<T>(work: () => T): T | string {
  try {
    return work()
  } catch (error) {
    if (error instanceof TemplateError) return error.message
    throw error
  }
}
