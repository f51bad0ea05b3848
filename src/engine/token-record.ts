/**
 * Owns what is kept of a thread's tokens between its calls: a prompt as it was measured (`Prepared`) and a finished
 * call's record (`TokenRecord`), their bytes, and how a record grows from a prompt and an output. Leaves to
 * `measure.ts` which record a prompt continues.
 *
 * R1 the runs cover the tokens exactly; neighbours differ in origin; a prefilled run has two tokens or more, because a
 *    lone given token is decoded (E1).
 * R2 `text` is what `tokens` spell. A given token spells all of its bytes, a generated control token none: the client
 *    never saw it. Bytes that are no UTF-8 spell U+FFFD, as they were shown.
 * R3 bytes that are not exactly what `encode` wrote are refused with TokenRecordError.
 */
import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'

/** What the text side needs of a model's vocabulary. */
export interface Tokenizer {
  /** Never adds a beginning or an end. With `parseSpecial`, control tokens are read where they are spelled. */
  tokenize(text: string, parseSpecial: boolean): Int32Array
  /** The bytes of one token; without `special`, control tokens give none. */
  piece(token: number, special: boolean): Uint8Array
  isEog(token: number): boolean
  isControl(token: number): boolean
}

export interface TokenRun { readonly tokens: number; readonly origin: 'prefilled' | 'decoded' }

/** An assistant message as it was committed. */
export interface CommittedMessage {
  readonly content: string
  /** Absent: none. */
  readonly reasoning?: string
  readonly toolCalls: readonly { readonly name: string; readonly arguments: string }[]
}

/** One message of the history that the tokens hold. */
export interface HistoryEntry {
  readonly digest: string
  /** The message as we generated it, where we did: what an echo of it is compared with. */
  readonly committed: CommittedMessage | null
}

export interface Prepared {
  readonly tokens: Int32Array
  readonly runs: readonly TokenRun[]
  readonly text: string
  /** Indices of generated control tokens: they spell nothing (R2). Ascending. */
  readonly silent: readonly number[]
  /** Names the vocabulary: tokens of another are numbers without meaning. */
  readonly vocabulary: string
  /** Digest of the tool list that was offered. */
  readonly toolsDigest: string
  readonly history: readonly HistoryEntry[]
}

export interface TokenRecord extends Prepared {
  /** Kept tokens that were sampled and never fed. They spell `pendingText`; `silent` counts on into them. */
  readonly pending: readonly number[]
  readonly pendingText: string
}

/** What of an output is kept; `output.ts` makes it. */
export interface KeptOutput {
  /** Whole output tokens kept, from the first on. */
  readonly keptTokens: number
  /** How far into the kept text the first n kept tokens spell, for n from 0 to `keptTokens`. */
  readonly spelled: readonly number[]
  /** The whole kept text; a token cut by a stop string leaves some beyond `spelled`. */
  readonly keptText: string
  /** Indices among the kept tokens that spell nothing. */
  readonly silent: readonly number[]
  readonly message: CommittedMessage
}

export class TokenRecordError extends Error {}

/** Appends a run, joining neighbours of one origin (R1). */
export function joinRuns(runs: readonly TokenRun[], next: TokenRun): TokenRun[] {
  if (next.tokens === 0) return [...runs]
  const last = runs.at(-1)
  if (last === undefined || last.origin !== next.origin) return [...runs, next]
  return [...runs.slice(0, -1), { tokens: last.tokens + next.tokens, origin: next.origin }]
}

/**
 * The record of a finished call: `outputs` are all tokens it sampled, of which the first `fedTokens` were fed. What was
 * fed beyond the kept ones must be cut from the State.
 */
export function recordOf(
  prepared: Prepared, outputs: readonly number[], fedTokens: number, kept: KeptOutput,
): TokenRecord {
  const fed = Math.min(fedTokens, kept.keptTokens)
  const tokens = new Int32Array(prepared.tokens.length + fed)
  tokens.set(prepared.tokens)
  tokens.set(outputs.slice(0, fed), prepared.tokens.length)
  const fedText = kept.spelled[fed] ?? 0
  const spelledText = kept.spelled[kept.keptTokens] ?? 0
  return {
    tokens,
    runs: joinRuns(prepared.runs, { tokens: fed, origin: 'decoded' }),
    text: prepared.text + kept.keptText.slice(0, fedText),
    silent: [...prepared.silent, ...kept.silent.map((index) => prepared.tokens.length + index)],
    vocabulary: prepared.vocabulary,
    toolsDigest: prepared.toolsDigest,
    history: [...prepared.history, { digest: messageDigest('assistant', kept.message), committed: kept.message }],
    pending: outputs.slice(fed, kept.keptTokens),
    pendingText: kept.keptText.slice(fedText, spelledText),
  }
}

/** Tells texts apart where only the reason of a mismatch depends on it. */
export const shortDigest = (text: string): string =>
  createHash('sha256').update(text).digest('base64url').slice(0, DIGEST_CHARS)

/** Ids of calls and of their results do not count, nor does reasoning: clients seldom send it back. */
export function messageDigest(role: string, { content, toolCalls }: CommittedMessage): string {
  return shortDigest(JSON.stringify([role, content, toolCalls.map((call) => [call.name, call.arguments])]))
}

export const encodePrepared = (prepared: Prepared): Uint8Array =>
  encode(PREPARED, { ...prepared, pending: [], pendingText: '' })

export const encodeRecord = (record: TokenRecord): Uint8Array => encode(RECORD, record)

