/**
 * Owns the draining of an engine by its operator: from then on no call is placed there, what is idle there moves to host or
 * goes, and what runs may end until the time given is up; what still runs then is paused, and moves too. It holds until it
 * is ended by name, also over losses of the engine and restarts of ours. Where no other engine can take a call, it waits.
 */
import { must } from './assert.ts'
import { clearTimer, ignore, setTimer, type Deciding } from './deciding.ts'
import type { EngineId } from './ids.ts'
import type { DrainEngine, UndrainEngine } from './input.ts'
import { decideIdle } from './kv/kv.ts'

export function drainEngine(d: Deciding, input: DrainEngine): void {
  const engine = d.core.engines.get(input.engine)
  if (engine === undefined) return ignore(d, 'drainEngine', input.engine, 'it has never joined')
  if (engine.draining !== true) d.emit({ kind: 'engine.drain.begun', engine: engine.id })
  for (const state of [...engine.idle]) decideIdle(d, state)
  setTimer(d, `drain:${engine.id}`, d.nowUs + input.withinUs)
}

export function undrainEngine(d: Deciding, input: UndrainEngine): void {
  const engine = d.core.engines.get(input.engine)
  if (engine?.draining !== true) return ignore(d, 'undrainEngine', input.engine, 'it is not drained')
  clearTimer(d, `drain:${engine.id}`)
  d.emit({ kind: 'engine.drain.ended', engine: engine.id })
}

/** The time for what runs there is up. An engine that cannot pause lets it run to its end. */
export function endDrainTime(d: Deciding, id: EngineId): void {
  const engine = d.core.engines.get(id)
  if (engine?.draining !== true || engine.stage !== 'joined' || !engine.capabilities.preempt) return
  for (const call of [...engine.running]) {
    if (must(d.core.calls, call).stage.kind !== 'running') continue
    d.emit({ kind: 'call.preempted', call, engine: id, by: null, gainUs: 0, restsUntilUs: d.nowUs, why: 'its engine is drained' })
  }
}
