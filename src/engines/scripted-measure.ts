/** Owns the scripted engine's sizing of a call: its tokens, and which record of the thread they continue, how far. */
import type { CallId } from '../core/ids.ts'
import type { Tokens } from '../core/units.ts'
import type { Measurement, MeasureRequest } from '../driver/ports.ts'
import type { ChatCall } from '../protocol/chat.ts'
import { estimateTokens, readChatCall } from './chat-body.ts'
import { cutRuns, promptTokensOf, readRecord, sumOf, writeRecord, type TokenRecord } from './script.ts'
import type { Script } from './script-file.ts'

export function measured(script: Script, { body, records }: MeasureRequest): Measurement {
  const chat = readChatCall(body)
  if (chat === null) return { ok: false, code: 'invalid_request', why: 'the body is no chat call' }
  const { tokens } = asPrefilled(chat)
  const promptTokens = script.tokenise ? tokens.length : estimateTokens(body)
  if (promptTokens >= script.contextTokens) {
    const why = `the prompt has ${promptTokens} tokens and the context ${script.contextTokens}`
    return { ok: false, code: 'context_too_long', why }
  }
  if (!script.tokenise) return { ok: true, prepared: new Uint8Array(), promptTokens, matched: null, renderingWon: null }
  const best = bestOf(tokens, records)
  const reused = best === null ? [] : cutRuns(best.of.fed, best.tokens)
  const rest = { tokens: tokens.length - sumOf(reused), origin: 'prefilled' } as const
  const couldBe = best === null ? 0 : Math.min(sumOf(best.of.fed), tokens.length - 1)
  const edited = best !== null && best.tokens >= best.of.promptTokens && best.tokens < couldBe
  return {
    ok: true,
    prepared: writeRecord({ tokens, promptTokens: tokens.length, fed: cutRuns([...reused, rest], tokens.length) }),
    promptTokens: tokens.length,
    matched: best === null ? null : { record: best.record, tokens: best.tokens },
    renderingWon: edited ? `the echo differs from what was generated at token ${best.tokens}` : null,
  }
}

/** The whole prompt as given, nothing of it known from before. */
export function asPrefilled(chat: ChatCall): TokenRecord {
  const tokens = promptTokensOf(chat)
  return { tokens, promptTokens: tokens.length, fed: [{ tokens: tokens.length, origin: 'prefilled' }] }
}

interface Match { readonly record: CallId; readonly tokens: Tokens; readonly of: TokenRecord }

/** At least one token is left to feed, so that there is something to go on from. */
function bestOf(tokens: readonly number[], records: MeasureRequest['records']): Match | null {
  let best: Match | null = null
  for (const { call, record } of records) {
    const of = readRecord(record)
    const common = Math.min(commonPrefix(tokens, of.tokens), sumOf(of.fed), tokens.length - 1)
    if (common > (best?.tokens ?? 0)) best = { record: call, tokens: common, of }
  }
  return best
}

function commonPrefix(a: readonly number[], b: readonly number[]): Tokens {
  const different = a.findIndex((id, index) => id !== b[index])
  return different < 0 ? a.length : different
}