export function decodePrepared(bytes: Uint8Array): Prepared {
  const { pending: _, pendingText: __, ...prepared } = decode(PREPARED, bytes)
  return prepared
}

export const decodeRecord = (bytes: Uint8Array): TokenRecord => decode(RECORD, bytes)

// ---------------------------------------------------------------- bytes

/*
 *   0   4  magic
 *   4   2  version
 *   6   2  what it is: 1 prepared, 2 record
 *   8   4  bytes of the JSON head
 *   12  4  tokens, pending ones included
 *   16  .. JSON head, then the tokens as i32
 *   -4  4  CRC-32 of all before
 * All little endian.
 */
const MAGIC = 0x4b4f5445
const VERSION = 1
const PREPARED = 1
const RECORD = 2
const HEAD_BYTES = 16
const CRC_BYTES = 4
const DIGEST_CHARS = 16

function encode(what: number, record: TokenRecord): Uint8Array {
  const { tokens, pending, ...head } = record
  const json = Buffer.from(JSON.stringify({ ...head, pending: pending.length }))
  const count = tokens.length + pending.length
  const out = Buffer.alloc(HEAD_BYTES + json.length + count * 4 + CRC_BYTES)
  out.writeUInt32LE(MAGIC, 0)
  out.writeUInt16LE(VERSION, 4)
  out.writeUInt16LE(what, 6)
  out.writeUInt32LE(json.length, 8)
  out.writeUInt32LE(count, 12)
  json.copy(out, HEAD_BYTES)
  let at = HEAD_BYTES + json.length
  for (const token of tokens) at = out.writeInt32LE(token, at)
  for (const token of pending) at = out.writeInt32LE(token, at)
  out.writeUInt32LE(crc32(out.subarray(0, at)), at)
  return out
}

function decode(what: number, bytes: Uint8Array): TokenRecord {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  if (buffer.length < HEAD_BYTES + CRC_BYTES) throw new TokenRecordError(`${buffer.length} bytes are too few`)
  if (buffer.readUInt32LE(0) !== MAGIC) throw new TokenRecordError('the bytes are no token record')
  const version = buffer.readUInt16LE(4)
  if (version !== VERSION) throw new TokenRecordError(`version ${version} is unknown, ${VERSION} is read`)
  if (buffer.readUInt16LE(6) !== what) {
    throw new TokenRecordError('a prompt was given for a record, or a record for a prompt')
  }
  const jsonBytes = buffer.readUInt32LE(8)
  const count = buffer.readUInt32LE(12)
  const crcAt = HEAD_BYTES + jsonBytes + count * 4
  if (buffer.length !== crcAt + CRC_BYTES) throw new TokenRecordError('the length is not what the head says')
  if (buffer.readUInt32LE(crcAt) !== crc32(buffer.subarray(0, crcAt))) {
    throw new TokenRecordError('the checksum differs')
  }
  const head = parseHead(buffer.toString('utf8', HEAD_BYTES, HEAD_BYTES + jsonBytes))
  if (head.pending > count) throw new TokenRecordError('more tokens are pending than there are')
  const all = Int32Array.from({ length: count }, (_, i) => buffer.readInt32LE(HEAD_BYTES + jsonBytes + i * 4))
  const tokens = all.slice(0, count - head.pending)
  if (head.runs.reduce((sum, run) => sum + run.tokens, 0) !== tokens.length) {
    throw new TokenRecordError('the runs do not cover the tokens')
  }
  return { ...head, tokens, pending: [...all.subarray(tokens.length)] }
}

type Head = Omit<TokenRecord, 'tokens' | 'pending'> & { readonly pending: number }

/** The checksum held, so a wrong shape is a writer of another mind, not damage; it is refused all the same. */
function parseHead(json: string): Head {
  const head = parseJson(json)
  if (!isObject(head)) throw new TokenRecordError('the head is no object')
  const { runs, text, silent, vocabulary, toolsDigest, history, pending, pendingText } = head
  if (!Array.isArray(runs) || !runs.every(isRun)) throw new TokenRecordError('the runs are not well formed')
  if (!Array.isArray(silent) || !silent.every(isCount)) throw new TokenRecordError('`silent` is not well formed')
  if (!Array.isArray(history) || !history.every(isEntry)) throw new TokenRecordError('the history is not well formed')
  if (typeof text !== 'string' || typeof pendingText !== 'string' || typeof vocabulary !== 'string'
    || typeof toolsDigest !== 'string' || !isCount(pending)) throw new TokenRecordError('a field is missing')
  return { runs, text, silent, vocabulary, toolsDigest, history, pending, pendingText }
}

function parseJson(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch (error) {
    throw new TokenRecordError('the head is no JSON', { cause: error })
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0

const isRun = (value: unknown): value is TokenRun =>
  isObject(value) && isCount(value['tokens']) && (value['origin'] === 'prefilled' || value['origin'] === 'decoded')

const isEntry = (value: unknown): value is HistoryEntry =>
  isObject(value) && typeof value['digest'] === 'string'
  && (value['committed'] === null || isMessage(value['committed']))

const isMessage = (value: unknown): value is CommittedMessage =>
  isObject(value) && typeof value['content'] === 'string' && Array.isArray(value['toolCalls'])
  && ['string', 'undefined'].includes(typeof value['reasoning'])
  && value['toolCalls'].every((call) =>
    isObject(call) && typeof call['name'] === 'string' && typeof call['arguments'] === 'string')
