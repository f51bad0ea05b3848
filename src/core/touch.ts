/**
 * Owns which models, engines and ranks a fact may have changed something for, so that a turn looks at these and at no
 * others. Whatever could let a ready call run touches its model: a place or memory that came free, KV that became idle or
 * came to rest, room on host, a call that joined the queue or left it, an engine that came or went, a running call that may
 * now give way. A charge may bring another tenant's calls among the first and touches nobody: until something comes free, at
 * most `preemptGapUs` of charges go by. Where only time passing does, `dispatch.ts` sets a timer. Reads the state before the fact is applied.
 */
import { must } from './assert.ts'
import { imageReserveBytes } from './kv/cost.ts'
import type { Fact } from './fact.ts'
import type { CallId, EngineId, StateId } from './ids.ts'
import { granulesFree, granulesOf, hostFreeBytes } from './kv/kv-read.ts'
import { isFarAhead, isInWindow } from './queue/queue.ts'
import type { AttemptReport } from './input.ts'
import { reservedFor } from './queue/reservations.ts'
import type { Call, CoreState, Move } from './state.ts'

export interface Touched {
  /** Whose queues are looked at. */
  readonly models: Set<string>
  /** Calls that came into a queue, or forward in it: looked at only where they are among the first. */
  readonly newcomers: Set<CallId>
  /** Where running calls that could not grow may do so now. */
  readonly engines: Set<EngineId>
  /** Running calls that may want to grow. */
  readonly calls: Set<CallId>
  /** Whose standing orders may have changed. */
  readonly ranks: Set<EngineId>
  /** Calls that run there since a moment ago, or whose key or grant is another. */
  readonly reranked: Set<CallId>
}

export const untouched = (): Touched => ({ models: new Set(), newcomers: new Set(), engines: new Set(), calls: new Set(), ranks: new Set(), reranked: new Set() })

export function touch(core: Readonly<CoreState>, fact: Fact, touched: Touched): void {
  switch (fact.kind) {
    case 'call.ready':
    case 'call.promoted':
    case 'call.aged':
      touched.newcomers.add(fact.call)
      return
    case 'boost.given':
      return boosted(must(core.calls, fact.call), touched)
    case 'call.progressed':
      return progressed(core, must(core.calls, fact.call), fact.report, touched)
    case 'call.scheduled':
      touched.ranks.add(fact.engine)
      touched.reranked.add(fact.call)
      return
    case 'call.granted':
    case 'call.demoted':
      return reranked(must(core.calls, fact.call), fact.kind, touched)
    case 'call.paused':
    case 'call.retried':
    case 'call.detached':
    case 'call.completed':
    case 'call.cancelled':
    case 'call.failed':
      return left(core, fact.call, touched)
    case 'kv.moved':
    case 'kv.move.failed':
      return moved(core, must(core.moves, fact.move), touched)
    case 'kv.discarded':
      if (fact.tier === 'host') freedHost(core, touched)
      return atRest(core, fact.state, touched)
    case 'kv.settled':
      return atRest(core, fact.state, touched)
    case 'engine.joined':
      for (const model of fact.capabilities.models) touched.models.add(model)
      if (!core.engines.has(fact.engine)) return
      freed(core, fact.engine, touched)
      touched.engines.add(fact.engine)
      for (const call of must(core.engines, fact.engine).running) touched.reranked.add(call)
      return
    case 'engine.drain.begun':
    case 'engine.drain.ended':
    case 'engine.lost':
      return freed(core, fact.engine, touched)
    default:
  }
}

/** Of an engine something came free. Where there was memory for a whole context before, no running call lacked any. */
function freed(core: Readonly<CoreState>, id: EngineId, touched: Touched): void {
  const engine = must(core.engines, id)
  for (const model of engine.capabilities.models) touched.models.add(model)
  if (granulesFree(engine) < granulesOf(engine, engine.capabilities.contextTokens)) touched.engines.add(id)
  touched.ranks.add(id)
}

/** A move that ends leaves memory behind, or makes what waited for it known; one that a call waits for changes nothing for others. */
function moved(core: Readonly<CoreState>, { engine, state, forCall, from }: Move, touched: Touched): void {
  if (from === 'host') freedHost(core, touched)
  if (forCall !== null && core.calls.get(forCall)?.stage.kind === 'resuming') return
  freed(core, engine, touched)
  touched.models.add(must(core.states, state).model)
}

/** With more room on host, KV that could not give way may; where there was room for any State before, none was kept by that. */
function freedHost(core: Readonly<CoreState>, touched: Touched): void {
  let largestBytes = 0
  for (const engine of core.engines.values()) largestBytes = Math.max(largestBytes, imageReserveBytes(engine, engine.capabilities.contextTokens))
  if (hostFreeBytes(core) >= largestBytes) return
  for (const [model, queue] of core.queues) if (queue.size > 0) touched.models.add(model)
}

function atRest(core: Readonly<CoreState>, id: StateId, touched: Touched): void {
  const { device } = must(core.states, id)
  if (device !== null) freed(core, device.engine, touched)
}

/** A call that gives up its place: one on an engine, one in line, wherever memory is kept for it, or one to come for which idle KV was kept from others. */
function left(core: Readonly<CoreState>, id: CallId, touched: Touched): void {
  const { stage, model, thread } = must(core.calls, id)
  if (stage.kind === 'running' || stage.kind === 'pausing') freed(core, stage.engine, touched)
  else if (stage.kind === 'resuming' || (stage.kind === 'ready' && isInWindow(core, must(core.calls, id)))) touched.models.add(model)
  const kept = reservedFor(core, id)
  if (kept !== null) freed(core, kept.id, touched)
  const { state } = must(core.threads, thread)
  if (state !== null) atRest(core, state, touched)
}

/** In its queue it goes forward; of one that runs, others may no longer take the place. */
function boosted({ id, stage, model }: Call, touched: Touched): void {
  if (stage.kind === 'ready') touched.newcomers.add(id)
  else touched.models.add(model)
}

/** Its key or grant is another: a worse key may cost it its place. */
function reranked({ id, stage, model }: Call, kind: 'call.granted' | 'call.demoted', touched: Touched): void {
  if (stage.kind === 'running' || stage.kind === 'pausing') {
    touched.ranks.add(stage.engine)
    touched.reranked.add(id)
  }
  if (kind !== 'call.granted') touched.models.add(model)
}

/** It may grow; and it may give way from now on, being far ahead of its share or no longer half recomputed. */
function progressed(core: Readonly<CoreState>, call: Call, report: AttemptReport, touched: Touched): void {
  touched.calls.add(call.id)
  const recomputed = call.recomputeDone < call.recomputeDue && report.recomputedTokens >= call.recomputeDue
  if (recomputed || isFarAhead(core, call)) touched.models.add(call.model)
}
