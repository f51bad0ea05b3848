/**
 * Owns on which engine a call would run. A State on a device ties it to that engine; one on host, or none, goes to the
 * joined engine of its model with the most room, the earlier joined winning a tie.
 */
import { must } from './assert.ts'
import { granulesFree } from './kv-read.ts'
import type { Call, CoreState, Engine, State } from './state.ts'

export function placeOf(core: Readonly<CoreState>, call: Readonly<Call>, state: Readonly<State> | null): Engine | null {
  if (state?.device != null) {
    const engine = must(core.engines, state.device.engine)
    return engine.stage === 'joined' ? engine : null
  }
  let best: Engine | null = null
  for (const engine of core.engines.values()) {
    if (engine.stage !== 'joined' || !engine.capabilities.models.includes(call.model)) continue
    if (best === null || roomOf(engine) > roomOf(best)) best = engine
  }
  return best
}

const roomOf = (engine: Engine): number =>
  engine.capabilities.memory === null ? engine.capabilities.runningMax - engine.running.size : granulesFree(engine)
