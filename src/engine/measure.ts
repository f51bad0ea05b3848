/**
 * Owns what a prompt is in tokens: which committed tokens it continues, what is tokenised anew, and the origin of every
 * token. All of it is fixed here, from the rendering and the records alone; what is resident plays no part (E1).
 *
 * A prompt that begins with a record's text is the record's tokens, then its pending tokens and the rest as given.
 * Where it does not, the rendering wins: as many whole tokens of the record as spell the beginning of the prompt, then
 * the rest as given. An echo is first brought to what was committed: arguments that are equal as JSON are the committed
 * ones.
 *
 *   tokens   record .............. | pending, rest ....
 *   origin   as in the record      | prefilled; decoded where they are fewer than `rowsMin`
 *
 * M1 a run of prefilled tokens has `rowsMin` or more, here and after every reuse: where a cut would leave fewer, more are
 *    given. So `matched` may be less than what is equal, and at least one token is always left to feed.
 * M2 a record's tokens end with whole characters where they are cut.
 * M3 what is `matched` has the origins here that it has in the record.
 */
import type { ChatCall, ChatMessage } from '../protocol/chat.ts'
import { parseCall, planCall, refusalOf } from './call-plan.ts'
import type { CallPlan, Refusal } from './call-plan.ts'
import { sameJson } from './grammar/json-text.ts'
import { TemplateError } from './template.ts'
import type { ChatTemplate, Segment } from './template.ts'
import { TokenRecordError, decodeRecord, joinRuns, messageDigest, shortDigest } from './token-record.ts'
import type { CommittedMessage, HistoryEntry, Prepared, TokenRecord, TokenRun, Tokenizer } from './token-record.ts'
import { Utf8Decoder } from './utf8.ts'

interface MeasureLimits {
  /** Most tokens a State can have: prompt and output. */
  readonly contextTokens: number
  /** Names the vocabulary (the model's digest will do): records of another are not continued. */
  readonly vocabulary: string
  /** Given tokens that are prefilled rather than decoded are at least so many (`plan.ts`); left out: two. */
  readonly rowsMin?: number
}

/** `record` is what `encodeRecord` wrote; one that is damaged is passed over and named in `renderingWon`. */
export interface OfferedRecord { readonly call: string; readonly record: Uint8Array }

/** Why no record was continued to its end. */
type RenderingWon =
  | 'damaged record' | 'other vocabulary' | 'other tools' | 'shorter history' | 'edited echo' | 'edited history'
  | 'template changed earlier text'

export type Measured =
  | {
    readonly ok: true
    readonly prepared: Prepared
    readonly promptTokens: number
    readonly matched: { readonly record: string; readonly tokens: number } | null
    readonly renderingWon: string | null
    readonly plan: CallPlan
  }
  | Refusal

/** At once; a long text takes a while. */
export function measure(
  tokenizer: Tokenizer, template: ChatTemplate, body: string, records: readonly OfferedRecord[], limits: MeasureLimits,
): Measured {
  const steps = measuring(tokenizer, template, body, records, limits)
  let step = steps.next()
  while (step.done !== true) step = steps.next(tokenizer.tokenize(step.value.text, step.value.parseSpecial))
  return step.value
}

/** Asks for the tokens of a text by yielding, so that whoever measures may find them aside. */
type Tokenising<T> = Generator<{ readonly text: string; readonly parseSpecial: boolean }, T, Int32Array>

export function* measuring(
  tokenizer: Vocabulary, template: ChatTemplate, body: string, records: readonly OfferedRecord[], limits: MeasureLimits,
): Tokenising<Measured> {
  try {
    const call = parseCall(body)
    const plan = planCall(call, template.toolUse.format)
    return yield* new Measuring(tokenizer, template, call, limits).measure(records, plan)
  } catch (error) {
    if (error instanceof TemplateError) return { ok: false, code: 'template_failed', why: error.message }
    return refusalOf(error)
  }
}

type Vocabulary = Omit<Tokenizer, 'tokenize'>

