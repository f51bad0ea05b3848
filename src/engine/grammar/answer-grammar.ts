/**
 * Owns the grammar of an answer whose form the client asked for: JSON, JSON under a schema, or a grammar of its own.
 * Where tools may be called, the answer is of that form or it is calls.
 */
import type { AnswerFormat, ToolDefinition } from '../../protocol/chat.ts'
import type { CallWriting } from '../tool-format/format.ts'
import { hermesWriting } from '../tool-format/hermes.ts'
import { Rules } from './rules.ts'
import { GrammarError } from './schema-error.ts'
import { SchemaRules } from './schema-rules.ts'
import { toolCalls } from './tool-call-grammar.ts'

/** Of a grammar that a client wrote itself. */
const GBNF_CHARS_MAX = 64 * 1024
/** What a refusal calls the schema of the answer. */
const SCHEMA_FIELD = 'response_format.json_schema.schema'

/**
 * GBNF with the root `root`. Throws SchemaError where a schema cannot be held, GrammarError where the client's own
 * grammar is too long; what else is wrong with that is said when it is read (`gbnf.ts`).
 */
export function answerGrammar(
  format: AnswerFormat, tools: readonly ToolDefinition[], writing: CallWriting = hermesWriting,
): string {
  if (format.kind === 'grammar') {
    if (format.gbnf.length > GBNF_CHARS_MAX) throw new GrammarError(`it is longer than ${GBNF_CHARS_MAX} characters`)
    return format.gbnf
  }
  const rules = new Rules()
  const answer = format.kind === 'json'
    ? rules.basic('object')
    : new SchemaRules(rules, format.schema).value(SCHEMA_FIELD)
  if (tools.length === 0) {
    rules.define('root', answer, SCHEMA_FIELD)
    return rules.text()
  }
  rules.define('root', `${answer} | ${toolCalls(rules, tools, writing)}`, SCHEMA_FIELD)
  return rules.text()
}
