/**
 * Owns the sizing of a call as an engine's tokenizer does it, and the oracle that knows from then on what the call must
 * say, whatever is done to its State: tokens are a function of (seed, choice, place, and the digest of tokens and origins
 * before), and all of these are fixed when the call is measured (E1). Keeps invariants 4 and 10 where it is asked.
 */
import type { CallId } from '../core/ids.ts'
import type { Tokens } from '../core/units.ts'
import type { Measurement, MeasureRequest } from '../driver/ports.ts'
import type { CallRecord, Prompt } from './attempt.ts'
import { addRun, commonTokens, cutRuns, digestOf, fedDigest, sampled, tokensOf, type Piece, type Run, type Texts } from './content.ts'
import type { Tool } from './tool.ts'

/** What a client sends: the conversation, and what its model would do next. */
export interface Body {
  readonly pieces: readonly Piece[]
  readonly says: Tokens
  readonly then: 'tool' | 'end'
  readonly tool: Tool
  readonly seed: number
}

export function measured(texts: Texts, oracle: Oracle, contextTokens: Tokens, { call, body, records }: MeasureRequest): Measurement {
  const { pieces, says, then, tool, seed } = JSON.parse(body) as Body
  const promptTokens = tokensOf(pieces)
  if (promptTokens >= contextTokens) {
    return { ok: false, code: 'context_too_long', why: `the prompt has ${promptTokens} tokens and the context ${contextTokens}` }
  }
  let matched: { record: CallId; tokens: Tokens; fed: readonly Run[] } | null = null
  for (const { call: record, record: bytes } of records) {
    const kept = JSON.parse(Buffer.from(bytes).toString('utf8')) as CallRecord
    const tokens = Math.min(commonTokens(texts, pieces, kept.pieces), tokensOf(kept.fed), promptTokens - 1)
    if (tokens > (matched?.tokens ?? 0)) matched = { record, tokens, fed: kept.fed }
  }
  const runs = matched === null ? [] : cutRuns(matched.fed, matched.tokens)
  addRun(runs, 'prefilled', promptTokens - tokensOf(runs))
  oracle.measured(call, seed, pieces, runs)
  const prompt: Prompt = { pieces, runs, says, then, tool }
  return {
    ok: true, prepared: Buffer.from(JSON.stringify(prompt)), promptTokens, renderingWon: null,
    matched: matched === null ? null : { record: matched.record, tokens: matched.tokens },
  }
}

interface Known { readonly seed: number; readonly outputs: number[]; digest: number; plain: boolean }

export class Oracle {
  /** Tokens that were compared with the undisturbed run's. */
  compared = 0
  readonly #texts: Texts
  readonly #calls = new Map<CallId, Known>()
  readonly #isOn: boolean

  constructor(texts: Texts, isOn: boolean) {
    this.#texts = texts
    this.#isOn = isOn
  }

  /** Measured again, as after a restart, it may have said something of its own already. */
  measured(call: CallId, seed: number, pieces: readonly Piece[], runs: readonly Run[]): void {
    if (!this.#isOn) return
    const plain = this.#calls.get(call)?.plain ?? false
    this.#calls.set(call, { seed, outputs: [], digest: digestOf(this.#texts, pieces, runs), plain })
  }

  /** It is fed again otherwise than before, with leave: what it says from here on is its own. */
  plain(call: CallId): void {
    const known = this.#calls.get(call)
    if (known !== undefined) known.plain = true
  }

  /** What is wrong with `token` at `place` of what the call says; null: nothing, or nothing that can be known. */
  wrong(call: CallId, place: Tokens, token: number): string | null {
    const known = this.#calls.get(call)
    if (known === undefined || known.plain) return null
    while (known.outputs.length <= place) {
      const next = sampled(known.seed, known.outputs.length, known.digest)
      known.outputs.push(next)
      known.digest = fedDigest(known.digest, next, 'decoded')
    }
    this.compared += 1
    return known.outputs[place] === token ? null
      : `${call} said ${token} at ${place} of its output, and undisturbed it would say ${known.outputs[place] ?? 'nothing'}`
  }
}
