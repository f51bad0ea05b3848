/**
 * Owns the scheduling cycle: of each model that a fact of this turn touched, the ready calls, the next to be served first,
 * each placed where there is memory for it. Where there is none, somebody gives way: first what is idle, cheapest regret
 * first, so that a ready call is never stuck behind a waiting one; then, if the order says so, a running call. What is being
 * freed for a call is kept for it: a worse call may pass only with memory it already has. Then the standing orders
 * (`standing-orders.ts`), where they may have changed.
 *
 * A turn looks at no more than it touched: at most `dispatchWindow` calls that do not fit, of which room is made for
 * `memoryWaitersMax` and the others start only where nobody must give way; none after the first once no engine has a place
 * for another call; and at most `victimsMax` idle States an engine.
 */
import { assert, must } from './assert.ts'
import { setTimer, type Deciding } from './deciding.ts'
import { granulesBy } from './kv/continuation.ts'
import type { CallId, EngineId } from './ids.ts'
import { discardDevice, giveWay, type MayLose } from './kv/kv.ts'
import { callWaitingOn, granulesFor, granulesFree, granulesLeaving, granulesOf, sequencesLeaving, stateOf } from './kv/kv-read.ts'
import { carryOut, placementFor } from './placement.ts'
import type { Line } from './policy/placement/placement.ts'
import type { Victim } from './policy/residency/residency.ts'
import { giveUpWorst, preemptFor } from './preempt.ts'
import { reservedFor, reservedOn } from './queue/reservations.ts'
import { residencyOf } from './policy/residencies.ts'
import { candidates, compareTurns, isInWindow } from './queue/queue.ts'
import { giveOrders } from './standing-orders.ts'
import { sitesOf, type Site } from './site.ts'
import type { Call, Engine, State } from './state.ts'
import type { Granules, Us } from './units.ts'

export function dispatch(d: Deciding): void {
  const { models, newcomers, engines, calls, ranks, reranked } = d.touched
  for (const id of newcomers) {
    const call = d.core.calls.get(id)
    if (call?.stage.kind === 'ready' && !models.has(call.model) && isInWindow(d.core, call)) models.add(call.model)
  }
  while (models.size + engines.size + calls.size > 0) {
    for (const id of engines) for (const call of [...must(d.core.engines, id).cramped]) growGrant(d, call)
    engines.clear()
    for (const id of calls) growGrant(d, id)
    calls.clear()
    for (const model of models) {
      // What is freed while the model is looked at touches it again.
      models.delete(model)
      startCalls(d, model)
    }
  }
  for (const id of ranks) giveOrders(d, must(d.core.engines, id), reranked)
}

/** What one look at a model's queue has found so far. */
interface Look {
  /** Engines of the model, as they stand. */
  sites: Site[]
  /** Calls before the present one that wait, by engine, and the device memory they wait for. */
  readonly ahead: Map<EngineId, Line>
  /** How many in all. */
  waiters: number
  /** Calls that could not start. */
  readonly passed: Set<CallId>
  /** Idle States of an engine, as ranked when it was first short. */
  readonly victims: Map<EngineId, readonly Victim[]>
  /** When waiting alone will let a call take what it may not take now. */
  againUs: Us
}

function startCalls(d: Deciding, model: string): void {
  const queue = d.core.queues.get(model)
  if (queue === undefined || queue.size === 0) return
  const look = newLook(d, model)
  for (const { call } of [...d.core.turns.reservations.values()]) {
    const reserved = must(d.core.calls, call)
    if (reserved.model === model && tryRun(d, reserved, look)) look.sites = sitesOf(d.core, model)
  }
  for (let started = true; started;) {
    started = false
    look.sites = sitesOf(d.core, model)
    const most = windowOf(d, look.sites)
    for (const id of candidates(queue)) {
      if (look.passed.has(id) || reservedFor(d.core, id) !== null) continue
      // Who starts is charged, so the next to be served may be another's.
      const call = must(d.core.calls, id)
      assert(call.stage.kind === 'ready', `invariant 2: ${id} stands in a queue and is ${call.stage.kind}`)
      if (tryRun(d, call, look)) {
        started = true
        break
      }
      look.passed.add(id)
      if (look.passed.size >= most) break
    }
  }
  const timer = `dispatch:${model}`
  if (look.againUs !== Number.MAX_SAFE_INTEGER && d.core.timers.get(timer) !== look.againUs) setTimer(d, timer, look.againUs)
}

