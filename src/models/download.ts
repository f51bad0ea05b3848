/**
 * Owns getting bytes over HTTP: a short answer whole, or a long one into a file that a later try goes on with. Leaves
 * what the bytes are, and whether they are the right ones, to others.
 *
 * What broke off after bytes had come is tried again from where it ended; what never began is not, so that a machine
 * without a network learns it at once.
 */
import { createWriteStream } from 'node:fs'
import { rm, stat, statfs } from 'node:fs/promises'
import { dirname } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setTimeout as pause } from 'node:timers/promises'
import { ifPresent } from './cache.ts'

/** Until the answer's first line; a machine without a network learns it in this time. */
const ANSWER_MAX_MS = 5_000
/** Between two pieces of the file. */
const STALL_MAX_MS = 30_000
/** Tries in a row that bring nothing new. */
const IDLE_TRIES_MAX = 3
const PAUSE_MS = 250
/** Left free beside the file. */
const DISK_SPARE_BYTES = 64 << 20
const REASON_CHARACTERS_MAX = 300

interface Wanted {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  /** Of the whole. */
  readonly bytes: number
}

/** The other side answered, and not with what was asked for. */
export class AnswerFault extends Error {
  readonly status: number

  constructor(status: number, message: string) {
    super(message)
    this.name = 'AnswerFault'
    this.status = status
  }
}

/** The answer's text; throws where it is longer than `bytesMax`. */
export async function ask(
  url: string, headers: Readonly<Record<string, string>>, bytesMax: number, signal: AbortSignal | undefined,
): Promise<string> {
  const patience = new Patience(signal)
  try {
    const response = await open(url, headers, patience)
    const parts: Uint8Array[] = []
    let bytes = 0
    for await (const chunk of Readable.fromWeb(response.body) as AsyncIterable<Uint8Array>) {
      patience.wait(STALL_MAX_MS, `no byte came for ${STALL_MAX_MS / 1000} s`)
      bytes += chunk.length
      if (bytes > bytesMax) throw new Error(`${new URL(url).origin} answered with more than ${bytesMax} bytes`)
      parts.push(chunk)
    }
    return Buffer.concat(parts).toString('utf8')
  } finally {
    patience.end()
  }
}

/** Goes on with what `part` holds; when it resolves, `part` has `wanted.bytes`. Where it throws, `part` stays. */
export async function download(
  wanted: Wanted, part: string, signal: AbortSignal | undefined, onBytes: (bytes: number, totalBytes: number) => void,
): Promise<void> {
  let idle = 0
  let most = await sizeOf(part)
  await checkDisk(part, wanted.bytes - most)
  for (;;) {
    try {
      await attempt(wanted, part, signal, onBytes)
      return
    } catch (thrown) {
      const held = await sizeOf(part)
      idle = held > most ? 0 : idle + 1
      most = Math.max(most, held)
      signal?.throwIfAborted()
      if (held === 0 || idle >= IDLE_TRIES_MAX || !isWorthATry(thrown)) throw thrown
      await pause(PAUSE_MS * 2 ** idle, undefined, signal === undefined ? {} : { signal })
    }
  }
}

/** A full disk stays full, and a refusal is not taken back. */
function isWorthATry(thrown: unknown): boolean {
  if (thrown instanceof AnswerFault) return thrown.status >= 500 || thrown.status === 429
  return !(thrown instanceof Error && 'code' in thrown && ['ENOSPC', 'EDQUOT', 'EACCES', 'EIO'].includes(String(thrown.code)))
}

async function checkDisk(part: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(dirname(part))
  const free = bavail * bsize
  if (bytes + DISK_SPARE_BYTES <= free) return
  const mb = (count: number): string => `${Math.ceil(count / 1e6)} MB`
  throw Object.assign(new Error(`${mb(bytes)} are to come and ${dirname(part)} has ${mb(free)} left`), { code: 'ENOSPC' })
}

async function attempt(
  wanted: Wanted, part: string, signal: AbortSignal | undefined, onBytes: (bytes: number, totalBytes: number) => void,
): Promise<void> {
  const held = await sizeOf(part)
  if (held === wanted.bytes) return
  if (held > wanted.bytes) {
    await rm(part, { force: true })
    return attempt(wanted, part, signal, onBytes)
  }
  const patience = new Patience(signal)
  try {
    const range: Record<string, string> = held === 0 ? {} : { range: `bytes=${held}-` }
    const response = await open(wanted.url, { ...wanted.headers, 'accept-encoding': 'identity', ...range }, patience)
    const goesOn = response.status === 206 && response.headers.get('content-range')?.startsWith(`bytes ${held}-`) === true
    if (response.status === 206 && !goesOn) throw new Error(`it sent ${response.headers.get('content-range')} for bytes from ${held} on`)
    let bytes = goesOn ? held : 0
    const counted = async function* (source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
      for await (const chunk of source) {
        patience.wait(STALL_MAX_MS, `no byte came for ${STALL_MAX_MS / 1000} s`)
        bytes += chunk.length
        if (bytes > wanted.bytes) throw new AnswerFault(response.status, `the file is longer than its ${wanted.bytes} bytes`)
        onBytes(bytes, wanted.bytes)
        yield chunk
      }
    }
    await pipeline(Readable.fromWeb(response.body), counted, createWriteStream(part, { flags: goesOn ? 'a' : 'w' }))
    if (bytes < wanted.bytes) throw new Error(`the answer ended after ${bytes} of ${wanted.bytes} bytes`)
  } finally {
    patience.end()
  }
}

interface Answer extends Response { readonly body: NonNullable<Response['body']> }

/** An answer with a body that may begin; a redirect to another host leaves the credentials behind. */
async function open(url: string, headers: Readonly<Record<string, string>>, patience: Patience): Promise<Answer> {
  patience.wait(ANSWER_MAX_MS, `no answer within ${ANSWER_MAX_MS / 1000} s`)
  const response = await fetch(url, { headers, signal: patience.signal })
  if (!response.ok || response.body === null) {
    await response.body?.cancel()
    const why = response.headers.get('x-error-message')?.slice(0, REASON_CHARACTERS_MAX)
    const status = `${new URL(url).origin} answered ${response.status} ${response.statusText}`.trimEnd()
    throw new AnswerFault(response.status, why === undefined ? status : `${status}: ${why}`)
  }
  patience.wait(STALL_MAX_MS, `no byte came for ${STALL_MAX_MS / 1000} s`)
  return response as Answer
}

const sizeOf = async (path: string): Promise<number> => (await ifPresent(stat(path)))?.size ?? 0

/** A signal that fires when the caller's does, or when the wait named last lasts too long. */
class Patience {
  readonly signal: AbortSignal
  readonly #controller = new AbortController()
  #timer: NodeJS.Timeout | undefined

  constructor(outer: AbortSignal | undefined) {
    this.signal = outer === undefined ? this.#controller.signal : AbortSignal.any([outer, this.#controller.signal])
  }

  wait(maxMs: number, why: string): void {
    this.end()
    this.#timer = setTimeout(() => this.#controller.abort(new Error(why)), maxMs)
  }

  end(): void {
    clearTimeout(this.#timer)
  }
}
