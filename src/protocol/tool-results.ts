/**
 * Owns how tool messages answer tool calls inside one conversation, whatever endpoint it came by. What the calls mean
 * to a program (who made them, whether they were answered before) is the core's to decide from the ids returned here.
 */
import type { ChatMessage } from './chat.ts'

interface ToolLinks {
  /** Tool call ids answered after the last assistant message. */
  readonly results: readonly string[]
  readonly fault: Fault | null
}

interface Fault {
  readonly code: 'unknown_tool_call' | 'missing_tool_results' | 'invalid_request'
  readonly why: string
  readonly param: string
}

export function linkToolResults(messages: readonly ChatMessage[]): ToolLinks {
  let open: readonly string[] = []
  let results: string[] = []
  for (const [index, message] of messages.entries()) {
    if (message.role === 'assistant') {
      open = message.toolCalls.map((call) => call.id)
      results = []
      const twice = open.find((id, at) => open.indexOf(id) !== at)
      if (twice !== undefined) {
        return faulty('invalid_request', `two tool calls of one message have the id "${twice}"`, `messages[${index}].tool_calls`)
      }
    }
    const id = message.toolCallId
    if (id === null) continue
    const param = `messages[${index}].tool_call_id`
    if (!open.includes(id)) {
      const made = open.length === 0 ? 'made no tool calls' : `made ${listOf(open)}`
      return faulty('unknown_tool_call', `"${param}" is "${id}", and the assistant message before it ${made}`, param)
    }
    if (results.includes(id)) return faulty('invalid_request', `"${param}" is "${id}", which is answered already`, param)
    results.push(id)
  }
  const missing = open.filter((id) => !results.includes(id))
  if (missing.length > 0) return faulty('missing_tool_results', `no result for ${listOf(missing)}`, 'messages')
  return { results, fault: null }
}

const listOf = (ids: readonly string[]): string => ids.map((id) => `"${id}"`).join(', ')

function faulty(code: Fault['code'], why: string, param: string): ToolLinks {
  return { results: [], fault: { code, why, param } }
}