function newLook(d: Deciding, model: string): Look {
  const ahead = new Map([...d.core.turns.reservations].map(([engine, { granules }]) => [engine, { calls: 0, granules }]))
  return { sites: sitesOf(d.core, model), ahead, waiters: 0, passed: new Set(), victims: new Map(), againUs: Number.MAX_SAFE_INTEGER }
}

/** How many calls that do not fit are looked at: the first alone where no engine has a place for one more. */
const windowOf = (d: Deciding, sites: readonly Site[]): number =>
  sites.some(({ places }) => places > 0) ? d.core.config.dispatchWindow + 1 : 1

/** True where the call went on its way. */
function tryRun(d: Deciding, call: Call, look: Look): boolean {
  const state = stateOf(d.core, call)
  if (state?.residence.kind === 'moving') return false
  if (look.waiters >= d.core.config.memoryWaitersMax && !needsNoRoom(d, call, state, look)) return false
  const placed = placementFor(d, call, state, look.sites, look.ahead)
  if (placed === null) return false
  const { engine } = placed.site
  const held = state?.device?.engine === engine.id ? state.device.granules : 0
  const needed = Math.max(0, granulesBy(d.core, call, state, engine, placed.way) - held)
  const kept = reservedOn(d.core, engine, call)
  const line = lineOf(look, engine)
  const better = line.granules - kept
  if (!fits(engine, needed, better, held > 0)) {
    // Nobody gives way for a call that would have no place.
    if (line.calls === 0 || line.calls < placesOf(engine)) {
      const { seq } = d.core
      makeRoom(d, call, engine, needed + better, look)
      if (d.core.seq !== seq) look.sites = sitesOf(d.core, call.model)
    }
    if (!fits(engine, needed, better, held > 0)) {
      passOver(d, call, engine, needed, look)
      return false
    }
  }
  look.ahead.set(engine.id, { ...line, granules: better })
  carryOut(d, call, state, engine, look.ahead)
  return true
}

const lineOf = (look: Look, engine: Engine): Line => look.ahead.get(engine.id) ?? NOBODY
const NOBODY: Line = { calls: 0, granules: 0 }

const placesOf = ({ capabilities, running, resuming }: Engine): number => capabilities.runningMax - running.size - resuming

/** What it lacks is kept from worse calls for this look; and from better ones too, once the first in line waited long for its size. */
function passOver(d: Deciding, call: Call, engine: Engine, needed: Granules, look: Look): void {
  const kept = reservedOn(d.core, engine, call)
  const { calls, granules } = lineOf(look, engine)
  look.ahead.set(engine.id, { calls: calls + 1, granules: granules + needed - kept })
  look.waiters += 1
  const first = kept > 0 ? needed > kept : look.passed.size === 0 && !d.core.turns.reservations.has(engine.id)
  if (!first || call.stage.kind !== 'ready' || placesOf(engine) <= 0 || !isLarge(engine, needed)) return
  const fromUs = call.stage.sinceUs + d.core.config.reserveAfterUs
  if (fromUs > d.nowUs) return again(look, fromUs)
  d.emit({ kind: 'call.reserved', call: call.id, engine: engine.id, granules: needed, waitedUs: d.nowUs - call.stage.sinceUs })
}

/** More than a granule, and more than what lies there takes in the mean. */
const isLarge = ({ ownedGranules, sequencesUsed }: Engine, needed: Granules): boolean =>
  needed > 1 && needed * sequencesUsed > ownedGranules

