/**
 * Owns the reading of `POST /v1/chat/completions`: from whatever JSON came in to a ChatCall, or to the problem that
 * says which field is at fault. Unknown fields are tolerated; a known field that would change the result and is not
 * supported is refused by name (`openai-unsupported.ts`). Says nothing about identity, class or deadline: a body cannot
 * set them (invariant 8). Leaves the answer to `openai-reply.ts`.
 */
import { createHash } from 'node:crypto'
import { z } from 'zod'
import type { ChatCall, ChatMessage, ChatToolCall, ToolDefinition } from './chat.ts'
import { problem, type Problem, type Refuse } from './errors.ts'
import { formatFields, formatOf, isDeeper, SCHEMA_DEPTH_MAX } from './openai-format.ts'
import { tokenFields, tokenRulesOf, topLogprobsOf } from './openai-tokens.ts'
import { unsupportedFields } from './openai-unsupported.ts'
import { bodyProblem } from './schema-fault.ts'
import { linkToolResults } from './tool-results.ts'

const STOPS_MAX = 16
const STOP_CHARS_MAX = 1024
const NAME_CHARS_MAX = 256
const CHOICES_MAX = 8

export interface ChatRequest {
  readonly call: ChatCall
  readonly stream: boolean
  readonly includeUsage: boolean
  /** How many answers; each is a call of its own. */
  readonly choices: number
  /** 0 to 2^32 - 1. */
  readonly seed: number | null
  readonly toolResults: readonly string[]
}

type ParsedChat =
  | { readonly ok: true; readonly request: ChatRequest }
  | { readonly ok: false; readonly problem: Problem }

// ---------------------------------------------------------------- the shape

const part = z.looseObject({ type: z.string(), text: z.string().nullish(), refusal: z.string().nullish() })
const content = z.union([z.string(), z.array(part)])

const toolCall = z.looseObject({
  id: z.string().min(1).max(NAME_CHARS_MAX),
  type: z.string().nullish(),
  function: z.looseObject({ name: z.string().min(1).max(NAME_CHARS_MAX), arguments: z.string() }).nullish(),
})

const message = z.discriminatedUnion('role', [
  z.looseObject({ role: z.literal(['system', 'developer', 'user']), content }),
  z.looseObject({
    role: z.literal('assistant'), content: content.nullish(), refusal: z.string().nullish(),
    reasoning_content: z.string().nullish(),
    tool_calls: z.array(toolCall).nullish(),
  }),
  z.looseObject({ role: z.literal('tool'), content, tool_call_id: z.string().min(1).max(NAME_CHARS_MAX) }),
])

const TOOL_NAME = /^[a-zA-Z0-9_.:-]{1,128}$/
const toolName = z.string().regex(TOOL_NAME, 'expected 1 to 128 of letters, digits, "_", "-", "." and ":"')

const tool = z.looseObject({
  type: z.string(),
  function: z.looseObject({
    name: toolName,
    description: z.string().nullish(),
    parameters: z.record(z.string(), z.unknown()).nullish(),
  }).nullish(),
})

const namedFunction = z.looseObject({ type: z.string(), function: z.looseObject({ name: z.string() }).nullish() })
const toolChoice = z.union([z.string(), namedFunction])

const stopText = z.string().min(1).max(STOP_CHARS_MAX)

const body = z.looseObject({
  model: z.string().min(1).max(NAME_CHARS_MAX),
  messages: z.array(message).min(1),
  tools: z.array(tool).nullish(),
  tool_choice: toolChoice.nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  top_k: z.int().min(-1).nullish(),
  min_p: z.number().min(0).max(1).nullish(),
  seed: z.number().refine(Number.isInteger, 'expected an integer').nullish(),
  stop: z.union([stopText, z.array(stopText).max(STOPS_MAX)]).nullish(),
  max_tokens: z.int().min(1).nullish(),
  max_completion_tokens: z.int().min(1).nullish(),
  n: z.int().min(1).max(CHOICES_MAX).nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  ...formatFields,
  ...tokenFields,
})

