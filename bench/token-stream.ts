/**
 * Owns one streamed chat completion as a bench times it: bytes are kept with the time at which they came and read after
 * the end, so that the client takes as little of the processors as it can from the server beside it.
 */
import { request } from 'node:http'

export interface Streamed {
  readonly sentMs: number
  /** When each event with text in it came, in order. */
  readonly eventMs: readonly number[]
  readonly promptTokens: number
  readonly cachedTokens: number
  readonly outputTokens: number
  readonly text: string
}

/** A server ended its stream with an error of its own. */
export class StreamFault extends Error {
  override readonly name = 'StreamFault'
}

interface Chunk {
  readonly error?: { readonly message?: string }
  readonly choices?: readonly { readonly delta?: { readonly content?: string | null } }[]
  readonly usage?: { readonly prompt_tokens?: number; readonly completion_tokens?: number; readonly prompt_tokens_details?: { readonly cached_tokens?: number } } | null
}

/** `body` without the fields that make it a stream; `begun`: something of the answer has come. */
export function streamed(
  url: string, headers: Readonly<Record<string, string>>, body: object, signal: AbortSignal, begun: () => void = () => undefined,
): Promise<Streamed> {
  const text = JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } })
  const sentMs = performance.now()
  const came: { readonly atMs: number; readonly bytes: Buffer }[] = []
  return new Promise((resolve, reject) => {
    const sent = request(`${url}/v1/chat/completions`, {
      method: 'POST', agent: false, headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text), ...headers }, signal,
    }, (response) => {
      response.on('data', (bytes: Buffer) => {
        came.push({ atMs: performance.now(), bytes })
        if (bytes.includes('data: {')) begun()
      })
      response.on('error', reject)
      response.on('end', () => {
        if (response.statusCode !== 200) return reject(new Error(`HTTP ${String(response.statusCode)}: ${Buffer.concat(came.map(({ bytes }) => bytes)).toString()}`))
        try {
          resolve(read(sentMs, came))
        } catch (error) {
          reject(error instanceof Error ? error : new Error(String(error)))
        }
      })
    })
    sent.on('error', reject)
    sent.end(text)
  })
}

/** An event is whole when the bytes with its end have come. */
function read(sentMs: number, came: readonly { readonly atMs: number; readonly bytes: Buffer }[]): Streamed {
  const eventMs: number[] = []
  let usage: NonNullable<Chunk['usage']> = {}
  let text = ''
  let held = ''
  for (const { atMs, bytes } of came) {
    held += bytes.toString('latin1')
    const events = held.split('\n\n')
    held = events.pop() ?? ''
    for (const event of events) {
      if (!event.startsWith('data: {')) continue
      const chunk = JSON.parse(Buffer.from(event.slice('data: '.length), 'latin1').toString()) as Chunk
      if (chunk.error !== undefined) throw new StreamFault(chunk.error.message ?? 'the stream ended with an error')
      usage = chunk.usage ?? usage
      const content = chunk.choices?.[0]?.delta?.content ?? ''
      if (content === '') continue
      eventMs.push(atMs)
      text += content
    }
  }
  return {
    sentMs, eventMs, text,
    promptTokens: usage.prompt_tokens ?? 0,
    cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
    outputTokens: usage.completion_tokens ?? 0,
  }
}

/** Tokens a second, and how it was found. */
export interface Rate {
  /** While all were decoding; null where they never were at the same time. */
  readonly together: number | null
  /** From the first request sent to the last token: what waited in line is in it. */
  readonly whole: number
}

export function rateOf(streams: readonly Streamed[]): Rate {
  const from = Math.max(...streams.map(({ eventMs }) => eventMs[0] ?? Infinity))
  const to = Math.min(...streams.map(({ eventMs }) => eventMs.at(-1) ?? -Infinity))
  const tokens = streams.reduce((sum, { outputTokens }) => sum + outputTokens, 0)
  const wallMs = Math.max(...streams.map(({ eventMs }) => eventMs.at(-1) ?? 0)) - Math.min(...streams.map(({ sentMs }) => sentMs))
  const rates = streams.map((stream) => steadyRate(stream, from, to))
  return {
    together: rates.some((rate) => rate === null) ? null : rates.reduce((sum: number, rate) => sum + (rate ?? 0), 0),
    whole: (tokens / wallMs) * 1_000,
  }
}

/** Fewer events than this in the time looked at say nothing. */
const STEADY_EVENTS_MIN = 8

/** What came with the first event looked at is not counted, since the time it took is not in it. */
function steadyRate({ eventMs, outputTokens }: Streamed, fromMs: number, toMs: number): number | null {
  const inside = eventMs.filter((atMs) => atMs >= fromMs && atMs <= toMs)
  const firstMs = inside[0] ?? 0
  const spanMs = (inside.at(-1) ?? 0) - firstMs
  const after = inside.filter((atMs) => atMs > firstMs).length
  if (after < STEADY_EVENTS_MIN || spanMs <= 0) return null
  return (after * outputTokens / eventMs.length / spanMs) * 1_000
}
