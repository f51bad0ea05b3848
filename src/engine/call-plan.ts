/**
 * Owns reading a call's body in the engine and what follows from it alone: how the call is sampled, where it stops, and
 * the grammar that holds a forced tool call or the form of the answer. The body was validated at the door; it is checked here again because it
 * came over a socket.
 */
import type { AnswerFormat, ChatCall, ChatMessage, ChatToolCall, Sampling, TokenRules, ToolDefinition } from '../protocol/chat.ts'
import { answerGrammar } from './grammar/answer-grammar.ts'
import { GrammarError, SchemaError } from './grammar/schema-error.ts'
import { toolCallGrammar } from './grammar/tool-call-grammar.ts'
import { valueCallGrammar } from './grammar/value-call-grammar.ts'
import type { CallWriting, ToolFormat } from './tool-format/format.ts'
import { hermes, hermesWriting } from './tool-format/hermes.ts'
import { readTokenRules } from './token-rules.ts'

/** How a call is generated; a function of its body alone. */
export interface CallPlan {
  readonly sampling: Sampling
  readonly tokenRules: TokenRules | null
  /** Null: likelihoods are not asked for. */
  readonly topLogprobs: number | null
  /** Of its request: what is random about it is another in each. */
  readonly choice: number
  readonly stops: readonly string[]
  /** Null: as many as the context has room for. */
  readonly maxTokens: number | null
  /** GBNF whose root is `root`, where a tool call is forced or the answer has a form. */
  readonly grammar: string | null
  /** The client wrote it. */
  readonly grammarIsOwn: boolean
  /** What the model writes is searched for tool calls. */
  readonly callsTools: boolean
  /** How calls are written that are held once the model opens one; null: none are. */
  readonly opened: CallWriting | null
  /** The form of the calls that are searched for. */
  readonly toolFormat: ToolFormat
  readonly tools: readonly ToolDefinition[]
}

export interface Refusal {
  readonly ok: false
  readonly code: 'bad_body' | 'context_too_long' | 'template_failed' | 'unsupported_schema' | 'invalid_grammar'
  readonly why: string
}

class BodyError extends Error {}

const PARAMETERS_DEPTH_MAX = 256

/** The plan alone, for a start whose prompt was measured before. */
export function planOf(body: string, format: ToolFormat): { readonly ok: true; readonly plan: CallPlan } | Refusal {
  try {
    return { ok: true, plan: planCall(parseCall(body), format) }
  } catch (error) {
    return refusalOf(error)
  }
}

/** What a thrown error means to the caller; throws it again where it is no refusal. */
export function refusalOf(error: unknown): Refusal {
  if (error instanceof BodyError) return { ok: false, code: 'bad_body', why: error.message }
  if (error instanceof SchemaError) return { ok: false, code: 'unsupported_schema', why: error.message }
  if (error instanceof GrammarError) return { ok: false, code: 'invalid_grammar', why: error.message }
  throw error
}

/**
 * Throws BodyError, SchemaError or GrammarError. The prompt names the tools whatever `toolChoice` says, so that a last answer with
 * `none` continues the same State; with `none` nothing that the model writes is taken as a call.
 */
export function planCall(call: ChatCall, modelFormat: ToolFormat): CallPlan {
  const { tools, toolChoice, sampling, stop, maxTokens, format, tokenRules = null, topLogprobs = null, choice = 0 } = call
  const settled = { sampling, tokenRules, topLogprobs, choice, stops: stop, maxTokens, tools, toolFormat: modelFormat, opened: null, grammarIsOwn: format?.kind === 'grammar' }
  if (toolChoice === 'none' || (toolChoice === 'auto' && tools.length === 0)) {
    return { ...settled, grammar: format === undefined ? null : answerGrammar(format, []), callsTools: false }
  }
  // After calls that are held only the end may come.
  const mayEnd = tokenRules === null || (tokenRules.minTokens === 0 && !tokenRules.ignoreEos)
  if (toolChoice === 'auto' && format === undefined) {
    return { ...settled, grammar: null, callsTools: true, opened: mayEnd ? modelFormat.writing : null }
  }
  const writing = modelFormat.writing ?? modelFormat.forced ?? null
  // What cannot be held in the model's own form is written in the one that most models have seen.
  const held = writing === null ? { writing: hermesWriting, toolFormat: hermes } : { writing, toolFormat: modelFormat }
  if (toolChoice === 'auto') {
    const several = modelFormat.writing === null ? { writing: hermesWriting, toolFormat: hermes } : held
    const grammar = format === undefined ? null : answerGrammar(format, tools, several.writing)
    return { ...settled, toolFormat: several.toolFormat, grammar, callsTools: true }
  }
  const forced = toolChoice === 'required' ? tools : tools.filter(({ name }) => name === toolChoice.name)
  if (forced.length === 0) throw new BodyError('a tool call is required, but no such tool is offered')
  const values = modelFormat.values === undefined ? null : valueCallGrammar(forced, modelFormat.values)
  if (values !== null) return { ...settled, grammar: values, callsTools: true }
  return { ...settled, toolFormat: held.toolFormat, grammar: toolCallGrammar(forced, held.writing), callsTools: true }
}

