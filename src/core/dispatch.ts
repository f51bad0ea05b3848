/**
 * Owns the scheduling cycle: for each model the ready calls, best first, each placed where there is memory for it. Where
 * there is none, somebody gives way: first what is idle, cheapest regret first, so that a ready call is never stuck
 * behind a waiting one; then, if the order says so, a running call. What is being freed for a call is kept for it: a
 * worse call may pass only with memory it already has. Then the standing orders, where they changed; the spare lane of
 * an engine whose granule is a lane is the one of its worst running call, whose order lets it be offloaded.
 */
import { must } from './assert.ts'
import type { Deciding } from './deciding.ts'
import { discardCost } from './cost.ts'
import type { EngineId } from './ids.ts'
import { discardDevice, giveWay, giveWayCost, type MayLose } from './kv.ts'
import { callWaitingOn, granulesFor, granulesFree, granulesLeaving, granulesTotal, stateOf, stateTokens } from './kv-read.ts'
import { carryOut, placementFor } from './placement.ts'
import { orderOf } from './orders.ts'
import { residencyOf } from './residencies.ts'
import { compareCalls } from './queue.ts'
import type { Call, Engine, StandingOrder } from './state.ts'
import type { Granules, Us } from './units.ts'

export function dispatch(d: Deciding): void {
  for (const engine of d.core.engines.values()) growGrants(d, engine)
  for (const queue of [...d.core.queues.values()]) {
    const wanted = new Map<EngineId, Granules>()
    let passed = 0
    for (const id of [...queue]) {
      if (passed > d.core.config.dispatchWindow) break
      const call = must(d.core.calls, id)
      if (call.stage.kind === 'ready' && !tryRun(d, call, wanted)) passed += 1
    }
  }
  for (const engine of d.core.engines.values()) giveOrders(d, engine)
}

/** True where the call went on its way. */
function tryRun(d: Deciding, call: Call, wanted: Map<EngineId, Granules>): boolean {
  const state = stateOf(d.core, call)
  if (state?.residence.kind === 'moving') return false
  const placed = placementFor(d, call, state, wanted)
  if (placed === null) return false
  const { engine } = placed
  const held = state?.device?.engine === engine.id ? state.device.granules : 0
  const needed = Math.max(0, granulesFor(d.core, engine, call) - held)
  const better = wanted.get(engine.id) ?? 0
  if (!fits(d, engine, needed, better, held > 0)) makeRoom(d, call, engine, needed + better)
  if (!fits(d, engine, needed, better, held > 0)) {
    wanted.set(engine.id, better + needed)
    return false
  }
  carryOut(d, call, state, placed, wanted)
  return true
}

/** `better`: what calls before it wait for; whoever needs no more memory takes none from them. */
function fits(d: Deciding, engine: Engine, needed: Granules, better: Granules, hasSequence: boolean): boolean {
  const { capabilities } = engine
  if (engine.running.size + resuming(d, engine) >= capabilities.runningMax) return false
  if (capabilities.memory === null || needed === 0) return true
  if (!hasSequence && engine.sequencesUsed >= capabilities.memory.sequences) return false
  return granulesFree(engine) - better >= needed
}

function resuming(d: Deciding, engine: Engine): number {
  let count = 0
  for (const move of d.core.moves.values()) if (move.engine === engine.id && move.forCall !== null) count += 1
  return count
}

// ---------------------------------------------------------------- making room

function makeRoom(d: Deciding, call: Call, engine: Engine, needed: Granules): void {
  if (engine.capabilities.memory === null) return
  const policy = residencyOf(d.core)
  const mayLose: MayLose = (state, regret) => policy.mayLose(d.core, state, regret, call, engine, d.nowUs)
  const short = (): Granules => needed - granulesFree(engine) - granulesLeaving(d.core, engine)
  for (const { state, choice, regret } of policy.victims(d.core, engine, d.nowUs)) {
    if (short() <= 0) return
    const waiting = callWaitingOn(d.core, state)
    if (waiting !== null && (waiting.id === call.id || compareCalls(waiting, call) < 0)) continue
    if (choice === 'offload') giveWay(d, state, engine, 'memory is wanted', mayLose)
    else if (mayLose(state, regret)) discardDevice(d, state, 'memory is wanted, and feeding it again is cheaper than a copy')
  }
  if (short() > 0 || engine.running.size >= engine.capabilities.runningMax) preemptFor(d, call, engine)
}

