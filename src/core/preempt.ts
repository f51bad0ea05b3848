/**
 * Owns who gives up its place while it runs, and for whom. The engine does it: a pause, by the standing orders. Rules, all
 * of which must hold:
 *
 *   who      the worst of the running calls that may still give way and whose place the ready one may take: inside a share
 *            as the order says; of another band or tenant, one that is ahead of its share by more than `preemptGapUs`,
 *            and of a worse band, one that is ahead at all; a boosted call only by a boosted one, and never the other
 *            way round by a tie of another scale
 *   gain     the time until it would end by itself, less what taking its State away costs, is at least `preemptGainUs`
 *   budget   a call gives way `preemptionsMax` times at most, and after one of its calls did, a program is left alone for
 *            `preemptionRestUs`: two that are about as good never push each other to and fro
 *   one      at a time on an engine
 *
 * Outside of all budgets is `giveUpWorst`: where no running call can grow, one must go.
 */
import { must } from './assert.ts'
import { discardCost } from './kv/cost.ts'
import type { Deciding } from './deciding.ts'
import { giveWayCost } from './kv/kv.ts'
import { stateOf, stateTokens } from './kv/kv-read.ts'
import { orderOf } from './policy/orders.ts'
import { aheadOf, compareCalls, gapBefore } from './queue/queue.ts'
import type { Call, Engine } from './state.ts'
import type { Us } from './units.ts'

/** `later`: told when time alone will allow what is not allowed now. */
export function preemptFor(d: Deciding, call: Call, engine: Engine, later: (atUs: Us) => void): void {
  if (!engine.capabilities.preempt || engine.pausing.size > 0) return
  const worst = worstOf(d, engine, (running) => running.preemptions < d.core.config.preemptionsMax && mayTakePlace(d, call, running))
  if (worst === null) return
  const gainUs = gainOf(d, worst, engine)
  if (gainUs === null || gainUs < Math.max(1, d.core.config.preemptGainUs)) return
  const restsUntilUs = d.core.turns.resting.get(worst.program) ?? 0
  if (restsUntilUs > d.nowUs) return later(restsUntilUs)
  preempt(d, worst, engine, call, gainUs, 'a better call has no memory')
}

/** All memory is held by calls that run and cannot grow: whatever the order says, the worst of them must go. */
export function giveUpWorst(d: Deciding, by: Call, engine: Engine): void {
  if (!engine.capabilities.preempt || engine.running.size < 2) return
  const worst = worstOf(d, engine, () => true)
  if (worst?.stage.kind === 'running') preempt(d, worst, engine, by, gainOf(d, worst, engine) ?? 0, 'no running call can grow')
}

function preempt(d: Deciding, worst: Call, engine: Engine, by: Call, gainUs: Us, why: string): void {
  const restsUntilUs = d.nowUs + d.core.config.preemptionRestUs
  d.emit({ kind: 'call.preempted', call: worst.id, engine: engine.id, by: by.id, gainUs, restsUntilUs, why })
}

function mayTakePlace(d: Deciding, ready: Call, running: Call): boolean {
  const ahead = aheadOf(d.core, running, ready)
  if (ahead !== null) return ahead > gapBefore(d.core, running.band, ready.band)
  // Ties of boosts are times, not those of the order.
  return ready.level < 0 || running.level < 0 ? ready.level < running.level : orderOf(d.core).preempts(ready, running)
}

function worstOf(d: Deciding, engine: Engine, may: (running: Call) => boolean): Call | null {
  let worst: Call | null = null
  for (const id of engine.running) {
    const call = must(d.core.calls, id)
    if ((worst === null || compareCalls(worst, call) < 0) && may(call)) worst = call
  }
  return worst
}

/**
 * What is won by not waiting for it to end, less what taking its State away costs: a copy where host has room; feeding it
 * again where not, or where it is being fed again just now and would be left half done. Null: it has no State.
 */
function gainOf(d: Deciding, call: Call, engine: Engine): Us | null {
  const state = stateOf(d.core, call)
  if (state === null) return null
  const halfDone = call.recomputeDone < call.recomputeDue
  return remainingUs(d, call, engine) - (halfDone ? discardCost(d.core, state, engine, 1_000_000) : giveWayCost(d, state, engine))
}

/** At most: as if it generated all it may within its grant. */
function remainingUs(d: Deciding, call: Call, engine: Engine): Us {
  const { prefillNsPerToken, decodeBaseNs, decodeRowNs } = engine.speeds
  const state = stateOf(d.core, call)
  const prefillTokens = Math.max(0, call.promptTokens - (state === null ? 0 : stateTokens(state)))
  const outputTokens = Math.min(call.maxTokens, call.outputTokens + d.core.config.grantTokens) - call.outputTokens
  return Math.round((prefillTokens * prefillNsPerToken + outputTokens * (decodeBaseNs + decodeRowNs * engine.running.size)) / 1_000)
}
