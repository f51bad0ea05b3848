/**
 * Owns the grammar of a forced call in the forms that write each argument on its own: text as it is, up to the mark that
 * ends it, all else as JSON. Arguments come in the order of `properties`.
 */
import type { ToolDefinition } from '../../protocol/chat.ts'
import type { ValueWriting } from '../tool-format/format.ts'
import { Rules, literal } from './rules.ts'
import { SchemaError } from './schema-error.ts'
import { SchemaRules } from './schema-rules.ts'
import { isSchema } from './schema-shape.ts'
import type { Schema } from './schema-shape.ts'

/** Null where the parameters of a tool cannot be held as such values. */
export function valueCallGrammar(tools: readonly ToolDefinition[], writing: ValueWriting): string | null {
  const rules = new Rules()
  const text = textUpTo(rules, writing.mark)
  try {
    const calls = tools.map(({ name, parameters }) => oneCall(rules, text, name, parameters, writing))
    rules.define('root', calls.join(' | '), 'tools')
    return rules.text()
  } catch (error) {
    if (error instanceof SchemaError) return null
    throw error
  }
}

const KNOWN = new Set(['type', 'properties', 'required', 'additionalProperties', 'description', 'title', '$defs', 'definitions', '$schema', 'strict'])
/** What a key may hold without being taken for more than a key. */
const KEY = /^[a-zA-Z0-9_.-]{1,128}$/

function oneCall(rules: Rules, text: string, name: string, parameters: Schema, { head, open, close, tail }: ValueWriting): string {
  const members = parameters['properties'] ?? {}
  const required = parameters['required'] ?? []
  if (Object.keys(parameters).some((keyword) => !KNOWN.has(keyword)) || !isSchema(members) || !Array.isArray(required)) {
    throw new SchemaError(name, 'is no plain object')
  }
  if (required.some((key) => typeof key !== 'string' || !Object.hasOwn(members, key))) throw new SchemaError(name, 'requires what it does not describe')
  const schemas = new SchemaRules(rules, parameters)
  const given = Object.entries(members).map(([key, member]) => {
    if (!KEY.test(key)) throw new SchemaError(name, `has a key ${JSON.stringify(key)}`)
    const isText = isSchema(member) && member['type'] === 'string'
    const value = isText ? textValue(rules, text, member, name) : schemas.member(name, key, member)
    const one = `${literal(open(key, isText))} ${value} ${literal(close)}`
    return required.includes(key) ? one : `(${one})?`
  })
  return rules.add([literal(head(name)), ...given, literal(tail)].join(' '), name)
}

/** A value that is text: any, or one of a list. */
function textValue(rules: Rules, text: string, member: Schema, path: string): string {
  const bounds = Object.keys(member).filter((keyword) => !['type', 'description', 'title', 'default', 'examples'].includes(keyword))
  if (bounds.length === 0) return text
  const values = member['enum']
  if (bounds.length > 1 || !Array.isArray(values) || !values.every((value) => typeof value === 'string' && /^[^<>\n]*$/.test(value))) {
    throw new SchemaError(path, `bounds a text by "${bounds[0] ?? ''}"`)
  }
  return rules.add(values.map((value) => literal(String(value))).join(' | '), path)
}

/** The name of a rule for any text without `mark` in it. Its first character stands nowhere else in the mark. */
function textUpTo(rules: Rules, mark: string): string {
  const chars = [...mark]
  const [first = ''] = chars
  const names = chars.map(() => rules.reserve())
  for (const [matched, name] of names.entries()) {
    const next = chars[matched] ?? ''
    const goesOn = names[matched + 1]
    const ways = [`${anyBut(first, next)} ${names[0]}`, '""']
    if (next !== first) ways.push(`${literal(first)} ${names[1]}`)
    if (goesOn !== undefined) ways.push(`${literal(next)} ${goesOn}`)
    rules.define(name, ways.join(' | '), 'text')
  }
  return names[0] ?? ''
}

/** Any character of a text but these. */
function anyBut(...chars: readonly string[]): string {
  const points = [...new Set(chars)].map((char) => char.codePointAt(0) ?? 0).sort((a, b) => a - b)
  const lows = [1, ...points.map((point) => point + 1)]
  const highs = [...points.map((point) => point - 1), 0x10ffff]
  return `[${lows.map((low, i) => low <= (highs[i] ?? 0) ? `${pointText(low)}-${pointText(highs[i] ?? 0)}` : '').join('')}]`
}

const pointText = (point: number): string => `\\U${point.toString(16).toUpperCase().padStart(8, '0')}`
