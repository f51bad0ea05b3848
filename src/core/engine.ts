/**
 * Owns engines joining and being lost, and the start of a reign. What ran on a lost engine is tried again with its
 * ledger; what lay on its device is gone until it comes back and says that it still has it, what lies on host is not.
 */
import { must } from './assert.ts'
import { returnMany } from './kv/batch-return.ts'
import { isOver } from './call-read.ts'
import { detach, failWhatFitsNowhere, retry } from './call.ts'
import { ignore, type Deciding } from './deciding.ts'
import { tenantId } from './ids.ts'
import type { EngineJoined, EngineLost, Restart } from './input.ts'
import { takeInventory } from './kv/inventory.ts'
import { discardDevice, discardHost, failMove, releaseState } from './kv/kv.ts'
import { hostFreeBytes } from './kv/kv-read.ts'
import { closeLater } from './program.ts'
import { residencyOf } from './policy/residencies.ts'
import type { Call, Capabilities, Engine } from './state.ts'

export function engineJoined(d: Deciding, input: EngineJoined): void {
  if (input.reign !== d.core.reign) return ignore(d, 'engineJoined', input.engine, `reign ${input.reign}, now ${d.core.reign}`)
  const before = d.core.engines.get(input.engine)
  const learnt = before?.stage === 'joined' && hasLearnt(before.capabilities, input.capabilities)
  if (before?.stage === 'joined' && !learnt) lose(d, before, 'it joined anew', (call) => retry(d, call, 'its engine joined anew'))
  d.emit({ kind: 'engine.joined', engine: input.engine, capabilities: input.capabilities, speeds: input.speeds })
  takeInventory(d, must(d.core.engines, input.engine), input.inventory ?? [])
  failWhatFitsNowhere(d)
  for (const model of input.capabilities.models) returnMany(d, model)
}

/**
 * In the same life, only how exact it is has become known. An engine that can say what it holds says so instead; any other
 * is told to be lost by its adapter before it comes back.
 */
function hasLearnt(before: Capabilities, now: Capabilities): boolean {
  const isNews = before.exact.answer !== now.exact.answer || before.exact.because !== now.exact.because
  return isNews && !now.inventory && JSON.stringify({ ...before, exact: now.exact }) === JSON.stringify(now)
}

export function engineLost(d: Deciding, input: EngineLost): void {
  if (input.reign !== d.core.reign) return ignore(d, 'engineLost', input.engine, `reign ${input.reign}, now ${d.core.reign}`)
  const engine = d.core.engines.get(input.engine)
  if (engine?.stage !== 'joined') return ignore(d, 'engineLost', input.engine, `it had not joined: ${input.why}`)
  lose(d, engine, input.why, (call) => retry(d, call, `its engine was lost: ${input.why}`))
}

function lose(d: Deciding, engine: Engine, why: string, then: (call: Call) => void): void {
  for (const id of [...engine.running]) then(must(d.core.calls, id))
  d.emit({ kind: 'engine.lost', engine: engine.id, why })
  for (const id of [...engine.moves]) {
    const move = must(d.core.moves, id)
    failMove(d, move, `its engine was lost: ${why}`, move.from === 'device')
  }
  for (const state of [...d.core.states.values()]) {
    if (state.device?.engine === engine.id) discardDevice(d, state, `its engine was lost: ${why}`)
  }
}

/**
 * A new reign over the same facts. Engines of the last one are gone, clients too: open calls wait to be asked for again.
 * Images that were verified are used again; others are fed again.
 */
export function restart(d: Deciding, input: Restart): void {
  if (input.reign <= d.core.reign) return ignore(d, 'restart', 'reign', `reign ${input.reign} is not above ${d.core.reign}`)
  d.emit({ kind: 'reign.begun', reign: input.reign, wallOffsetUs: input.wallOffsetUs })
  for (const engine of [...d.core.engines.values()]) {
    if (engine.stage === 'joined') lose(d, engine, 'the control plane started anew', (call) => detach(d, call))
  }
  const lost = [...d.core.calls.values()].filter((call) => !isOver(call) && call.stage.kind !== 'detached')
  for (const { id } of lost) detach(d, must(d.core.calls, id))
  const verified = new Set(input.images)
  for (const state of [...d.core.states.values()]) {
    if (state.host !== null && !verified.has(state.host.image)) discardHost(d, state, 'its image is missing or does not verify')
    if (state.owner.kind === 'nobody') releaseState(d, state.id)
  }
  keepLimits(d)
  weigh(d)
  // Its timer may have been lost with the last flow facts; then nothing else would end it.
  for (const program of d.core.programs.values()) if (!d.core.timers.has(`close:${program.id}`)) closeLater(d, program)
}

/** Shares go by what the configuration says now. */
function weigh(d: Deciding): void {
  const { bandWeights: bands, tenantWeights, deviceSecondMicro, hostMebibyteSecondMicro } = d.core.config
  d.emit({ kind: 'shares.priced', prices: { bands, deviceSecondMicro, hostMebibyteSecondMicro } })
  const named = Object.keys(tenantWeights).map(tenantId)
  for (const tenant of new Set([...d.core.tenants.keys(), ...named])) {
    const weight = tenantWeights[tenant] ?? 1
    if (d.core.tenants.get(tenant)?.weight !== weight) d.emit({ kind: 'tenant.weighed', tenant, weight })
  }
}

/** What the configuration of the last reign allowed, this one's may not. */
function keepLimits(d: Deciding): void {
  for (const { state } of residencyOf(d.core).hostVictims(d.core, d.nowUs)) {
    if (hostFreeBytes(d.core) >= 0) break
    discardHost(d, state, 'the host tier is smaller than it was')
  }
  for (const session of [...d.core.sessions.values()]) {
    for (const old of session.states.slice(0, Math.max(0, session.states.length - d.core.config.sessionStatesMax))) releaseState(d, old)
  }
}
