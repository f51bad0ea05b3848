/**
 * Owns how a plot is played on a server: the messages of each call, made of what was said before, and what goes wrong on
 * the client's side. Every finished call is told; a call that the server's end cut off is sent again as it was.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Draw } from '../../src/eval/draw.ts'
import type { Ask, Plot } from './plot.ts'
import { act, ask, Unanswered, type Place, type Said } from './request.ts'

/** What a client does to its own program; drawn before each call. */
export type Trouble =
  /** Hangs up so long after sending, then sends the same again. */
  | { readonly kind: 'hangUp'; readonly afterMs: number }
  /** Cancels program or thread so long after sending. */
  | { readonly kind: 'cancel'; readonly afterMs: number }
  /** Never comes back. */
  | { readonly kind: 'leave' }

const TOOLS = [{ type: 'function', function: { name: 'lookup', description: 'Looks a number up.', parameters: { type: 'object', properties: { id: { type: 'integer', minimum: 0, maximum: 99 }, unit: { enum: ['mm', 'inch'] } }, required: ['id', 'unit'] } } }]
const FORM = { type: 'json_schema', json_schema: { name: 'note', strict: true, schema: { type: 'object', properties: { title: { type: 'string', maxLength: 12 }, count: { type: 'integer', minimum: 0, maximum: 9_999 }, tags: { type: 'array', items: { type: 'string', maxLength: 5 }, maxItems: 3 } }, required: ['title', 'count', 'tags'] } } }
/** Room for a forced call or a form to end. */
const HELD_TOKENS = 200
const TRIES_MAX = 600
const TRY_AGAIN_MS = 500
const AFTER_MS_MAX = 600
/** Of a million calls. */
const HANG_UPS = 80_000
const CANCELS = 20_000
const LEAVES = 15_000
const MILLION = 1_000_000

export interface Told {
  /** `part`: of the plot, by branch and number of the ask. */
  finished(plot: Plot, part: string, said: Said): void
  troubled(kind: Trouble['kind']): void
  /** A request ended with this code; true where the server's end explains it, and it is sent again. */
  mayBeCut(code: string): boolean
}

interface Thread {
  readonly plot: Plot
  readonly place: Place
  readonly model: string
  /** Null: a session and no program. */
  readonly program: string | null
  readonly name: string
  readonly messages: object[]
  readonly draw: Draw | null
  readonly told: Told
}

/** Nobody goes on with it: the client cancelled it, or left. */
class Over extends Error {}

/** `draw`: null for a play without trouble, in which branches go one after another, each behind the asks in a program of its own. */
export async function play(plot: Plot, place: Place, model: string, id: string, draw: Draw | null, told: Told): Promise<void> {
  const thread = (program: string | null, name: string): Thread =>
    ({ plot, place, model, program, name, messages: [{ role: 'system', content: plot.opening }], draw, told })
  try {
    if (plot.shape === 'chat') return await converse(thread(null, id), 'main', plot.asks)
    if (draw === null) return await playAlone(plot, id, thread)
    const main = thread(id, 'main')
    await converse(main, 'main', plot.asks)
    if (plot.branches.length > 0) await playBranches(plot, main)
    await acted(main, 'POST', '/finish', null, ['program_ended'])
  } catch (error) {
    if (!(error instanceof Over)) throw error
  }
}

async function playAlone(plot: Plot, id: string, thread: (program: string, name: string) => Thread): Promise<void> {
  if (plot.branches.length === 0) return await converse(thread(id, 'main'), 'main', plot.asks)
  for (const [at, branch] of plot.branches.entries()) {
    const alone = thread(`${id}-${at}`, 'main')
    await converse(alone, 'main', plot.asks)
    await converse(alone, `branch ${at}`, branch)
  }
}

async function playBranches(plot: Plot, main: Thread): Promise<void> {
  const forks = plot.branches.map((_, at) => ({ thread: `branch-${at}`, from: 'main' }))
  await acted(main, 'POST', '/graph', { forks }, [])
  const outcomes = await Promise.allSettled(plot.branches.map((branch, at) =>
    converse({ ...main, name: `branch-${at}`, messages: [...main.messages] }, `branch ${at}`, branch)))
  for (const outcome of outcomes) {
    // A branch that was cancelled alone takes nothing with it.
    if (outcome.status === 'rejected' && !(outcome.reason instanceof Over && outcome.reason.message === 'thread')) throw outcome.reason
  }
}

// ---------------------------------------------------------------- calls

