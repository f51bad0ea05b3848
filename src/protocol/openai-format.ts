/**
 * Owns the fields of a chat completion request that say what the answer's text must be: `response_format`, and `grammar`
 * (an extension field: GBNF whose rule `root` the whole text fits). What a schema says is read where the grammar is
 * made, in the engine; here only its place and depth are checked.
 */
import { z } from 'zod'
import type { AnswerFormat, ChatCall } from './chat.ts'
import type { Refuse } from './errors.ts'

const GRAMMAR_CHARS_MAX = 64 * 1024
const NAME = /^[a-zA-Z0-9_-]{1,64}$/
/** Deeper schemas are refused before anything recursive sees them. */
export const SCHEMA_DEPTH_MAX = 64

const jsonSchema = z.looseObject({
  name: z.string().regex(NAME, 'expected 1 to 64 of letters, digits, "_" and "-"'),
  strict: z.boolean().nullish(),
  schema: z.record(z.string(), z.unknown()),
})

export const formatFields = {
  response_format: z.discriminatedUnion('type', [
    z.object({ type: z.literal('text') }),
    z.object({ type: z.literal('json_object') }),
    z.object({ type: z.literal('json_schema'), json_schema: jsonSchema }),
  ]).nullish(),
  grammar: z.string().min(1).max(GRAMMAR_CHARS_MAX).nullish(),
}

type Fields = z.output<z.ZodObject<typeof formatFields>>

/** Null: any text. A forced tool call has no text: then what it would have to be changes nothing. */
export function formatOf(from: Fields, toolChoice: ChatCall['toolChoice'], refuse: Refuse): AnswerFormat | null {
  const format = responseFormat(from.response_format ?? null, refuse)
  const gbnf = from.grammar ?? null
  if (gbnf === null) return format
  if (format !== null) refuse('invalid_request', '"grammar" stands beside "response_format"; one of them can hold', 'grammar')
  if (toolChoice !== 'none') {
    const why = '"grammar" stands beside tools that may be called; with "tool_choice" "none" it can hold'
    refuse('unsupported_parameter', why, 'grammar')
  }
  return { kind: 'grammar', gbnf }
}

function responseFormat(from: Fields['response_format'] | null, refuse: Refuse): AnswerFormat | null {
  if (from === null || from === undefined || from.type === 'text') return null
  if (from.type === 'json_object') return { kind: 'json' }
  const { schema } = from.json_schema
  if (isDeeper(schema, SCHEMA_DEPTH_MAX)) {
    const field = 'response_format.json_schema.schema'
    refuse('unsupported_schema', `"${field}" is nested more than ${SCHEMA_DEPTH_MAX} deep`, field)
  }
  return { kind: 'schema', schema }
}

/** Walks without recursion, so that its own depth is no limit. */
export function isDeeper(root: unknown, depthMax: number): boolean {
  let level: unknown[] = [root]
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > depthMax) return true
    level = level.flatMap((value) => (typeof value === 'object' && value !== null ? Object.values(value) : []))
  }
  return false
}