// ---------------------------------------------------------------- reading

/** Throws BodyError. */
export function parseCall(body: string): ChatCall {
  const call = asObject(parseJson(body), 'the body')
  return {
    model: asText(call['model'], 'model'),
    messages: asList(call['messages'], 'messages', asMessage),
    tools: asList(call['tools'], 'tools', asTool),
    toolChoice: asToolChoice(call['toolChoice']),
    sampling: asSampling(call['sampling']),
    stop: asList(call['stop'], 'stop', asText),
    maxTokens: call['maxTokens'] === null ? null : asNumber(call['maxTokens'], 'maxTokens'),
    ...(call['format'] === undefined ? {} : { format: asFormat(call['format']) }),
    ...(call['tokenRules'] === undefined ? {} : { tokenRules: asTokenRules(call['tokenRules']) }),
    ...(call['topLogprobs'] === undefined ? {} : { topLogprobs: asNumber(call['topLogprobs'], 'topLogprobs') }),
    ...(call['choice'] === undefined ? {} : { choice: asNumber(call['choice'], 'choice') }),
  }
}

function parseJson(body: string): unknown {
  try {
    return JSON.parse(body)
  } catch (error) {
    throw new BodyError('the body is no JSON', { cause: error })
  }
}

function asMessage(value: unknown, path: string): ChatMessage {
  const { role, content, reasoning, toolCalls, toolCallId } = asObject(value, path)
  if (role !== 'system' && role !== 'user' && role !== 'assistant' && role !== 'tool') {
    throw new BodyError(`${path}.role is no role`)
  }
  return {
    role,
    content: asText(content, `${path}.content`),
    ...(reasoning === undefined ? {} : { reasoning: asText(reasoning, `${path}.reasoning`) }),
    toolCalls: asList(toolCalls, `${path}.toolCalls`, asToolCall),
    toolCallId: toolCallId === null ? null : asText(toolCallId, `${path}.toolCallId`),
  }
}

function asToolCall(value: unknown, path: string): ChatToolCall {
  const call = asObject(value, path)
  return {
    id: asText(call['id'], `${path}.id`),
    name: asText(call['name'], `${path}.name`),
    arguments: asText(call['arguments'], `${path}.arguments`),
  }
}

function asTool(value: unknown, path: string): ToolDefinition {
  const tool = asObject(value, path)
  return {
    name: asText(tool['name'], `${path}.name`),
    description: asText(tool['description'], `${path}.description`),
    parameters: asShallow(asObject(tool['parameters'], `${path}.parameters`), `${path}.parameters`),
  }
}

/** Everything that reads parameters later may go down into them without end. */
function asShallow<T>(value: T, path: string, depth = 0): T {
  if (depth > PARAMETERS_DEPTH_MAX) throw new BodyError(`${path} is nested deeper than ${PARAMETERS_DEPTH_MAX}`)
  if (typeof value === 'object' && value !== null) {
    for (const member of Object.values(value)) asShallow(member, path, depth + 1)
  }
  return value
}

function asToolChoice(value: unknown): ChatCall['toolChoice'] {
  if (value === 'none' || value === 'auto' || value === 'required') return value
  return { name: asText(asObject(value, 'toolChoice')['name'], 'toolChoice.name') }
}

function asFormat(value: unknown): AnswerFormat {
  const { kind, schema, gbnf } = asObject(value, 'format')
  switch (kind) {
    case 'json': return { kind }
    case 'schema': return { kind, schema: asShallow(asObject(schema, 'format.schema'), 'format.schema') }
    case 'grammar': return { kind, gbnf: asText(gbnf, 'format.gbnf') }
    default: throw new BodyError('format.kind is no kind')
  }
}

function asTokenRules(value: unknown): TokenRules {
  const rules = readTokenRules(value)
  if (rules === null) throw new BodyError('tokenRules are none')
  return rules
}

function asSampling(value: unknown): Sampling {
  const sampling = asObject(value, 'sampling')
  return {
    temperature: asNumber(sampling['temperature'], 'sampling.temperature'),
    topP: asNumber(sampling['topP'], 'sampling.topP'),
    topK: asNumber(sampling['topK'], 'sampling.topK'),
    minP: asNumber(sampling['minP'], 'sampling.minP'),
  }
}

function asList<T>(value: unknown, path: string, item: (value: unknown, path: string) => T): T[] {
  if (!Array.isArray(value)) throw new BodyError(`${path} is no list`)
  return value.map((member: unknown, i) => item(member, `${path}[${i}]`))
}

function asObject(value: unknown, path: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new BodyError(`${path} is no object`)
  return value as Record<string, unknown>
}

function asText(value: unknown, path: string): string {
  if (typeof value !== 'string') throw new BodyError(`${path} is no text`)
  return value
}

function asNumber(value: unknown, path: string): number {
  if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value
  throw new BodyError(`${path} is no number of 0 or more`)
}