/** Of a prompt, for each token of the context: texts have 3 to 8, and only long runs of spaces come near. */
const CHARS_PER_TOKEN_MAX = 32

/** How far a prompt continues a record. */
interface Continuation {
  readonly call: string
  readonly record: TokenRecord
  readonly prompt: Prompt
  /** Leading tokens of the record that are kept. */
  readonly kept: number
  /** Characters of the prompt that they and `pending` spell. */
  readonly chars: number
  readonly pending: readonly number[]
  readonly why: RenderingWon | null
}

/** Messages as they are rendered, and the rendering. */
interface Prompt {
  readonly messages: readonly ChatMessage[]
  readonly history: readonly HistoryEntry[]
  readonly segments: readonly Segment[]
  readonly text: string
}

class Measuring {
  readonly #tokenizer: Vocabulary
  readonly #template: ChatTemplate
  readonly #call: ChatCall
  readonly #limits: Required<MeasureLimits>
  readonly #toolsDigest: string

  constructor(tokenizer: Vocabulary, template: ChatTemplate, call: ChatCall, limits: MeasureLimits) {
    this.#tokenizer = tokenizer
    this.#template = template
    this.#call = call
    this.#limits = { rowsMin: 2, ...limits }
    this.#toolsDigest = digestOf(call.tools)
  }

  *measure(records: readonly OfferedRecord[], plan: CallPlan): Tokenising<Measured> {
    // The library takes time in the square of the control tokens: what cannot fit is not shown to it.
    const { messages } = this.#call
    if (messages.length > this.#limits.contextTokens) return this.#tooLong(`${messages.length} messages`)
    const { best, why } = this.#best(records)
    const prompt = best?.prompt ?? this.#prompt([])
    if (prompt.text.length > this.#limits.contextTokens * CHARS_PER_TOKEN_MAX) return this.#tooLong(`${prompt.text.length} characters`)
    const { prepared, kept } = yield* this.#prepare(prompt, best)
    const promptTokens = prepared.tokens.length
    const { contextTokens } = this.#limits
    if (promptTokens === 0) throw new TemplateError('the chat template rendered nothing')
    if (promptTokens >= contextTokens) {
      const need = `${promptTokens} tokens of prompt and at least one of output do not fit into ${contextTokens}`
      return { ok: false, code: 'context_too_long', why: need }
    }
    const tokens = best === null ? 0 : matchedTokens(prepared, kept, this.#limits.rowsMin)
    const matched = best === null || tokens === 0 ? null : { record: best.call, tokens }
    return { ok: true, prepared, promptTokens, matched, renderingWon: why, plan }
  }

  #tooLong(what: string): Measured {
    return { ok: false, code: 'context_too_long', why: `${what} do not fit into ${this.#limits.contextTokens} tokens` }
  }

  /** The record that is continued furthest; of equals the first. */
  #best(records: readonly OfferedRecord[]): { best: Continuation | null; why: RenderingWon | null } {
    let best: Continuation | null = null
    let why: RenderingWon | null = null
    for (const offered of records) {
      const record = readRecord(offered.record)
      if (record === null || record.vocabulary !== this.#limits.vocabulary) {
        why ??= record === null ? 'damaged record' : 'other vocabulary'
        continue
      }
      const found = this.#continue(offered.call, record)
      if (best === null || found.kept > best.kept) best = found
    }
    return { best, why: best === null ? why : best.why }
  }

  #continue(call: string, record: TokenRecord): Continuation {
    const prompt = this.#prompt(record.history)
    const whole = record.text + record.pendingText
    if (prompt.text.startsWith(whole)) {
      return {
        call, record, prompt, kept: record.tokens.length, chars: whole.length, pending: record.pending, why: null,
      }
    }
    const common = commonTokens(this.#tokenizer, record, prompt.text)
    const why = this.#whyRenderingWon(record, prompt.history)
    return { call, record, prompt, kept: common.tokens, chars: common.chars, pending: [], why }
  }

  #whyRenderingWon(record: TokenRecord, history: readonly HistoryEntry[]): RenderingWon {
    if (record.toolsDigest !== this.#toolsDigest) return 'other tools'
    const changed = record.history.findIndex(({ digest }, i) => history[i]?.digest !== digest)
    if (changed === -1) return 'template changed earlier text'
    if (changed >= history.length) return 'shorter history'
    return record.history[changed]?.committed === null ? 'edited history' : 'edited echo'
  }

  #prompt(committed: readonly HistoryEntry[]): Prompt {
    const entries = this.#call.messages.map((message, i) => canonical(message, committed[i]?.committed ?? null))
    const messages = entries.map(({ message }) => message)
    const segments = this.#template.render(messages, this.#call.tools)
    return { messages, history: entries.map(({ entry }) => entry), segments, text: textOf(segments) }
  }

