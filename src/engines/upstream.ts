/**
 * Owns the HTTP client before one OpenAI-compatible base URL: addresses, the key, timeouts, and what a status means.
 * Everything that goes wrong comes out as an UpstreamError that says whether trying again may help.
 */
import { Agent, type Dispatcher } from 'undici'
import { messageOf, UpstreamError } from './openai-wire.ts'

type Answered = Dispatcher.ResponseData

const CONNECT_MS_MAX = 10_000
/** An upstream may queue before it answers at all. */
const HEADERS_MS_MAX = 600_000
const CHECK_MS_MAX = 5_000
const ERROR_BYTES_MAX = 64 * 1024

export class Upstream {
  readonly #agent = new Agent({ bodyTimeout: 0, headersTimeout: HEADERS_MS_MAX, connect: { timeout: CONNECT_MS_MAX } })
  readonly #base: string
  readonly #headers: Record<string, string>

  /** A base URL without a path means the usual `/v1`. */
  constructor(baseUrl: string, apiKey: string | null) {
    const url = new URL(baseUrl)
    this.#base = `${url.origin}${url.pathname === '/' ? '/v1' : url.pathname.replace(/\/+$/, '')}`
    this.#headers = apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }
  }

  /** Reachable and willing; else throws UpstreamError. An upstream without a list of models is as good. */
  async check(): Promise<void> {
    const { statusCode, body } = await this.#request('GET', '/models', null, AbortSignal.timeout(CHECK_MS_MAX))
    if (statusCode === 401 || statusCode === 403 || statusCode >= 500) throw await refusal(statusCode, body)
    await body.dump()
  }

  /** Bytes of the event stream that answers a chat call. */
  async chat(requestBody: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    const { statusCode, headers, body } = await this.#request('POST', '/chat/completions', requestBody, signal)
    if (statusCode !== 200) throw await refusal(statusCode, body, headers['retry-after'])
    if (!String(headers['content-type']).includes('text/event-stream')) {
      await body.dump()
      const type = String(headers['content-type'])
      throw new UpstreamError(`the upstream was asked to stream and answered with ${type}`, false)
    }
    return body
  }

  close(): Promise<void> {
    return this.#agent.destroy()
  }

  async #request(method: 'GET' | 'POST', path: string, body: string | null, signal: AbortSignal): Promise<Answered> {
    const url = new URL(`${this.#base}${path}`)
    const type = body === null ? {} : { 'content-type': 'application/json' }
    const headers = { ...this.#headers, ...type, accept: 'application/json, text/event-stream' }
    try {
      return await this.#agent.request({ origin: url.origin, path: url.pathname, method, headers, body, signal })
    } catch (error) {
      const why = `the upstream ${url.origin} cannot be reached: ${reasonOf(error)}`
      throw new UpstreamError(why, true, { reached: false })
    }
  }
}

async function refusal(status: number, body: Answered['body'], retryAfter?: string | string[]): Promise<UpstreamError> {
  const retryable = status === 408 || status === 425 || status === 429 || status >= 500
  const seconds = Number(Array.isArray(retryAfter) ? retryAfter[0] : retryAfter)
  const retryAfterMs = Number.isFinite(seconds) && seconds >= 0 ? seconds * 1_000 : null
  return new UpstreamError(`the upstream answered ${status}: ${await said(body)}`, retryable, { retryAfterMs })
}

async function said(body: Answered['body']): Promise<string> {
  const text = (await head(body)).trim()
  try {
    return messageOf(JSON.parse(text)) ?? text.slice(0, 500)
  } catch (error) {
    if (error instanceof SyntaxError) return text === '' ? 'nothing' : text.slice(0, 500)
    throw error
  }
}

/** As much of an error body as is worth reading. */
async function head(body: Answered['body']): Promise<string> {
  const pieces: Buffer[] = []
  let bytes = 0
  try {
    for await (const piece of body as AsyncIterable<Buffer>) {
      pieces.push(piece)
      bytes += piece.length
      if (bytes > ERROR_BYTES_MAX) break
    }
  } catch (error) {
    pieces.push(Buffer.from(` (and broke off: ${reasonOf(error)})`))
  }
  return Buffer.concat(pieces).toString('utf8')
}

/** Errors of the network say the most in their code or their cause. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  const code = 'code' in error && typeof error.code === 'string' ? error.code : null
  const inner = error instanceof AggregateError ? error.errors[0] : error.cause
  const text = error.message === '' && inner !== undefined ? reasonOf(inner) : error.message
  return code === null || text.includes(code) ? text : `${text} (${code})`
}
