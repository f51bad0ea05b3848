/**
 * Owns the shape of what a chat completion answers: the whole object, and the chunks of a stream. Pure: who waits,
 * writes and hangs up is the server's business. `entracte` is our one extension field; clients ignore what they do not
 * know.
 */
import { toolCallIdOf } from './chat.ts'
import type { WireLogprob, WirePart } from './engine.ts'

/** What every chunk of one answer repeats. */
export interface ReplyHead {
  readonly call: string
  readonly program: string
  readonly model: string
  readonly createdSeconds: number
  readonly includeUsage: boolean
}

interface ReplyEnd {
  readonly finish: 'stop' | 'length' | 'tool_calls'
  readonly promptTokens: number
  readonly outputTokens: number
  readonly cachedTokens: number
  readonly resume: 'none' | 'exact' | 'recomputed'
  readonly queuedUs: number
}

interface ToolCallReply { id: string; type: 'function'; function: { name: string; arguments: string } }

/** Parts of a call, put together as they come. */
export class ReplyText {
  #content = ''
  #reasoning = ''
  readonly #logprobs: WireLogprob[] = []
  readonly #toolCalls = new Map<number, { name: string; arguments: string }>()

  add(part: WirePart): void {
    if (part.kind === 'text') {
      this.#content += part.text
      this.#logprobs.push(...part.logprobs ?? [])
      return
    }
    if (part.kind === 'reasoning') {
      this.#reasoning += part.text
      return
    }
    const known = this.#toolCalls.get(part.index) ?? { name: '', arguments: '' }
    this.#toolCalls.set(part.index, { name: part.name ?? known.name, arguments: known.arguments + part.arguments })
  }

  completion(head: ReplyHead, end: ReplyEnd): object {
    const toolCalls = [...this.#toolCalls].map(([index, call]): ToolCallReply =>
      ({ id: toolCallIdOf(head.call, index), type: 'function', function: call }))
    return {
      id: replyId(head),
      object: 'chat.completion',
      created: head.createdSeconds,
      model: head.model,
      choices: [{
        index: 0,
        message: {
          role: 'assistant',
          content: this.#content === '' && toolCalls.length > 0 ? null : this.#content,
          refusal: null,
          ...(this.#reasoning === '' ? {} : { reasoning_content: this.#reasoning }),
          ...(toolCalls.length > 0 ? { tool_calls: toolCalls } : {}),
        },
        logprobs: logprobsOf(this.#logprobs),
        finish_reason: end.finish,
      }],
      usage: usageOf(end),
      entracte: extensionOf(head, end),
    }
  }
}

export const roleChunk = (head: ReplyHead): object => chunk(head, { role: 'assistant', content: '' }, null)

export function partChunk(head: ReplyHead, part: WirePart): object {
  if (part.kind === 'text') return chunk(head, { content: part.text }, null, part.logprobs)
  if (part.kind === 'reasoning') return chunk(head, { reasoning_content: part.text }, null)
  const { index, name, arguments: text } = part
  const piece = name === null
    ? { index, function: { arguments: text } }
    : { index, id: toolCallIdOf(head.call, index), type: 'function', function: { name, arguments: text } }
  return chunk(head, { tool_calls: [piece] }, null)
}

export const finishChunk = (head: ReplyHead, end: ReplyEnd): object =>
  ({ ...chunk(head, {}, end.finish), entracte: extensionOf(head, end) })

export const usageChunk = (head: ReplyHead, end: ReplyEnd): object =>
  ({ ...frame(head), choices: [], usage: usageOf(end) })

function chunk(
  head: ReplyHead, delta: object, finish: ReplyEnd['finish'] | null, logprobs: readonly WireLogprob[] = [],
): object {
  return {
    ...frame(head),
    choices: [{ index: 0, delta, logprobs: logprobsOf(logprobs), finish_reason: finish }],
    ...(head.includeUsage ? { usage: null } : {}),
  }
}

function logprobsOf(logprobs: readonly WireLogprob[]): object | null {
  if (logprobs.length === 0) return null
  const one = ({ bytes, logprob }: { bytes: readonly number[]; logprob: number }): object =>
    ({ token: new TextDecoder().decode(Uint8Array.from(bytes)), logprob, bytes })
  return { content: logprobs.map((each) => ({ ...one(each), top_logprobs: each.top.map(one) })), refusal: null }
}

const frame = (head: ReplyHead): object =>
  ({ id: replyId(head), object: 'chat.completion.chunk', created: head.createdSeconds, model: head.model })

const replyId = (head: ReplyHead): string => `chatcmpl-${head.call}`

function usageOf(end: ReplyEnd): object {
  return {
    prompt_tokens: end.promptTokens,
    completion_tokens: end.outputTokens,
    total_tokens: end.promptTokens + end.outputTokens,
    prompt_tokens_details: { cached_tokens: end.cachedTokens },
  }
}

const extensionOf = (head: ReplyHead, end: ReplyEnd): object =>
  ({ call: head.call, program: head.program, resume: end.resume, queuedUs: end.queuedUs })
