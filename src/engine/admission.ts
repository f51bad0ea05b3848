/**
 * Owns what turns a start into a sequence: its body and prompt checked, a lane for its State, and that lane cut to the
 * tokens that may be kept. Where the lane holds less than the control plane thought, or something else, the rest is
 * simply fed: the plan has every token, and the result is the same.
 */
import { planOf } from './call-plan.ts'
import type { CallPlan } from './call-plan.ts'
import { Fed } from './fed.ts'
import type { Grammars } from './grammar/grammars.ts'
import { GrammarError } from './grammar/schema-error.ts'
import type { TokenGrammar } from './grammar/token-grammar.ts'
import { openedCallsGrammar } from './grammar/tool-call-grammar.ts'
import { heldTokens } from './lanes.ts'
import type { Lane, Lanes } from './lanes.ts'
import { LazyGrammar } from './lazy-grammar.ts'
import { prefillRowsMin } from './llama/attention.ts'
import type { Llama } from './llama/llama.ts'
import { OutputPipeline } from './output.ts'
import type { OutputOptions } from './output.ts'
import { Plan } from './plan.ts'
import { opensReasoning } from './reasoning.ts'
import type { Sampler } from './sampler.ts'
import { Sequence } from './sequence.ts'
import type { StartRequest } from './sequence.ts'
import type { ChatTemplate } from './template.ts'
import { TokenRecordError, decodePrepared } from './token-record.ts'
import type { Prepared } from './token-record.ts'
import { LogitChanges, unknownToken } from './token-rules.ts'

export interface AdmissionHost {
  readonly llama: Llama
  readonly grammars: Grammars
  readonly template: ChatTemplate
  readonly lanes: Lanes
  readonly sampler: Sampler
  readonly modelDigest: string
  readonly contextTokens: number
  readonly nowUs: () => number
}

type Admitted =
  | { readonly ok: true; readonly sequence: Sequence }
  | { readonly ok: false; readonly why: string; readonly retryable: boolean }

export function admit(host: AdmissionHost, start: StartRequest, preparedBytes: Uint8Array): Admitted {
  const read = readPrepared(preparedBytes)
  if (typeof read === 'string') return refuse(`the prompt as measured cannot be read: ${read}`)
  const wrong = wrongStart(host, start, read)
  if (wrong !== null) return refuse(wrong)
  const planned = planOf(start.body, host.template.toolUse.format)
  if (!planned.ok) return refuse(planned.why)
  const { sampling, choice, tokenRules, topLogprobs, stops, callsTools, toolFormat, tools, grammar: gbnf } = planned.plan
  const grammar = gbnf === null ? null : readGrammar(host.grammars, gbnf)
  if (typeof grammar === 'string') return refuse(grammar)

  const lane = host.lanes.find(start.state) ?? (host.lanes.canTake(start.state) ? host.lanes.take(start.state, start.tenant) : null)
  if (lane === null || lane.content.kind === 'arriving') {
    return { ok: false, why: lane === null ? 'no lane is free' : 'its State is still on its way in', retryable: true }
  }
  if (lane.tenant !== start.tenant) return refuse('its State belongs to another tenant')
  const stopTokens = new Set(tokenRules?.stopTokens)
  const isEnd = (token: number): boolean => stopTokens.has(token) || host.llama.isEog(token)
  const held = keepable(lane, start, read.tokens)
  const rowsMin = prefillRowsMin(host.llama.info.flashAttention)
  const planFrom = (kept: number): Plan => new Plan(read.tokens, read.runs, start.forced, kept, start.replay === 'plain', rowsMin)
  const wanted = planFrom(held)
  const plan = heldTokens(lane) > wanted.begin && !host.llama.cutsAt(lane.index, wanted.begin) ? planFrom(0) : wanted
  const output = new OutputPipeline({
    tokenizer: host.llama, isEnd, stops, callsTools, toolFormat, tools,
    reasoning: gbnf === null ? reasoningIn(host.template, read.text) : null,
  })
  const sequence = new Sequence({
    start, lane, plan, output, sampling, choice, topLogprobs, prepared: read,
    grammar: grammar ?? grammarOnceOpened(host, planned.plan, output),
    changes: tokenRules === null ? null : new LogitChanges(tokenRules, read.tokens, host.llama.eogTokens),
    spell: (token) => host.llama.piece(token, true),
    sampler: host.sampler,
    fed: cutTo(host.llama, lane, plan),
    isEog: isEnd,
    contextTokens: host.contextTokens,
    startedUs: host.nowUs(),
  })
  return { ok: true, sequence }
}

