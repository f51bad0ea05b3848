/**
 * Owns the wire of an OpenAI-compatible upstream: the request a chat call becomes, and its stream as it comes back.
 * What the upstream says is checked field by field; what has no meaning for us is passed over. No sockets here.
 */
import { createParser, type EventSourceParser } from 'eventsource-parser'
import type { FinishReason } from '../core/state.ts'
import type { StreamPart, TokenLogprob } from '../driver/ports.ts'
import type { AnswerFormat, ChatCall, ChatMessage, TokenRules } from '../protocol/chat.ts'

/** One event of an upstream; a longer one ends the stream as broken. */
const EVENT_CHARS_MAX = 8 * 1024 * 1024

export function requestBody(chat: ChatCall, seed: number, maxTokens: number): string {
  const { model, messages, tools, toolChoice, sampling, stop, format, tokenRules, topLogprobs } = chat
  return JSON.stringify({
    model,
    messages: messages.map(messageOut),
    ...(tools.length > 0 && {
      tools: tools.map((tool) => ({ type: 'function', function: tool })),
      tool_choice: typeof toolChoice === 'string' ? toolChoice
        : { type: 'function', function: { name: toolChoice.name } },
    }),
    temperature: sampling.temperature,
    ...(sampling.topP !== 1 && { top_p: sampling.topP }),
    ...(sampling.topK !== 0 && { top_k: sampling.topK }),
    ...(sampling.minP !== 0 && { min_p: sampling.minP }),
    ...(stop.length > 0 && { stop }),
    ...(format !== undefined && formatOut(format)),
    ...(tokenRules !== undefined && tokenRulesOut(tokenRules)),
    ...(topLogprobs !== undefined && { logprobs: true, ...(topLogprobs > 0 && { top_logprobs: topLogprobs }) }),
    max_tokens: maxTokens,
    seed,
    stream: true,
    stream_options: { include_usage: true },
  })
}

/** An upstream knows one seed and no choice: each choice has a seed of its own, and the first the call's. */
export const seedOf = (seed: number, choice: number): number => (seed + Math.imul(choice, SEED_STEP)) >>> 0

/** Odd, so that no two choices share a seed; large, so that they have no neighbour's either. */
const SEED_STEP = 0x9e3779b1

/** Only what is asked for: not every upstream knows every one. */
function tokenRulesOut(rules: TokenRules): object {
  return {
    ...(rules.presencePenalty !== 0 && { presence_penalty: rules.presencePenalty }),
    ...(rules.frequencyPenalty !== 0 && { frequency_penalty: rules.frequencyPenalty }),
    ...(rules.repetitionPenalty !== 1 && { repetition_penalty: rules.repetitionPenalty }),
    ...(rules.bias.length > 0 && { logit_bias: Object.fromEntries(rules.bias) }),
    ...(rules.minTokens > 0 && { min_tokens: rules.minTokens }),
    ...(rules.ignoreEos && { ignore_eos: true }),
    ...(rules.stopTokens.length > 0 && { stop_token_ids: rules.stopTokens }),
  }
}

/** A grammar goes by the name that llama.cpp's server has for it. */
function formatOut(format: AnswerFormat): object {
  switch (format.kind) {
    case 'json': return { response_format: { type: 'json_object' } }
    case 'schema': return {
      response_format: { type: 'json_schema', json_schema: { name: 'answer', strict: true, schema: format.schema } },
    }
    case 'grammar': return { grammar: format.gbnf }
  }
}

function messageOut({ role, content, reasoning, toolCalls, toolCallId }: ChatMessage): object {
  if (role === 'tool') return { role, content, tool_call_id: toolCallId }
  const thought = reasoning === undefined ? {} : { reasoning_content: reasoning }
  if (role !== 'assistant' || toolCalls.length === 0) return { role, ...thought, content }
  return {
    role,
    ...thought,
    content: content === '' ? null : content,
    tool_calls: toolCalls.map(({ id, name, arguments: text }) => (
      { id, type: 'function', function: { name, arguments: text } }
    )),
  }
}

interface Usage { readonly promptTokens: number; readonly outputTokens: number; readonly cachedTokens: number }

/** Reads one answer's stream. Throws UpstreamError where the upstream says so, or cannot be understood. */
export class AnswerReader {
  readonly #parser: EventSourceParser
  readonly #text = new TextDecoder()
  readonly #onParts: (parts: readonly StreamPart[]) => void
  readonly #toolNames: string[] = []
  #finish: FinishReason | null = null
  #usage: Usage | null = null
  #ended = false

