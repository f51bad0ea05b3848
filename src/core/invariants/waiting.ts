/**
 * Owns the laws of waiting (13): at a load that is stated, no ready call waits longer than a bound that is stated; and at
 * any load, nobody waits while everything that could serve him stands idle.
 */
import { allAwake } from '../asleep/asleep.ts'
import { must } from '../assert.ts'
import { policyNames } from '../policy/joints.ts'
import { couldHold } from '../kv/kv-read.ts'
import type { Call, CoreState, Engine } from '../state.ts'
import type { Us } from '../units.ts'
import { law } from './law.ts'

/** `boundUs` goes with a load: who calls this says which, and keeps it. */
export function checkWaiting(core: Readonly<CoreState>, nowUs: Us, boundUs: Us): void {
  for (const call of readyCalls(core)) {
    const sinceUs = call.stage.kind === 'ready' ? call.stage.sinceUs : nowUs
    law(13, nowUs - sinceUs <= boundUs, () => `${call.id} of ${call.program} is ready and waits for ${nowUs - sinceUs} us; the bound is ${boundUs}`)
  }
}

/**
 * To be asked after a step, when everything that could start has been started. While a copy or a measurement is under way
 * its memory may be kept for it.
 */
export function checkNobodyIsStuck(live: Readonly<CoreState>): void {
  if (live.moves.size > 0 || [...live.engines.values()].every(({ running }) => running.size > 0)) return
  const core = allAwake(live)
  const measuring = [...core.threads.values()].some(({ active }) => active !== null && core.calls.get(active)?.stage.kind === 'arrived')
  if (measuring) return
  for (const call of readyCalls(core)) {
    const able = [...core.engines.values()].filter((engine) => canRun(core, engine, call))
    law(13, able.length === 0 || able.some(({ running }) => running.size > 0), () => `${call.id} is ready, and ${able.map(({ id }) => id).join(', ')} stands idle`)
  }
}

const readyCalls = (core: Readonly<CoreState>): Call[] => [...core.calls.values()].filter(({ stage }) => stage.kind === 'ready')

function canRun(core: Readonly<CoreState>, engine: Engine, call: Call): boolean {
  const { memory, runningMax } = engine.capabilities
  if (engine.stage !== 'joined' || engine.draining === true || runningMax === 0 || !couldHold(core, engine, call)) return false
  if (memory === null) return true
  const state = must(core.threads, call.thread).state
  const device = state === null ? null : must(core.states, state).device
  // Where KV on a device ties a call to it, that engine may be lost; where it does not, a call may wait for a faster one.
  const isTied = device !== null && policyNames(core).placement === 'most-room'
  return isTied ? device.engine === engine.id : memory.sequences > 0
}