  /** `kept`: leading tokens that are the record's, fed as it says. */
  *#prepare(prompt: Prompt, from: Continuation | null): Tokenising<{ readonly prepared: Prepared; readonly kept: number }> {
    const rest = yield* this.#tokenise(prompt, from?.chars ?? 0)
    const record = from?.record ?? null
    const { rowsMin } = this.#limits
    const { kept, given } = settle(record, from?.kept ?? 0, [...from?.pending ?? [], ...rest], rowsMin)
    const tokens = new Int32Array(kept + given.length)
    if (record !== null) tokens.set(record.tokens.subarray(0, kept))
    tokens.set(given, kept)
    const runs = joinRuns(cutRuns(record?.runs ?? [], kept), {
      tokens: given.length, origin: given.length < rowsMin ? 'decoded' : 'prefilled',
    })
    // A pending control token was generated, so it spells nothing although it is given now.
    const silentEnd = (from?.kept ?? 0) + (from?.pending.length ?? 0)
    const prepared: Prepared = {
      tokens,
      runs,
      text: prompt.text,
      silent: (record?.silent ?? []).filter((index) => index < silentEnd),
      vocabulary: this.#limits.vocabulary,
      toolsDigest: this.#toolsDigest,
      history: prompt.history,
    }
    return { prepared, kept }
  }

  /** The prompt from character `from` on. Control tokens are read only where the template wrote them. */
  *#tokenise(prompt: Prompt, from: number): Tokenising<readonly number[]> {
    const text = prompt.text.slice(from)
    const tokens = yield { text, parseSpecial: true }
    const spelled = this.#spelledByOthers(tokens)
    // What the template itself looks for in a message (an end of reasoning, say) cannot be hidden from it.
    const hidden = spelled.filter((spelling) => this.#hide(prompt, [spelling]) !== null)
    const segments = hidden.length === 0 ? null : this.#hide(prompt, hidden)
    if (segments === null) return [...tokens]
    const parts: Int32Array[] = []
    for (const { text: part, literal } of dropChars(segments, from)) parts.push(yield { text: part, parseSpecial: !literal })
    return parts.flatMap((part) => [...part])
  }

  /** Null where the template would write another text. */
  #hide(prompt: Prompt, hidden: readonly string[]): readonly Segment[] | null {
    const segments = this.#template.render(prompt.messages, this.#call.tools, hidden)
    return textOf(segments) === prompt.text ? segments : null
  }

  /** Spellings of control tokens that were read and that occur in what users, tools or models wrote. Longest first. */
  #spelledByOthers(tokens: Int32Array): string[] {
    const control = new Set<number>()
    for (const token of tokens) if (this.#tokenizer.isControl(token)) control.add(token)
    const written = JSON.stringify([this.#call.messages, this.#call.tools])
    return [...control]
      .map((token) => Buffer.from(this.#tokenizer.piece(token, true)).toString('utf8'))
      .filter((spelling) => spelling !== '' && written.includes(JSON.stringify(spelling).slice(1, -1)))
      .sort((a, b) => b.length - a.length)
  }
}

// ---------------------------------------------------------------- echoes

interface Canonical { readonly message: ChatMessage; readonly entry: HistoryEntry }

/** The message as it is rendered: the committed one where it is its echo. */
function canonical(message: ChatMessage, committed: CommittedMessage | null): Canonical {
  const echo = committed !== null && isEcho(message, committed) ? committed : null
  const toolCalls = echo === null
    ? message.toolCalls
    : message.toolCalls.map((call, i) => ({ ...call, arguments: echo.toolCalls[i]?.arguments ?? call.arguments }))
  // Clients seldom send reasoning back, and templates know best where it is still read.
  const reasoning = message.reasoning ?? echo?.reasoning
  const rendered = { ...message, toolCalls, ...(reasoning === undefined ? {} : { reasoning }) }
  return { message: rendered, entry: { digest: messageDigest(message.role, rendered), committed: echo } }
}

const isEcho = (message: ChatMessage, committed: CommittedMessage): boolean =>
  message.role === 'assistant'
  && message.content === committed.content
  && message.toolCalls.length === committed.toolCalls.length
  && message.toolCalls.every((call, i) => {
    const own = committed.toolCalls[i]
    return own !== undefined && call.name === own.name && sameJson(call.arguments, own.arguments)
  })

// ---------------------------------------------------------------- tokens

/** Null where it is damaged. */
function readRecord(bytes: Uint8Array): TokenRecord | null {
  try {
    return decodeRecord(bytes)
  } catch (error) {
    if (error instanceof TokenRecordError) return null
    throw error
  }
}

/** The longest run of whole tokens of the record that spells the beginning of `text` (M2). */
function commonTokens(tokenizer: Vocabulary, record: TokenRecord, text: string): { tokens: number; chars: number } {
  const silent = new Set(record.silent)
  const decoder = new Utf8Decoder()
  const best = { tokens: 0, chars: 0 }
  let at = 0
  for (const [i, token] of record.tokens.entries()) {
    const spelled = silent.has(i) ? '' : decoder.push(tokenizer.piece(token, true))
    if (!text.startsWith(spelled, at)) break
    at += spelled.length
    if (!decoder.clean) continue
    best.tokens = i + 1
    best.chars = at
  }
  return best
}

interface Settled { readonly kept: number; readonly given: readonly number[] }

/** What is kept and what is given, so that no prefilled run has fewer tokens than `rowsMin` (M1). */
function settle(record: TokenRecord | null, kept: number, given: readonly number[], rowsMin: number): Settled {
  const last = cutRuns(record?.runs ?? [], kept).at(-1)
  if (record === null || last?.origin !== 'prefilled' || last.tokens >= rowsMin || given.length >= rowsMin) return { kept, given }
  const before = kept - last.tokens
  return { kept: before, given: [...record.tokens.subarray(before, kept), ...given] }
}

/** Tokens whose KV may be used again: something is left to feed, and never one of a longer prefilled run (M1). */
function matchedTokens({ tokens, runs }: Prepared, kept: number, rowsMin: number): number {
  const most = Math.min(kept, tokens.length - 1)
  let begin = 0
  for (const run of runs) {
    const end = begin + run.tokens
    if (most < end) return run.origin === 'prefilled' && most > begin ? Math.max(begin, Math.min(most, end - rowsMin)) : most
    begin = end
  }
  return most
}

function cutRuns(runs: readonly TokenRun[], tokens: number): TokenRun[] {
  let left = tokens
  return runs.flatMap((run) => {
    const taken = Math.min(left, run.tokens)
    left -= taken
    return taken === 0 ? [] : [{ tokens: taken, origin: run.origin }]
  })
}

// ---------------------------------------------------------------- text

const textOf = (segments: readonly Segment[]): string => segments.map(({ text }) => text).join('')

function dropChars(segments: readonly Segment[], chars: number): Segment[] {
  let left = chars
  return segments.flatMap((segment) => {
    const dropped = Math.min(left, segment.text.length)
    left -= dropped
    return dropped === segment.text.length ? [] : [{ ...segment, text: segment.text.slice(dropped) }]
  })
}

const digestOf = (value: unknown): string => shortDigest(JSON.stringify(value))