async function converse(thread: Thread, part: string, asks: readonly Ask[]): Promise<void> {
  for (const [at, next] of asks.entries()) {
    const last = thread.messages.at(-1) as { readonly role: string; readonly tool_calls?: readonly { readonly id: string }[] }
    if (last.tool_calls === undefined) thread.messages.push({ role: 'user', content: next.say })
    else thread.messages.push(...last.tool_calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content: next.say })))
    const trouble = thread.draw === null ? null : troubleOf(thread.draw)
    if (trouble !== null) thread.told.troubled(trouble.kind)
    const { said, over } = await call(thread, next, trouble)
    if (said !== null) thread.told.finished(thread.plot, `${part}/${at}`, said)
    if (said === null || over !== null) throw new Over(over ?? '')
    thread.messages.push({ role: 'assistant', content: said.text === '' && said.toolCalls.length > 0 ? null : said.text, ...(said.toolCalls.length > 0 ? { tool_calls: said.toolCalls } : {}) })
    if (thread.draw !== null) await sleep(next.waitMs)
  }
}

/** What was said, where it was; and why nobody goes on, where nobody does. */
async function call(thread: Thread, next: Ask, trouble: Trouble | null): Promise<{ readonly said: Said | null; readonly over: string | null }> {
  const body = bodyOf(thread, next)
  const headers: Record<string, string> = thread.program === null ? { 'x-session-id': thread.name } : { 'x-program-id': thread.program, 'x-program-thread-id': thread.name }
  const send = (signal: AbortSignal | null): Promise<Said> => ask(thread.place, headers, body, signal)
  const whole = (): Promise<Said> => again(() => send(null), thread.told)
  if (trouble === null) return { said: await whole(), over: null }
  if (trouble.kind === 'leave') return { said: await whole(), over: 'left' }
  if (trouble.kind === 'hangUp') return { said: await hungUp(send, trouble.afterMs) ?? await whole(), over: null }
  const cancelled = cancelLater(thread, trouble.afterMs)
  const said = await whole().catch((error: unknown) => {
    if (error instanceof Unanswered && CANCELLED.has(error.code)) return null
    throw error
  })
  return { said, over: await cancelled }
}

/** Null: it was cut off, by us or by the server's end. */
async function hungUp(send: (signal: AbortSignal) => Promise<Said>, afterMs: number): Promise<Said | null> {
  const hangUp = new AbortController()
  const timer = setTimeout(() => hangUp.abort(), afterMs)
  try {
    return await send(hangUp.signal)
  } catch (error) {
    if (error instanceof Unanswered && (error.code === 'left' || CUT.has(error.code))) return null
    throw error
  } finally {
    clearTimeout(timer)
  }
}

const CANCELLED: ReadonlySet<string> = new Set(['cancelled', 'program_cancelled', 'thread_cancelled', 'parent_failed'])

/** A branch alone, or the whole program; says which. A session has nothing to cancel: its client just leaves. */
async function cancelLater(thread: Thread, afterMs: number): Promise<string> {
  if (thread.program === null) return 'left'
  await sleep(afterMs)
  const isBranch = thread.name !== 'main'
  await acted(thread, 'DELETE', isBranch ? `/threads/${thread.name}` : '', null, ['unknown_thread', 'unknown_program', 'program_ended', 'program_cancelled'])
  return isBranch ? 'thread' : 'program'
}

/** `fine`: codes of errors that are an answer too. */
async function acted({ place, program, told }: Thread, method: 'POST' | 'DELETE', path: string, body: object | null, fine: readonly string[]): Promise<void> {
  await again(async () => {
    try {
      await act(place, method, `/v1/programs/${program ?? ''}${path}`, body)
    } catch (error) {
      if (!(error instanceof Unanswered && fine.includes(error.code))) throw error
    }
  }, told)
}

function bodyOf({ model, messages }: Thread, { form, outputTokens, temperature, seed }: Ask): object {
  const held = form === 'text' ? outputTokens : HELD_TOKENS
  return {
    model, messages, max_tokens: held, temperature, seed,
    ...(form === 'tool' ? { tools: TOOLS, tool_choice: 'required' } : {}),
    ...(form === 'json' ? { response_format: FORM } : {}),
  }
}

/** Until it is answered. */
async function again<T>(send: () => Promise<T>, told: Told): Promise<T> {
  for (let tried = 1; ; tried += 1) {
    try {
      return await send()
    } catch (error) {
      if (!(error instanceof Unanswered) || !CUT.has(error.code) || tried === TRIES_MAX || !told.mayBeCut(error.code)) throw error
      await sleep(TRY_AGAIN_MS)
    }
  }
}

/** The server was gone, or was not all there yet. */
const CUT: ReadonlySet<string> = new Set(['lost', 'shutting_down', 'model_not_found', 'engine_unavailable'])

function troubleOf(draw: Draw): Trouble | null {
  const at = draw.below(MILLION)
  const afterMs = draw.below(AFTER_MS_MAX)
  if (at < HANG_UPS) return { kind: 'hangUp', afterMs }
  if (at < HANG_UPS + CANCELS) return { kind: 'cancel', afterMs }
  return at < HANG_UPS + CANCELS + LEAVES ? { kind: 'leave' } : null
}
