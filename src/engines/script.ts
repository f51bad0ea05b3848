/**
 * Owns what a script says: its items, which of them answers a call, and how text is cut into tokens. Everything here is
 * a function of the script and the call's messages, so every attempt at a call says the same.
 *
 * Which item plays: those whose `match` (a regular expression's source) fits the last user or tool message; where none
 * does, those without `match`. Among several, the n-th, where n counts the earlier points of the same conversation (the
 * user or tool message before each assistant message) that the same items answered; after the last one it plays again.
 */
import { createHash } from 'node:crypto'
import type { ChatCall, ChatMessage } from '../protocol/chat.ts'
import type { StreamPart } from '../driver/ports.ts'
import type { Origin } from '../core/state.ts'
import type { Tokens } from '../core/units.ts'

interface ScriptToolCall { readonly name: string; readonly arguments: string | Readonly<Record<string, unknown>> }

export interface ScriptItem {
  readonly match?: string | undefined
  readonly text?: string | undefined
  readonly toolCalls?: readonly ScriptToolCall[] | undefined
  readonly promptTokensPerSecond?: number | undefined
  readonly tokensPerSecond?: number | undefined
  /** Before the first token. */
  readonly latencyMs?: number | undefined
  /**
   * What goes wrong: the attempt fails (`retryable`, `fatal`), the engine stops answering until its lease is over
   * (`hang`), or dies at once (`lost`). After the last two it joins again, its device memory empty.
   */
  readonly fail?: 'retryable' | 'fatal' | 'hang' | 'lost' | undefined
  /** Output tokens before it goes wrong; 0 by default. */
  readonly failAfterTokens?: number | undefined
  /** Attempts of one call that go wrong before the item plays; 1 by default, and a `fatal` one always does. */
  readonly failTimes?: number | undefined
}

/** One output token and what it shows. */
interface ScriptToken { readonly id: number; readonly part: StreamPart }

export interface Answer {
  readonly item: ScriptItem
  readonly tokens: readonly ScriptToken[]
  readonly toolCalls: readonly { readonly name: string }[]
}

export function answerOf(items: readonly ScriptItem[], chat: ChatCall): Answer {
  const item = itemFor(items, chat.messages) ?? {}
  const text = cutAtStop(item.text ?? '', chat.stop)
  const toolCalls = text.stopped ? [] : item.toolCalls ?? []
  return {
    item,
    tokens: [
      ...piecesOf(text.text).map((piece) => ({ id: tokenIdOf(piece), part: { kind: 'text', text: piece } as const })),
      ...toolCalls.flatMap((call, index) => toolCallTokens(index, call.name, canonicalArguments(call.arguments))),
    ],
    toolCalls: toolCalls.map(({ name }) => ({ name })),
  }
}

function itemFor(items: readonly ScriptItem[], messages: readonly ChatMessage[]): ScriptItem | undefined {
  const patterns = items.map(({ match }) => (match === undefined ? null : new RegExp(match, 'u')))
  const fitting = (content: string): number[] => {
    const matched = items.flatMap((_, index) => (patterns[index]?.test(content) ? [index] : []))
    return matched.length > 0 ? matched : items.flatMap((_, index) => (patterns[index] === null ? [index] : []))
  }
  const points: string[] = []
  let last = ''
  for (const message of messages) {
    if (message.role === 'assistant') points.push(fitting(last).join())
    if (message.role === 'user' || message.role === 'tool') last = message.content
  }
  const candidates = fitting(last)
  const before = points.filter((point) => point === candidates.join()).length
  const chosen = candidates[Math.min(before, candidates.length - 1)]
  return chosen === undefined ? undefined : items[chosen]
}

function cutAtStop(text: string, stop: readonly string[]): { text: string; stopped: boolean } {
  const at = stop.map((word) => text.indexOf(word)).filter((index) => index >= 0)
  return at.length === 0 ? { text, stopped: false } : { text: text.slice(0, Math.min(...at)), stopped: true }
}

// ---------------------------------------------------------------- tokens

