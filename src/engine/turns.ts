/**
 * Owns the messages of a call as chat templates know them: the turns a template is given where it knows tools, where
 * only its tool list and results are used, and where it knows none.
 *
 * Ids of calls are given anew by their place in the conversation, in a form every template takes: what clients put
 * there changes no prompt.
 */
import type { ChatMessage, ToolDefinition } from '../protocol/chat.ts'
import { jsonText } from './grammar/json-text.ts'
import { writeMessage } from './tool-format/format.ts'
import type { ToolFormat } from './tool-format/format.ts'
import { hermes } from './tool-format/hermes.ts'

export interface Turn {
  readonly role: string
  content: string
  readonly reasoning_content?: string
  /** What some templates call the same. */
  readonly thinking?: string
  readonly tool_calls?: readonly unknown[]
  readonly tool_call_id?: string
  readonly name?: string
}

export const turn = (role: string, content: string, reasoning?: string): Turn =>
  ({ role, content, ...(reasoning === undefined || reasoning === '' ? {} : { reasoning_content: reasoning, thinking: reasoning }) })

export const nativeTool = ({ name, description, parameters }: ToolDefinition): unknown =>
  ({ type: 'function', function: { name, description, parameters } })

/** `given` makes of a call's arguments what the template is given. */
export function nativeTurns(
  messages: readonly ChatMessage[], format: ToolFormat, given: (text: string) => unknown,
): Turn[] {
  const called = new Map<string, { readonly id: string; readonly name: string }>()
  let count = 0
  return messages.map(({ role, content, reasoning, toolCalls, toolCallId }) => {
    const calls = toolCalls.map((call, i) => {
      const id = format.callId?.(call.name, i) ?? plainId(count)
      called.set(call.id, { id, name: call.name })
      count++
      return { id, type: 'function', function: { name: call.name, arguments: given(call.arguments) } }
    })
    const answered = toolCallId === null ? null : called.get(toolCallId) ?? { id: toolCallId, name: '' }
    return {
      ...turn(role, content, reasoning),
      ...(calls.length > 0 ? { tool_calls: calls } : {}),
      ...(answered === null ? {} : { tool_call_id: answered.id, name: answered.name }),
    }
  })
}

/** Nine letters and digits: some templates take no others. */
const plainId = (index: number): string => `call${String(index).padStart(5, '0')}`

/** Calls are written into the assistant's text, and results too where the template has no turn for them. */
export function writtenTurns(
  messages: readonly ChatMessage[], format: ToolFormat, results: 'tool' | 'user',
): Turn[] {
  const turns: Turn[] = []
  for (const [i, { role, content, reasoning, toolCalls }] of messages.entries()) {
    const last = turns.at(-1)
    if (role !== 'tool') turns.push(turn(role, writeMessage(format, content, toolCalls), reasoning))
    else if (results === 'tool') turns.push(turn('tool', content))
    else if (messages[i - 1]?.role === 'tool' && last !== undefined) last.content += `\n${resultText(content)}`
    else turns.push(turn('user', resultText(content)))
  }
  return turns
}

/** The same conversation in turns that any template knows, the tool list in the system text. */
export function plainTurns(
  messages: readonly ChatMessage[], tools: readonly ToolDefinition[], takesSystem: boolean,
): Turn[] {
  const turns = writtenTurns(messages, hermes, 'user')
  const [first] = turns
  const given = first?.role === 'system' ? [first.content] : []
  const rest = turns.slice(given.length)
  const text = [...given, ...(tools.length > 0 ? [toolsText(tools)] : [])].join('\n\n')
  if (tools.length === 0 && given.length === 0) return rest
  const [user] = rest
  if (takesSystem || user?.role !== 'user') return [turn('system', text), ...rest]
  return [turn('user', `${text}\n\n${user.content}`), ...rest.slice(1)]
}

const resultText = (content: string): string => `<tool_response>\n${content}\n</tool_response>`

/** The Hermes wording, as the models that know the form have seen it. */
const toolsText = (tools: readonly ToolDefinition[]): string => [
  '# Tools\n\nYou may call one or more functions to assist with the user query.\n',
  'You are provided with function signatures within <tools></tools> XML tags:\n<tools>',
  ...tools.map((tool) => jsonText(nativeTool(tool))),
  '</tools>\n',
  'For each function call, return a json object with function name and arguments within '
  + '<tool_call></tool_call> XML tags:\n<tool_call>',
  '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
].join('\n')
