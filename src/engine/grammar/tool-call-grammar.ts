/**
 * Owns the grammar of a forced tool call: one call of one of the tools, in the form of `tools.ts`, and nothing else.
 * Its space is exactly that of the rendering, so a committed call renders as it was written.
 */
import type { ToolDefinition } from '../../protocol/chat.ts'
import { CALL_TAIL, callHead } from '../tools.ts'
import { Rules, literal } from './rules.ts'
import { SchemaRules } from './schema-rules.ts'

/** GBNF with the root `root`. Throws SchemaError where a tool's parameters cannot be held. */
export function toolCallGrammar(tools: readonly ToolDefinition[]): string {
  const rules = new Rules()
  rules.define('root', oneToolCall(rules, tools), 'tools')
  return rules.text()
}

/** An expression for one call of any of the tools. */
export function oneToolCall(rules: Rules, tools: readonly ToolDefinition[]): string {
  const calls = tools.map(({ name, parameters }) => {
    const given = new SchemaRules(rules, parameters).arguments(name)
    return rules.add(`${literal(callHead(name))} ${given} ${literal(CALL_TAIL)}`, name)
  })
  return calls.join(' | ')
}