/** Token ids of a whole prompt. An assistant message that echoes what the script said has the ids it was said with. */
export function promptTokensOf(chat: ChatCall): number[] {
  const ids: number[] = []
  const push = (text: string): void => { for (const piece of piecesOf(text)) ids.push(tokenIdOf(piece)) }
  if (chat.tools.length > 0) push(JSON.stringify(chat.tools))
  for (const message of chat.messages) {
    ids.push(tokenIdOf(`<|${message.role}|>`))
    push(message.content)
    for (const [index, { name, arguments: text }] of message.toolCalls.entries()) {
      ids.push(...toolCallTokens(index, name, canonicalArguments(text)).map(({ id }) => id))
    }
    ids.push(tokenIdOf('<|end|>'))
  }
  ids.push(tokenIdOf('<|assistant|>'))
  return ids
}

function toolCallTokens(index: number, name: string, argumentsText: string): ScriptToken[] {
  return [
    { id: tokenIdOf(`<|call ${name}|>`), part: { kind: 'toolCall', index, name, arguments: '' } },
    ...piecesOf(argumentsText).map((piece) => (
      { id: tokenIdOf(piece), part: { kind: 'toolCall', index, name: null, arguments: piece } } as const
    )),
  ]
}

/** Words and signs with the white space before them; together they are the text. */
const piecesOf = (text: string): string[] => text.match(/\s*[\p{L}\p{N}_]+|\s*[^\s\p{L}\p{N}_]|\s+/gu) ?? []

/** Stable over runs and machines: FNV-1a of the piece, without the sign. */
function tokenIdOf(piece: string): number {
  let hash = 0x811c9dc5
  for (const byte of Buffer.from(piece)) hash = Math.imul(hash ^ byte, 0x01000193)
  return hash >>> 1
}

/** JSON with sorted keys, so that an echo with re-ordered arguments is still the echo; what is no JSON stays. */
function canonicalArguments(value: string | Readonly<Record<string, unknown>>): string {
  if (typeof value !== 'string') return JSON.stringify(sorted(value))
  try {
    return JSON.stringify(sorted(JSON.parse(value)))
  } catch (error) {
    if (error instanceof SyntaxError) return value
    throw error
  }
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return Object.fromEntries(entries.map(([key, inner]) => [key, sorted(inner)]))
}

// ---------------------------------------------------------------- records

export interface Run { readonly tokens: Tokens; readonly origin: Origin }

/** What a call leaves to its thread, and what `measure` hands to `start`: tokens, and how the fed ones were fed. */
export interface TokenRecord {
  readonly tokens: readonly number[]
  readonly promptTokens: Tokens
  readonly fed: readonly Run[]
}

export const writeRecord = (record: TokenRecord): Uint8Array => Buffer.from(JSON.stringify(record))
export const readRecord = (bytes: Uint8Array): TokenRecord =>
  JSON.parse(Buffer.from(bytes).toString('utf8')) as TokenRecord

export const sumOf = (runs: readonly { readonly tokens: Tokens }[]): Tokens =>
  runs.reduce((sum, { tokens }) => sum + tokens, 0)

/** What of them lies between two positions; neighbours of one origin are one. */
export function cutRuns(runs: readonly Run[], end: Tokens, begin: Tokens = 0): Run[] {
  const kept: Run[] = []
  let position = 0
  for (const { tokens, origin } of runs) {
    const inside = Math.min(position + tokens, end) - Math.max(position, begin)
    position += tokens
    if (inside <= 0) continue
    const last = kept.at(-1)
    if (last?.origin === origin) kept[kept.length - 1] = { tokens: last.tokens + inside, origin }
    else kept.push({ tokens: inside, origin })
  }
  return kept
}

/** Tells one span from every other: its tokens, their origins, and all before them. */
export function spanDigest(tokens: readonly number[], runs: readonly Run[], end: Tokens): string {
  const all = JSON.stringify([tokens.slice(0, end), cutRuns(runs, end)])
  return createHash('sha256').update(all).digest('hex').slice(0, 32)
}
