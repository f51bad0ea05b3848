/**
 * Owns the fields of a chat completion request that change which token comes next, or say how likely it was: penalties,
 * `logit_bias`, `logprobs`, and the extension fields `repetition_penalty`, `min_tokens`, `ignore_eos` and
 * `stop_token_ids`, by the names that other engines have for them. Which tokens there are, the engine knows.
 */
import { z } from 'zod'
import type { ChatCall, TokenRules } from './chat.ts'
import type { Refuse } from './errors.ts'

const TOP_LOGPROBS_MAX = 20
const BIASES_MAX = 1_024
const STOP_TOKENS_MAX = 128

const penalty = z.number().min(-2).max(2).nullish()
const token = z.int().min(0).max(2 ** 31 - 1)
const bias = z.record(z.string().regex(/^\d{1,10}$/, 'expected the id of a token'), z.number().min(-100).max(100))

export const tokenFields = {
  logprobs: z.boolean().nullish(),
  top_logprobs: z.int().min(0).max(TOP_LOGPROBS_MAX).nullish(),
  logit_bias: bias.refine((all) => Object.keys(all).length <= BIASES_MAX, `expected at most ${BIASES_MAX}`).nullish(),
  presence_penalty: penalty,
  frequency_penalty: penalty,
  repetition_penalty: z.number().gt(0).max(10).nullish(),
  min_tokens: z.int().min(0).nullish(),
  ignore_eos: z.boolean().nullish(),
  stop_token_ids: z.array(token).max(STOP_TOKENS_MAX).nullish(),
}

type Fields = z.output<z.ZodObject<typeof tokenFields>>
/** What of the call these fields must agree with. */
type Beside = Pick<ChatCall, 'toolChoice' | 'format' | 'maxTokens'>

/** Null: they are not asked for. */
export function topLogprobsOf(from: Fields, refuse: Refuse): number | null {
  const top = from.top_logprobs ?? 0
  if (from.logprobs === true) return top
  if (top > 0) refuse('invalid_request', '"top_logprobs" is set and "logprobs" is not true', 'top_logprobs')
  return null
}

/** Null: none of them changes anything. */
export function tokenRulesOf(from: Fields, beside: Beside, refuse: Refuse): TokenRules | null {
  const rules: TokenRules = {
    presencePenalty: from.presence_penalty ?? 0,
    frequencyPenalty: from.frequency_penalty ?? 0,
    repetitionPenalty: from.repetition_penalty ?? 1,
    bias: Object.entries(from.logit_bias ?? {}).map(([id, by]) => [Number(id), by] as const),
    minTokens: from.min_tokens ?? 0,
    ignoreEos: from.ignore_eos ?? false,
    stopTokens: from.stop_token_ids ?? [],
  }
  checkEnd(rules, beside, refuse)
  const { presencePenalty, frequencyPenalty, repetitionPenalty } = rules
  const isOff = presencePenalty === 0 && frequencyPenalty === 0 && repetitionPenalty === 1 && rules.bias.length === 0
    && rules.minTokens === 0 && !rules.ignoreEos && rules.stopTokens.length === 0
  return isOff ? null : rules
}

/** A grammar says where the text ends; nothing else can. */
function checkEnd({ minTokens, ignoreEos }: TokenRules, { toolChoice, format, maxTokens }: Beside, refuse: Refuse): void {
  if (maxTokens !== null && minTokens > maxTokens) {
    refuse('invalid_request', `"min_tokens" is ${minTokens}, and at most ${maxTokens} may come`, 'min_tokens')
  }
  const isHeld = format !== undefined || (toolChoice !== 'none' && toolChoice !== 'auto')
  const field = ignoreEos ? 'ignore_eos' : minTokens > 0 ? 'min_tokens' : null
  if (!isHeld || field === null) return
  refuse('unsupported_parameter', `"${field}" stands beside a form of the answer, which says itself where it ends`, field)
}
