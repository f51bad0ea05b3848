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

/** One of the answers, and the call that gives it: its tool calls carry that call's id. */
export interface ReplyChoice { readonly index: number; readonly call: string }

export interface ReplyEnd {
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

  choice({ index, call: id }: ReplyChoice, { finish }: ReplyEnd): object {
    const toolCalls = [...this.#toolCalls].map(([at, call]): ToolCallReply =>
      ({ id: toolCallIdOf(id, at), type: 'function', function: call }))
    return {
      index,
      message: {
        role: 'assistant',
        content: this.#content === '' && toolCalls.length > 0 ? null : this.#content,
        refusal: null,
        ...(this.#reasoning === '' ? {} : { reasoning_content: this.#reasoning }),
        ...(toolCalls.length > 0 ? { tool_calls: toolCalls } : {}),
      },
      logprobs: logprobsOf(this.#logprobs),
      finish_reason: finish,
    }
  }
}

/** Choices and their ends in order; there is at least one. */
export const completion = (head: ReplyHead, choices: readonly object[], ends: readonly ReplyEnd[]): object => ({
  id: replyId(head),
  object: 'chat.completion',
  created: head.createdSeconds,
  model: head.model,
  choices,
  usage: usageOf(ends),
  ...(ends[0] === undefined ? {} : { entracte: extensionOf(head, head.call, { ...ends[0], resume: resumeOf(ends) }) }),
})

/** Of several choices the least that can be said of any. */
function resumeOf(ends: readonly ReplyEnd[]): ReplyEnd['resume'] {
  const order = ['recomputed', 'exact', 'none'] as const
  return order.find((resume) => ends.some((end) => end.resume === resume)) ?? 'none'
}

export const roleChunk = (head: ReplyHead, choice: ReplyChoice): object =>
  chunk(head, choice, { role: 'assistant', content: '' }, null)

export function partChunk(head: ReplyHead, choice: ReplyChoice, part: WirePart): object {
  if (part.kind === 'text') return chunk(head, choice, { content: part.text }, null, part.logprobs)
  if (part.kind === 'reasoning') return chunk(head, choice, { reasoning_content: part.text }, null)
  const { index, name, arguments: text } = part
  const piece = name === null
    ? { index, function: { arguments: text } }
    : { index, id: toolCallIdOf(choice.call, index), type: 'function', function: { name, arguments: text } }
  return chunk(head, choice, { tool_calls: [piece] }, null)
}

export const finishChunk = (head: ReplyHead, choice: ReplyChoice, end: ReplyEnd): object =>
  ({ ...chunk(head, choice, {}, end.finish), entracte: extensionOf(head, choice.call, end) })

export const usageChunk = (head: ReplyHead, ends: readonly ReplyEnd[]): object =>
  ({ ...frame(head), choices: [], usage: usageOf(ends) })

function chunk(
  head: ReplyHead, { index }: ReplyChoice, delta: object, finish: ReplyEnd['finish'] | null, logprobs: readonly WireLogprob[] = [],
): object {
  return {
    ...frame(head),
    choices: [{ index, delta, logprobs: logprobsOf(logprobs), finish_reason: finish }],
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

/** The prompt is counted once, as the first choice had it. */
function usageOf(ends: readonly ReplyEnd[]): object {
  const { promptTokens = 0, cachedTokens = 0 } = ends[0] ?? {}
  const outputTokens = ends.reduce((sum, end) => sum + end.outputTokens, 0)
  return {
    prompt_tokens: promptTokens,
    completion_tokens: outputTokens,
    total_tokens: promptTokens + outputTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  }
}

const extensionOf = (head: ReplyHead, call: string, end: ReplyEnd): object =>
  ({ call, program: head.program, resume: end.resume, queuedUs: end.queuedUs })