type Body = z.output<typeof body>
type Message = Body['messages'][number]

// ---------------------------------------------------------------- from JSON to a call

export function parseChat(json: unknown): ParsedChat {
  if (typeof json === 'object' && json !== null) {
    const [field] = unsupportedFields(json as Record<string, unknown>)
    if (field !== undefined) return failed(problem('unsupported_parameter', `"${field}" is set`, field))
  }
  const parsed = body.safeParse(json)
  if (!parsed.success) return failed(bodyProblem(parsed.error))
  const problems: Problem[] = []
  const request = toRequest(parsed.data, (code, why, param) => problems.push(problem(code, why, param)))
  const [first] = problems
  return first === undefined ? { ok: true, request } : failed(first)
}

const failed = (first: Problem): ParsedChat => ({ ok: false, problem: first })

function toRequest(from: Body, refuse: Refuse): ChatRequest {
  const messages = from.messages.map((one, index) => toMessage(one, `messages[${index}]`, refuse))
  const tools = (from.tools ?? []).map((one, index) => toTool(one, `tools[${index}]`, refuse))
  const twice = tools.find((one, index) => tools.findIndex((other) => other.name === one.name) !== index)
  if (twice !== undefined) refuse('invalid_request', `two tools are named "${twice.name}"`, 'tools')
  const toolChoice = toToolChoice(from.tool_choice ?? null, tools, refuse)
  // A forced call is one call; a free answer may hold several, and nothing holds it to one.
  if (from.parallel_tool_calls === false && toolChoice === 'auto') {
    const why = '"parallel_tool_calls" is false and "tool_choice" is not "required" or a named function'
    refuse('unsupported_parameter', why, 'parallel_tool_calls')
  }
  const format = formatOf(from, toolChoice, refuse)
  const maxTokens = from.max_completion_tokens ?? from.max_tokens ?? null
  const tokenRules = tokenRulesOf(from, { toolChoice, maxTokens, ...(format === null ? {} : { format }) }, refuse)
  const topLogprobs = topLogprobsOf(from, refuse)
  const links = linkToolResults(messages)
  if (links.fault !== null) refuse(links.fault.code, links.fault.why, links.fault.param)
  return {
    call: {
      model: from.model,
      messages,
      tools,
      toolChoice,
      sampling: {
        temperature: from.temperature ?? 1,
        topP: from.top_p ?? 1,
        topK: Math.max(0, from.top_k ?? 0),
        minP: from.min_p ?? 0,
      },
      stop: typeof from.stop === 'string' ? [from.stop] : from.stop ?? [],
      maxTokens,
      ...(format === null ? {} : { format }),
      ...(tokenRules === null ? {} : { tokenRules }),
      ...(topLogprobs === null ? {} : { topLogprobs }),
    },
    stream: from.stream ?? false,
    includeUsage: from.stream_options?.include_usage ?? false,
    choices: from.n ?? 1,
    seed: from.seed === null || from.seed === undefined ? null : seedOf(from.seed),
    toolResults: links.results,
  }
}

/** An integer that fits 32 bits is itself; any other is hashed into them. */
function seedOf(seed: number): number {
  if (seed >= 0 && seed < 2 ** 32) return seed
  return createHash('sha256').update(BigInt(seed).toString()).digest().readUInt32LE(0)
}

function toMessage(from: Message, at: string, refuse: Refuse): ChatMessage {
  switch (from.role) {
    case 'assistant': {
      refusePresent(from, ['audio', 'function_call'], at, refuse)
      const text = textOf(from.content ?? '', at, refuse)
      const calls = from.tool_calls ?? []
      const toolCalls = calls.map((one, index) => toToolCall(one, `${at}.tool_calls[${index}]`, refuse))
      const reasoning = from.reasoning_content ?? ''
      return {
        role: 'assistant', content: text === '' ? from.refusal ?? '' : text, toolCalls, toolCallId: null,
        ...(reasoning === '' ? {} : { reasoning }),
      }
    }
    case 'tool':
      return { role: 'tool', content: textOf(from.content, at, refuse), toolCalls: [], toolCallId: from.tool_call_id }
    default: {
      const role = from.role === 'user' ? 'user' : 'system'
      return { role, content: textOf(from.content, at, refuse), toolCalls: [], toolCallId: null }
    }
  }
}