/** Some engine has a place and all the memory for it, and neither is kept for a call before it. */
function needsNoRoom(d: Deciding, call: Call, state: State | null, look: Look): boolean {
  return look.sites.some(({ engine, places, freeGranules }) => {
    if (places <= 0) return false
    const needed = granulesFor(d.core, engine, call)
    if (state?.device?.engine === engine.id && needed <= state.device.granules) return true
    const { calls, granules } = lineOf(look, engine)
    return places > calls && freeGranules - granules >= needed
  })
}

/** `better`: what calls before it wait for; whoever needs no more memory takes none from them. */
function fits(engine: Engine, needed: Granules, better: Granules, hasSequence: boolean): boolean {
  const { memory } = engine.capabilities
  if (placesOf(engine) <= 0) return false
  if (memory === null || needed === 0) return true
  if (!hasSequence && engine.sequencesUsed >= memory.sequences) return false
  return granulesFree(engine) - better >= needed
}

// ---------------------------------------------------------------- making room

/** For a call that is ready, `look` is at its queue; for one that runs and grows, null. */
function makeRoom(d: Deciding, call: Call, engine: Engine, needed: Granules, look: Look | null): void {
  const { memory } = engine.capabilities
  if (memory === null) return
  // Of sequences it lacks one, or none; either way somebody must leave, and with him go his granules.
  const lacks = stateOf(d.core, call)?.device?.engine === engine.id ? 0 : 1
  const short = (): number => Math.max(
    needed - granulesFree(engine) - granulesLeaving(d.core, engine),
    lacks + engine.sequencesUsed - memory.sequences - sequencesLeaving(d.core, engine),
  )
  if (short() > 0) takeIdle(d, call, engine, short, look)
  if (short() > 0 || engine.running.size >= engine.capabilities.runningMax) preemptFor(d, call, engine, (atUs) => again(look, atUs))
}

function again(look: Look | null, atUs: Us): void {
  if (look !== null) look.againUs = Math.min(look.againUs, atUs)
}

function takeIdle(d: Deciding, call: Call, engine: Engine, short: () => number, look: Look | null): void {
  const policy = residencyOf(d.core)
  const mayLose: MayLose = (state, regret) => {
    const fromUs = policy.mayLoseFrom(d.core, state, regret, call, engine)
    if (fromUs !== null && fromUs <= d.nowUs) return true
    if (fromUs !== null) again(look, fromUs)
    return false
  }
  const victims = look?.victims.get(engine.id) ?? policy.victims(d.core, engine, d.nowUs)
  look?.victims.set(engine.id, victims)
  for (const { state, choice, regret } of victims) {
    if (short() <= 0) return
    // Gone from here since it was ranked.
    if (!engine.idle.has(state.id)) continue
    const waiting = callWaitingOn(d.core, state)
    if (waiting !== null && (waiting.id === call.id || compareTurns(d.core, waiting, call) < 0)) continue
    if (choice === 'offload') giveWay(d, state, engine, 'memory is wanted', mayLose)
    else if (mayLose(state, regret)) discardDevice(d, state, 'memory is wanted, and feeding it again is cheaper than a copy')
  }
}

/** Grants follow what a call generates, by a step once half of one is used; where a granule holds a whole State there is nothing to do. */
function growGrant(d: Deciding, id: CallId): void {
  const call = d.core.calls.get(id)
  if (call?.stage.kind !== 'running') return
  const engine = must(d.core.engines, call.stage.engine)
  if (engine.stage !== 'joined' || engine.capabilities.memory === null) return
  const held = stateOf(d.core, call)?.device?.granules ?? 0
  const needed = granulesFor(d.core, engine, call)
  const spare = held - granulesOf(engine, call.promptTokens + call.outputTokens)
  if (needed <= held || 2 * spare > granulesOf(engine, d.core.config.grantTokens)) return
  if (granulesFree(engine) < needed - held) makeRoom(d, call, engine, needed - held, null)
  if (granulesFree(engine) >= needed - held) return d.emit({ kind: 'call.granted', call: id, granules: needed })
  if (!engine.cramped.has(id)) d.emit({ kind: 'grant.withheld', call: id, engine: engine.id, granules: needed })
  if (granulesLeaving(d.core, engine) === 0) giveUpWorst(d, call, engine)
}