function grammarOnceOpened({ llama, grammars }: AdmissionHost, { opened, tools }: CallPlan, output: OutputPipeline): LazyGrammar | null {
  if (opened === null) return null
  return new LazyGrammar({
    make: () => {
      const gbnf = openedCallsGrammar(tools, opened)
      const grammar = gbnf === null ? null : readGrammar(grammars, gbnf)
      return typeof grammar === 'string' ? null : grammar
    },
    tokenize: (text) => llama.tokenize(text, false),
    opened: () => output.openCall,
  })
}

/** What a grammar holds from its first token on leaves no room for reasoning; all else may begin with it. */
function reasoningIn({ reasoning }: ChatTemplate, prompt: string): NonNullable<OutputOptions['reasoning']> | null {
  return reasoning === null ? null : { tags: reasoning, opened: opensReasoning(reasoning, prompt) }
}

const refuse = (why: string): Admitted => ({ ok: false, why, retryable: false })

function readPrepared(bytes: Uint8Array): Prepared | string {
  try {
    return decodePrepared(bytes)
  } catch (error) {
    if (error instanceof TokenRecordError) return error.message
    throw error
  }
}

/** What of a plan this model cannot do, as the code and the clause of an error; null where it can do all. */
export function planFault(llama: Llama, grammars: Grammars, plan: CallPlan): { readonly code: string; readonly why: string } | null {
  const unknown = plan.tokenRules === null ? null : unknownToken(plan.tokenRules, llama.info.vocabSize)
  if (unknown !== null) return { code: 'unknown_token', why: `${unknown} is named, and it has ${llama.info.vocabSize}` }
  const why = plan.grammar === null ? null : grammarFault(grammars, plan.grammar)
  return why === null ? null : { code: plan.grammarIsOwn ? 'invalid_grammar' : 'unsupported_schema', why }
}

/** Why a grammar cannot be used; null where it can. */
function grammarFault(grammars: Grammars, gbnf: string): string | null {
  const grammar = readGrammar(grammars, gbnf)
  return typeof grammar === 'string' ? grammar : null
}

function readGrammar(grammars: Grammars, gbnf: string): TokenGrammar | string {
  try {
    return grammars.begin(gbnf)
  } catch (error) {
    if (error instanceof GrammarError) return error.message
    throw error
  }
}

function wrongStart(host: AdmissionHost, start: StartRequest, prepared: Prepared): string | null {
  const { tokens, vocabulary } = prepared
  const { vocabSize } = host.llama.info
  if (vocabulary !== host.modelDigest) return 'the prompt was measured with another model'
  if (tokens.length === 0) return 'the prompt is empty'
  const size = `the prompt has ${tokens.length} tokens`
  if (tokens.length + start.forced.length > host.contextTokens + 1) {
    return `${size}, ${start.forced.length} were shown, and a State holds ${host.contextTokens}`
  }
  if (start.baseTokens > tokens.length) return `${size} and continues ${start.baseTokens}`
  const known = (token: number): boolean => token >= 0 && token < vocabSize
  return tokens.every(known) && start.forced.every(known) ? null : 'a token is not in the vocabulary'
}

/** Leading tokens of the lane that the plan has too, at most as many as the control plane knows of. */
function keepable(lane: Lane, start: StartRequest, prompt: Int32Array): number {
  const { content } = lane
  const held = content.kind === 'fed' ? content.fed.matching([...prompt, ...start.forced]) : heldTokens(lane)
  return Math.min(start.keepTokens, held)
}

function cutTo(llama: Llama, lane: Lane, plan: Plan): Fed {
  if (heldTokens(lane) > plan.begin) llama.cut(lane.index, plan.begin)
  if (lane.content.kind === 'fed') {
    lane.content.fed.cut(plan.begin)
    return lane.content.fed
  }
  const fed = new Fed()
  for (let position = 0; position < plan.begin; position++) fed.push(plan.tokens[position] ?? 0, plan.origin(position))
  lane.content = { kind: 'fed', fed }
  return fed
}