function refusePresent(from: object, names: readonly string[], at: string, refuse: Refuse): void {
  const values = new Map<string, unknown>(Object.entries(from))
  for (const name of names) {
    const field = `${at}.${name}`
    if ((values.get(name) ?? null) !== null) refuse('unsupported_parameter', `"${field}" is set`, field)
  }
}

/** Parts are joined by a line break, as the engines that take parts do. */
function textOf(from: z.output<typeof content>, at: string, refuse: Refuse): string {
  if (typeof from === 'string') return from
  const texts = from.map((one, index) => {
    const name = `${at}.content[${index}]`
    if (one.type !== 'text' && one.type !== 'refusal') {
      refuse('unsupported_parameter', `"${name}" is of type "${one.type}", and only text is read`, `${name}.type`)
      return ''
    }
    const text = one.type === 'text' ? one.text : one.refusal
    const field = `${name}.${one.type}`
    if (typeof text !== 'string') refuse('invalid_request', `"${field}" is missing (string)`, field)
    return text ?? ''
  })
  return texts.join('\n')
}

function toToolCall(from: z.output<typeof toolCall>, at: string, refuse: Refuse): ChatToolCall {
  const called = requireFunction(from, at, refuse)
  return { id: from.id, name: called?.name ?? '', arguments: called?.arguments ?? '' }
}

function toTool(from: z.output<typeof tool>, at: string, refuse: Refuse): ToolDefinition {
  const defined = requireFunction(from, at, refuse)
  const parameters = defined?.parameters ?? { type: 'object', properties: {} }
  if (isDeeper(parameters, SCHEMA_DEPTH_MAX)) {
    const field = `${at}.function.parameters`
    refuse('unsupported_schema', `"${field}" is nested more than ${SCHEMA_DEPTH_MAX} deep`, field)
  }
  return { name: defined?.name ?? '', description: defined?.description ?? '', parameters }
}

interface OfFunction<F> { readonly type?: string | null | undefined; readonly function?: F | null | undefined }

function requireFunction<F>(from: OfFunction<F>, at: string, refuse: Refuse): F | null {
  if ((from.type ?? 'function') !== 'function') {
    refuse('unsupported_parameter', `"${at}" is of type "${from.type}", and only functions are supported`, `${at}.type`)
    return null
  }
  if (from.function === null || from.function === undefined) {
    refuse('invalid_request', `"${at}.function" is missing (object)`, `${at}.function`)
    return null
  }
  return from.function
}

function toToolChoice(
  from: z.output<typeof toolChoice> | null, tools: readonly ToolDefinition[], refuse: Refuse,
): ChatCall['toolChoice'] {
  if (from === null) return tools.length === 0 ? 'none' : 'auto'
  if (typeof from === 'string') {
    if (from === 'none') return 'none'
    if (from === 'auto') return tools.length === 0 ? 'none' : 'auto'
    if (from !== 'required') {
      const forms = 'it can be none, auto, required or a named function'
      refuse('invalid_request', `"tool_choice" is "${from}"; ${forms}`, 'tool_choice')
    } else if (tools.length === 0) {
      refuse('invalid_request', '"tool_choice" is "required" and there are no tools', 'tool_choice')
    }
    return 'required'
  }
  const named = requireFunction(from, 'tool_choice', refuse)
  if (named !== null && !tools.some((one) => one.name === named.name)) {
    refuse('invalid_request', `"tool_choice" names "${named.name}", which is not among the tools`, 'tool_choice')
  }
  return { name: named?.name ?? '' }
}
