/** Owns what the control plane is told of an attempt: counters as totals, and at the end what stays in the State. */
import type { EngineEvent, WireReport } from '../protocol/engine.ts'
import type { OutputEnd } from './output.ts'
import type { Sequence } from './sequence.ts'
import { encodeRecord, recordOf } from './token-record.ts'

type Finished = Extract<EngineEvent, { kind: 'finished' }>

export const attemptOf = ({ start }: Sequence): Pick<Finished, 'call' | 'attempt' | 'epoch'> =>
  ({ call: start.call, attempt: start.attempt, epoch: start.epoch })

export function reportOf(sequence: Sequence): WireReport {
  const tail = sequence.fed.counts(sequence.start.baseTokens)
  return {
    ...sequence.account.service(),
    tailPrefilled: tail.prefilled,
    tailDecoded: tail.decoded,
    outputTokens: sequence.outputs.length,
    recomputedTokens: sequence.account.redoneTokens,
    computedTokens: sequence.account.computedTokens,
    reusedTokens: sequence.account.reusedTokens,
  }
}

/** The last word on an attempt; its lane is cut to what is kept before this is called. */
export function finishedOf(
  sequence: Sequence, end: OutputEnd, exact: boolean, nowUs: number,
): { readonly event: Finished; readonly record: Uint8Array } {
  const { start, plan, fed, prepared, outputs } = sequence
  // The rest was fed, in this run or in one before, or came out of another lane.
  const kept = Math.min(plan.begin, start.baseTokens)
  const record = recordOf(prepared, outputs, fed.length - plan.promptTokens, end)
  return {
    record: encodeRecord(record),
    event: {
      kind: 'finished',
      ...attemptOf(sequence),
      finish: end.finish,
      report: reportOf(sequence),
      parts: sequence.account.parts(nowUs),
      spans: fed.spans(start.baseTokens),
      toolCalls: end.toolCalls.map(({ name }) => ({ name })),
      resume: resumeOf(sequence, exact),
      promptTokens: plan.promptTokens,
      outputTokens: outputs.length,
      cachedTokens: kept + fed.copied(kept, plan.promptTokens),
    },
  }
}

/** How what was there before came back; an engine not known to be exact recomputes, whatever it replays. */
function resumeOf({ start, plan, account }: Sequence, exact: boolean): Finished['resume'] {
  const isShownFedAgain = start.forced.length > 0 && plan.begin < plan.tokens.length
  if (account.redoneTokens + account.restoredTokens > 0 || isShownFedAgain) return exact && !plan.deviates ? 'exact' : 'recomputed'
  return start.baseTokens > 0 || start.forced.length > 0 ? 'exact' : 'none'
}