  constructor(onParts: (parts: readonly StreamPart[]) => void) {
    this.#onParts = onParts
    this.#parser = createParser({
      maxBufferSize: EVENT_CHARS_MAX,
      onEvent: ({ data }) => this.#event(data),
      onError: (error) => {
        if (error.type === 'max-buffer-size-exceeded') {
          throw new UpstreamError('an event of the upstream is too long', false)
        }
      },
    })
  }

  feed(bytes: Uint8Array): void {
    this.#parser.feed(this.#text.decode(bytes, { stream: true }))
  }

  /** The upstream said that nothing follows. */
  get ended(): boolean { return this.#ended }
  /** Null until it has said why it ended. */
  get finish(): FinishReason | null {
    return this.#finish !== null && this.#toolNames.length > 0 ? 'tool_calls' : this.#finish
  }

  get usage(): Usage | null { return this.#usage }
  get toolCalls(): readonly { readonly name: string }[] { return this.#toolNames.map((name) => ({ name })) }

  #event(data: string): void {
    if (this.#ended) return
    if (data === '[DONE]') {
      this.#ended = true
      return
    }
    const chunk = fields(parse(data))
    if (chunk['error'] !== undefined && chunk['error'] !== null) {
      throw new UpstreamError(messageOf(chunk) ?? 'the upstream failed', true)
    }
    this.#readUsage(fields(chunk['usage']))
    const choice = fields(Array.isArray(chunk['choices']) ? chunk['choices'][0] : null)
    const parts = this.#parts(fields(choice['delta']), logprobsIn(fields(choice['logprobs'])['content']))
    if (parts.length > 0) this.#onParts(parts)
    const finish = choice['finish_reason']
    if (typeof finish === 'string') this.#finish = finishOf(finish)
  }

  #parts(delta: Record<string, unknown>, logprobs: readonly TokenLogprob[]): StreamPart[] {
    const parts: StreamPart[] = []
    const reasoning = delta['reasoning_content']
    if (typeof reasoning === 'string' && reasoning !== '') parts.push({ kind: 'reasoning', text: reasoning })
    const text = typeof delta['content'] === 'string' ? delta['content'] : ''
    if (text !== '' || logprobs.length > 0) {
      parts.push({ kind: 'text', text, ...(logprobs.length > 0 && { logprobs }) })
    }
    for (const [at, entry] of (Array.isArray(delta['tool_calls']) ? delta['tool_calls'] : []).entries()) {
      const call = fields(entry)
      const index = Number.isSafeInteger(call['index']) ? Number(call['index']) : at
      const { name, arguments: given } = fields(call['function'])
      const begins = index === this.#toolNames.length
      if (begins && (typeof name !== 'string' || name === '')) {
        throw new UpstreamError('a tool call of the upstream has no name', false)
      }
      if (index > this.#toolNames.length || index < 0) {
        const before = this.#toolNames.length
        throw new UpstreamError(`a tool call of the upstream has index ${index} and ${before} came before`, false)
      }
      if (begins) this.#toolNames.push(String(name))
      const text = typeof given === 'string' ? given : ''
      if (begins || text !== '') {
        parts.push({ kind: 'toolCall', index, name: begins ? String(name) : null, arguments: text })
      }
    }
    return parts
  }

  #readUsage(usage: Record<string, unknown>): void {
    const count = (value: unknown): number | null =>
      (Number.isSafeInteger(value) && Number(value) >= 0 ? Number(value) : null)
    const promptTokens = count(usage['prompt_tokens'])
    const outputTokens = count(usage['completion_tokens'])
    if (promptTokens === null || outputTokens === null) return
    const cachedTokens = count(fields(usage['prompt_tokens_details'])['cached_tokens']) ?? 0
    this.#usage = { promptTokens, outputTokens, cachedTokens }
  }
}

function logprobsIn(value: unknown): TokenLogprob[] {
  const one = (entry: unknown) => {
    const { token, bytes, logprob } = fields(entry)
    const own = Array.isArray(bytes) && bytes.every((byte) => Number.isInteger(byte) && byte >= 0 && byte < 256)
    return typeof token === 'string' && typeof logprob === 'number'
      ? [{ bytes: own ? bytes as number[] : [...Buffer.from(token, 'utf8')], logprob }] : []
  }
  return (Array.isArray(value) ? value : []).flatMap((entry: unknown) => {
    const top = fields(entry)['top_logprobs']
    return one(entry).map((each) => ({ ...each, top: (Array.isArray(top) ? top : []).flatMap(one) }))
  })
}

function finishOf(reason: string): FinishReason {
  switch (reason) {
    case 'stop':
    case 'length':
    case 'tool_calls':
      return reason
    default:
      throw new UpstreamError(`the upstream ended with ${JSON.stringify(reason)}`, false)
  }
}

export class UpstreamError extends Error {
  readonly retryable: boolean
  /** False where nothing answered at all. */
  readonly reached: boolean
  /** When the upstream wants to be asked again; null where it did not say. */
  readonly retryAfterMs: number | null

  constructor(message: string, retryable: boolean, more: { reached?: boolean; retryAfterMs?: number | null } = {}) {
    super(message)
    this.retryable = retryable
    this.reached = more.reached ?? true
    this.retryAfterMs = more.retryAfterMs ?? null
  }
}

/** What an error body says, in the shapes in use; null where it says nothing. */
export function messageOf(body: unknown): string | null {
  const { error, message, detail } = fields(body)
  const said = [fields(error)['message'], error, message, detail].find((one) => typeof one === 'string' && one !== '')
  return typeof said === 'string' ? said : null
}

/** The object it is, or an empty one: what comes from outside has the fields it has. */
function fields(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value as Record<string, unknown> : {}
}

function parse(data: string): unknown {
  try {
    return JSON.parse(data)
  } catch {
    throw new UpstreamError(`the upstream sent what is no JSON: ${data.slice(0, 80)}`, true)
  }
}
