/**
 * Owns one request of a soaked agent: a streamed completion or an act on a program, each on a connection of its own, so
 * that a hang-up is one and no idle connection counts among the server's descriptors.
 */
import { request } from 'node:http'

export interface Place {
  /** Up to and without `/v1`. */
  readonly url: string
  readonly key: string
}

interface ToolCall { readonly id: string; readonly type: 'function'; readonly function: { readonly name: string; readonly arguments: string } }

export interface Said {
  readonly text: string
  readonly toolCalls: readonly ToolCall[]
  readonly finish: string
  readonly resume: string
  readonly outputTokens: number
}

/** What came instead of an answer. */
export class Unanswered extends Error {
  /** As the error's body has it; `lost` where the connection ended, `left` where we ended it. */
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/** `signal` hangs up. */
export async function ask(place: Place, headers: Readonly<Record<string, string>>, body: object, signal: AbortSignal | null): Promise<Said> {
  const { status, text } = await send(place, 'POST', '/v1/chat/completions', headers, { ...body, stream: true, stream_options: { include_usage: true } }, signal)
  if (status !== 200) throw new Unanswered(codeOf(text) ?? String(status), text)
  return read(text)
}

/** The body of the answer; an error of the server's is thrown. */
export async function act(place: Place, method: 'GET' | 'POST' | 'DELETE', path: string, body: object | null = null): Promise<string> {
  const { status, text } = await send(place, method, path, {}, body, null)
  if (status >= 400) throw new Unanswered(codeOf(text) ?? String(status), text)
  return text
}

function send(
  { url, key }: Place, method: string, path: string, headers: Readonly<Record<string, string>>, body: object | null, signal: AbortSignal | null,
): Promise<{ readonly status: number; readonly text: string }> {
  return new Promise((resolve, reject) => {
    const lost = (error: Error): void => reject(new Unanswered(signal?.aborted === true ? 'left' : 'lost', error.message))
    const sent = request(`${url}${path}`, {
      method, agent: false, ...(signal === null ? {} : { signal }),
      headers: { authorization: `Bearer ${key}`, ...(body === null ? {} : { 'content-type': 'application/json' }), ...headers },
    }, (response) => {
      let text = ''
      response.setEncoding('utf8').on('data', (chunk: string) => { text += chunk })
      response.on('error', lost)
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }))
    })
    sent.on('error', lost)
    sent.end(body === null ? undefined : JSON.stringify(body))
  })
}

interface Chunk {
  readonly error?: { readonly message?: string; readonly code?: string }
  readonly choices?: readonly { readonly delta?: { readonly content?: string; readonly tool_calls?: readonly { readonly index: number; readonly id?: string; readonly function?: { readonly name?: string; readonly arguments?: string } }[] }; readonly finish_reason?: string | null }[]
  readonly usage?: { readonly completion_tokens?: number } | null
  readonly entracte?: { readonly resume?: string }
}

function read(stream: string): Said {
  const tools = new Map<number, { id: string; name: string; arguments: string }>()
  const said = { text: '', finish: '', resume: '', outputTokens: 0 }
  for (const event of stream.split('\n\n')) {
    if (!event.startsWith('data: {')) continue
    const chunk = JSON.parse(event.slice('data: '.length)) as Chunk
    if (chunk.error !== undefined) throw new Unanswered(chunk.error.code ?? 'error', chunk.error.message ?? event)
    said.outputTokens = chunk.usage?.completion_tokens ?? said.outputTokens
    said.resume = chunk.entracte?.resume ?? said.resume
    const [choice] = chunk.choices ?? []
    said.text += choice?.delta?.content ?? ''
    said.finish = choice?.finish_reason ?? said.finish
    for (const { index, id, function: called } of choice?.delta?.tool_calls ?? []) {
      const tool = tools.get(index) ?? { id: '', name: '', arguments: '' }
      tools.set(index, { id: id ?? tool.id, name: called?.name ?? tool.name, arguments: tool.arguments + (called?.arguments ?? '') })
    }
  }
  if (said.finish === '') throw new Unanswered('lost', 'the stream ended before the answer did')
  const toolCalls = [...tools].sort(([a], [b]) => a - b).map(([, { id, ...called }]): ToolCall => ({ id, type: 'function', function: called }))
  return { ...said, toolCalls }
}

function codeOf(text: string): string | null {
  try {
    return (JSON.parse(text) as { readonly error?: { readonly code?: string } }).error?.code ?? null
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}