/** The worst running call gives way, if the order finds it so much worse and its budget of preemptions allows. */
function preemptFor(d: Deciding, call: Call, engine: Engine): void {
  if (!engine.capabilities.preempt) return
  const running = [...engine.running].map((id) => must(d.core.calls, id)).sort(compareCalls)
  if (running.some((other) => other.stage.kind === 'pausing')) return
  const worst = running.at(-1)
  if (worst === undefined || worst.preemptions >= d.core.config.preemptionsMax) return
  if (!orderOf(d.core).preempts(call, worst) || !isWorthPreempting(d, worst, engine)) return
  d.emit({ kind: 'call.preempted', call: worst.id, engine: engine.id, by: call.id, why: 'a better call has no memory' })
}

/**
 * Waiting for it to end must cost more than taking its State away: a copy where host has room; feeding it again where not,
 * or where it is being fed again just now and would be left half done.
 */
function isWorthPreempting(d: Deciding, call: Call, engine: Engine): boolean {
  const state = stateOf(d.core, call)
  if (state === null) return false
  const halfDone = call.recomputeDone < call.recomputeDue
  return remainingUs(d, call, engine) > (halfDone ? discardCost(d.core, state, engine, 1_000_000) : giveWayCost(d, state, engine))
}

/** At most: as if it generated all it may within its grant. */
function remainingUs(d: Deciding, call: Call, engine: Engine): Us {
  const { prefillNsPerToken, decodeBaseNs, decodeRowNs } = engine.speeds
  const state = stateOf(d.core, call)
  const prefillTokens = Math.max(0, call.promptTokens - (state === null ? 0 : stateTokens(state)))
  const outputTokens = Math.min(call.maxTokens, call.outputTokens + d.core.config.grantTokens) - call.outputTokens
  return Math.round((prefillTokens * prefillNsPerToken + outputTokens * (decodeBaseNs + decodeRowNs * engine.running.size)) / 1_000)
}

/** Grants follow what a call generates, a step ahead; where a granule holds a whole State there is nothing to do. */
function growGrants(d: Deciding, engine: Engine): void {
  if (engine.stage !== 'joined' || engine.capabilities.memory === null) return
  for (const id of engine.running) {
    const call = must(d.core.calls, id)
    const held = stateOf(d.core, call)?.device?.granules ?? 0
    const needed = granulesFor(d.core, engine, call)
    if (needed <= held || call.stage.kind !== 'running') continue
    if (granulesFree(engine) < needed - held) makeRoom(d, call, engine, needed - held)
    if (granulesFree(engine) >= needed - held) d.emit({ kind: 'call.granted', call: id, granules: needed })
    else if (granulesLeaving(d.core, engine) === 0) giveUpWorst(d, call, engine)
  }
}

/** All memory is held by calls that run and cannot grow: whatever the order says, the worst of them must go. */
function giveUpWorst(d: Deciding, by: Call, engine: Engine): void {
  if (!engine.capabilities.preempt || engine.running.size < 2) return
  const worst = [...engine.running].map((id) => must(d.core.calls, id)).sort(compareCalls).at(-1)
  if (worst?.stage.kind !== 'running') return
  d.emit({ kind: 'call.preempted', call: worst.id, engine: engine.id, by: by.id, why: 'no running call can grow' })
}

// ---------------------------------------------------------------- standing orders

/** Ranks and grants of what runs here, and what may be done to each without asking; told only where they changed. */
function giveOrders(d: Deciding, engine: Engine): void {
  if (engine.stage !== 'joined' || !engine.capabilities.rank) return
  const running = [...engine.running].map((id) => must(d.core.calls, id)).sort(compareCalls)
  const orders: StandingOrder[] = running.map((call, rank) => ({
    call: call.id, rank, grantGranules: stateOf(d.core, call)?.device?.granules ?? 0, asVictim: asVictim(engine),
  }))
  if (JSON.stringify(orders) !== JSON.stringify(engine.orders)) d.emit({ kind: 'engine.ordered', engine: engine.id, orders })
}

/** Where a State takes one granule whole, a pause alone frees nothing. */
function asVictim(engine: Engine): StandingOrder['asVictim'] {
  if (granulesTotal(engine) === 0) return 'pause'
  return engine.capabilities.offload ? 'offload' : engine.capabilities.discard ? 'discard' : 'pause'
}
