/**
 * Owns what a deadline does to the order (seed section 19). Slack is `D - t - R`: the deadline, the time, and the service
 * that the program still needs, an interval with a confidence. A ready call is boosted to the front of its tenant, those
 * first that must start soonest, from the moment at which the long end of R no longer fits before D, until the short end
 * does not either: what is late whatever is done pushes nobody aside. R is fixed while a call waits, so both moments are
 * computed once, and the first is a timer.
 *
 * No boost below the confidence floor, nor while the predictor drifts: then the order is the policy's own with its aging,
 * and `boost.withheld` says so, once for each change of the reason.
 *
 * Bound. A boost orders calls of one tenant and band only, so what bands and tenants are promised is untouched. Inside a
 * tenant it is given while `boosted work <= share x all work + burst`, to at most `boostsOpenMax` calls at once; so at any
 * time boosted work is at most `share x all + burst + boostsOpenMax x the largest call`; where the tenant's work is all of one
 * band, a call that would start after T of it without boosts starts after at most
 * `(T + burst + boostsOpenMax x largest) / (1 - share)` with them.
 */
import { workOf } from '../account.ts'
import { must } from '../assert.ts'
import { boostAccountOf, boostOf } from './boosts.ts'
import { clearTimer, setTimer, type Deciding } from '../deciding.ts'
import { latestFinishUs, nodeOf } from '../graph/graph-read.ts'
import type { CallId } from '../ids.ts'
import { remainingOf } from '../predict/work.ts'
import type { Call } from '../state.ts'
import type { Us } from '../units.ts'

/** Service to come, as an interval; its confidence in parts per million, 0 where nothing is known or the predictor drifts. */
export interface Remaining {
  readonly lowUs: Us
  readonly highUs: Us
  readonly confidencePpm: number
  readonly drifting: boolean
}

/** Above every level that an order gives. */
const BOOSTED_LEVEL = -1

/** A call has just become ready: whether its deadline wants it in front. */
export function considerDeadline(d: Deciding, call: Call): void {
  if (d.core.config.mode === 'observe') return
  const dueUs = latestFinishUs(d.core, call)
  if (dueUs !== null) urge(d, call, dueUs, remainingOfCall(d, call))
}

/** Up to the latest finish of the call: its own part as its graph says, else what its program needs less what follows the call. */
function remainingOfCall(d: Deciding, call: Call): Remaining {
  const node = nodeOf(d.core, call)
  const ownUs = node?.serviceUs ?? null
  if (ownUs !== null) return { lowUs: ownUs, highUs: ownUs, confidencePpm: 1_000_000, drifting: false }
  const { lowUs, highUs, ...rest } = remainingOf(d.core, must(d.core.programs, call.program))
  const afterUs = node?.afterUs ?? 0
  return { lowUs: Math.max(0, lowUs - afterUs), highUs: Math.max(0, highUs - afterUs), ...rest }
}

/** The moment has come at which it must be in front. */
export function considerAgain(d: Deciding, id: CallId): void {
  const call = d.core.calls.get(id)
  if (call?.stage.kind === 'ready') considerDeadline(d, call)
}

/** `dueUs`: when its program is to be done; `remaining`: what that takes from now on. */
export function urge(d: Deciding, call: Call, dueUs: Us, remaining: Remaining): void {
  if (call.stage.kind !== 'ready' || boostOf(d.core, call) !== null) return
  const { boostConfidencePpmMin } = d.core.config
  if (remaining.drifting) return withhold(d, call, 'the predictor drifts')
  if (remaining.confidencePpm < boostConfidencePpmMin) return withhold(d, call, 'too little is known of what is left')
  const startByUs = dueUs - remaining.highUs
  if (d.nowUs < startByUs) return comeBack(d, call, startByUs)
  if (d.nowUs > dueUs - remaining.lowUs) return withhold(d, call, 'it is late whatever is done')
  if (!hasShare(d, call)) {
    comeBack(d, call, d.nowUs + d.core.config.boostRetryUs)
    return withhold(d, call, 'its tenant has no boosts left')
  }
  d.emit({ kind: 'boost.given', call: call.id, level: BOOSTED_LEVEL, tie: startByUs, slackUs: dueUs - d.nowUs - remaining.highUs })
}

const timerOf = (call: CallId): string => `slack:${call}`

/** It leaves its queue. */
export const endUrge = (d: Deciding, call: CallId): void => clearTimer(d, timerOf(call))

function comeBack(d: Deciding, call: Call, atUs: Us): void {
  const timer = timerOf(call.id)
  if ((d.core.timers.get(timer) ?? Number.MAX_SAFE_INTEGER) > atUs) setTimer(d, timer, atUs)
}

function hasShare(d: Deciding, call: Call): boolean {
  const { boostSharePpm, boostBurstUs, boostsOpenMax } = d.core.config
  const { boostedUs, open } = boostAccountOf(d.core, call.payer)
  // The payer is no tenant where the call arrived while all was only observed.
  const allUs = workOf(must(d.core.tenants, must(d.core.programs, call.program).tenant).service)
  return open < boostsOpenMax && boostedUs - boostBurstUs <= Math.floor(allUs / 1_000_000) * boostSharePpm
}

function withhold(d: Deciding, call: Call, why: string): void {
  const before = d.core.turns.boosts.get(call.id)
  if (before?.kind !== 'withheld' || before.why !== why) d.emit({ kind: 'boost.withheld', call: call.id, why })
}
