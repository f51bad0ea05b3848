/**
 * Owns the client's side of one streamed chat completion: plain `fetch` and server-sent events, nothing else, so that
 * what the demo measures is what any OpenAI client sees.
 */
import type { ToolName, ToolSchema } from './tools.ts'

interface WireToolCall {
  readonly id: string
  readonly type: 'function'
  readonly function: { readonly name: string; readonly arguments: string }
}

export type WireMessage =
  | { readonly role: 'system' | 'user'; readonly content: string }
  | { readonly role: 'assistant'; readonly content: string | null; readonly tool_calls?: readonly WireToolCall[] }
  | { readonly role: 'tool'; readonly tool_call_id: string; readonly content: string }

interface ChatRequest {
  readonly model: string
  readonly messages: readonly WireMessage[]
  readonly tools: readonly ToolSchema[]
  readonly toolChoice: ToolName | 'none'
  readonly maxTokens: number
  readonly temperature: number
  readonly seed: number
}

export interface ChatReply {
  readonly text: string
  readonly toolCalls: readonly WireToolCall[]
  readonly finish: string | null
  readonly promptTokens: number
  readonly cachedTokens: number
  readonly outputTokens: number
  /** From sending to the first piece of text or of a tool call; null where there was none. */
  readonly firstTokenMs: number | null
  readonly totalMs: number
  /** The server's name for the call, where it gives one. */
  readonly call: string | null
}

export class ChatError extends Error {
  /** As the server's error has it; null where it has none. */
  readonly code: string | null

  constructor(message: string, code: string | null = null) {
    super(message)
    this.code = code
  }
}

/** The code of an error's body; null where it is no such body. */
export function codeIn(text: string): string | null {
  try {
    return (JSON.parse(text) as { readonly error?: { readonly code?: string } | null } | null)?.error?.code ?? null
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}

export interface Endpoint {
  /** Up to and without `/v1`. */
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
}

export async function chat(endpoint: Endpoint, request: ChatRequest, signal?: AbortSignal): Promise<ChatReply> {
  const sentAt = performance.now()
  const response = await fetch(`${endpoint.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...endpoint.headers },
    body: JSON.stringify(bodyOf(request)),
    ...(signal === undefined ? {} : { signal }),
  })
  if (!response.ok || response.body === null) {
    const text = await response.text()
    throw new ChatError(`HTTP ${response.status}: ${text}`, codeIn(text))
  }
  const reply = new Reply()
  for await (const data of eventsOf(response.body)) {
    if (data === '[DONE]') break
    reply.add(JSON.parse(data), performance.now() - sentAt)
  }
  return reply.whole(performance.now() - sentAt)
}

const bodyOf = (request: ChatRequest): object => ({
  model: request.model,
  messages: request.messages,
  stream: true,
  stream_options: { include_usage: true },
  temperature: request.temperature,
  seed: request.seed,
  max_completion_tokens: request.maxTokens,
  ...(request.tools.length === 0 ? {} : {
    tools: request.tools,
    tool_choice: request.toolChoice === 'none' ? 'none' : { type: 'function', function: { name: request.toolChoice } },
  }),
})

/** The data of each event; comments, with which a server keeps the connection awake, are passed over. */
async function* eventsOf(body: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let held = ''
  for await (const bytes of body) {
    held += decoder.decode(bytes, { stream: true })
    for (let end = held.indexOf('\n\n'); end >= 0; end = held.indexOf('\n\n')) {
      const lines = held.slice(0, end).split('\n').filter((line) => line.startsWith('data:'))
      held = held.slice(end + 2)
      if (lines.length > 0) yield lines.map((line) => line.slice('data:'.length).trimStart()).join('\n')
    }
  }
}

interface Chunk {
  readonly error?: { readonly message?: string; readonly code?: string }
  readonly choices?: readonly {
    readonly delta?: {
      readonly content?: string | null
      readonly tool_calls?: readonly { readonly index: number; readonly id?: string; readonly function?: { readonly name?: string; readonly arguments?: string } }[]
    }
    readonly finish_reason?: string | null
  }[]
  readonly usage?: { readonly prompt_tokens?: number; readonly completion_tokens?: number; readonly prompt_tokens_details?: { readonly cached_tokens?: number } } | null
  readonly entracte?: { readonly call?: string }
}

class Reply {
  #text = ''
  #finish: string | null = null
  #firstTokenMs: number | null = null
  #call: string | null = null
  #usage: NonNullable<Chunk['usage']> | null = null
  readonly #tools = new Map<number, { id: string; name: string; arguments: string }>()

  add(chunk: Chunk, afterMs: number): void {
    if (chunk.error !== undefined) throw new ChatError(chunk.error.message ?? 'the stream ended with an error', chunk.error.code ?? null)
    this.#call = chunk.entracte?.call ?? this.#call
    this.#usage = chunk.usage ?? this.#usage
    const choice = chunk.choices?.[0]
    if (choice === undefined) return
    this.#finish = choice.finish_reason ?? this.#finish
    const content = choice.delta?.content ?? ''
    const pieces = choice.delta?.tool_calls ?? []
    if (content !== '' || pieces.length > 0) this.#firstTokenMs ??= afterMs
    this.#text += content
    for (const { index, id, function: called } of pieces) {
      const tool = this.#tools.get(index) ?? { id: '', name: '', arguments: '' }
      this.#tools.set(index, { id: id ?? tool.id, name: called?.name ?? tool.name, arguments: tool.arguments + (called?.arguments ?? '') })
    }
  }

  whole(totalMs: number): ChatReply {
    if (this.#finish === null) throw new ChatError('the stream ended before the answer did')
    return {
      text: this.#text,
      toolCalls: [...this.#tools].sort(([a], [b]) => a - b).map(([, { id, ...called }]) => ({ id, type: 'function', function: called })),
      finish: this.#finish,
      promptTokens: this.#usage?.prompt_tokens ?? 0,
      cachedTokens: this.#usage?.prompt_tokens_details?.cached_tokens ?? 0,
      outputTokens: this.#usage?.completion_tokens ?? 0,
      firstTokenMs: this.#firstTokenMs,
      totalMs,
      call: this.#call,
    }
  }
}
