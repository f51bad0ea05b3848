/**
 * Owns the grammar of a forced tool call: one call of one of the tools, in the form of the model's
 * template, and nothing else. Its space is exactly that of the rendering, so a committed call renders as it was written.
 */
import type { ToolDefinition } from '../../protocol/chat.ts'
import type { CallWriting } from '../tool-format/format.ts'
import { hermesWriting } from '../tool-format/hermes.ts'
import { Rules, literal } from './rules.ts'
import { SchemaError } from './schema-error.ts'
import { SchemaRules } from './schema-rules.ts'

/** GBNF with the root `root`. Throws SchemaError where a tool's parameters cannot be held. */
export function toolCallGrammar(tools: readonly ToolDefinition[], writing: CallWriting = hermesWriting): string {
  const rules = new Rules()
  const call = oneToolCall(rules, tools, writing)
  rules.define('root', [quoted(writing.begin), call, quoted(writing.end)].join(' ').trim(), 'tools')
  return rules.text()
}

/**
 * The grammar of calls to the end of an answer, space after them included. Null where a tool's parameters cannot be
 * held: nothing forces these calls, so nothing is refused.
 */
export function openedCallsGrammar(tools: readonly ToolDefinition[], writing: CallWriting): string | null {
  const rules = new Rules()
  try {
    rules.define('root', `${toolCalls(rules, tools, writing)} [ \\n]{0,2}`, 'tools')
    return rules.text()
  } catch (error) {
    if (error instanceof SchemaError) return null
    throw error
  }
}

/** An expression for calls of any of the tools, one after the other. */
export function toolCalls(rules: Rules, tools: readonly ToolDefinition[], writing: CallWriting): string {
  const call = oneToolCall(rules, tools, writing)
  const { begin, between, end } = writing
  return [quoted(begin), call, `(${[quoted(between), call].join(' ').trim()})*`, quoted(end)].join(' ').trim()
}

/** The name of a rule for one call. */
function oneToolCall(rules: Rules, tools: readonly ToolDefinition[], { head, tail }: CallWriting): string {
  const calls = tools.map(({ name, parameters }) => {
    const given = new SchemaRules(rules, parameters).arguments(name)
    return rules.add([literal(head(name)), given, quoted(tail)].join(' ').trim(), name)
  })
  return rules.add(calls.join(' | '), 'tools')
}

const quoted = (text: string): string => text === '' ? '' : literal(text)
