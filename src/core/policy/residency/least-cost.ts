/**
 * The cheapest of Preserve, Offload and Discard, in one unit, from what the waits of this tool class looked like so far.
 *
 * Preserving until t and then doing the cheaper other thing costs `hold(t) x price + P(still waiting at t) x other`, with
 * hold(t) the expected time held, E[min(wait, t)]. The t that makes this least is when to decide again; t = 0 means now.
 * With few waits seen it falls back to break-even: hold for as long as the other thing would have cost, which is never
 * worse than twice the best that somebody who knew the wait could do.
 *
 * Under pressure it gives up what it expects to regret least for each second of memory gained. What would have to be fed
 * again is lost only for a call that goes before it in the order, or while the engine stands idle, or once the call has
 * waited as long as the loss would cost: nobody waits for memory longer than memory is worth, and work is not thrown away
 * while there is other work to do.
 */
import { must } from '../../assert.ts'
import type { KvOption } from '../../fact.ts'
import type { ThreadId } from '../../ids.ts'
import { orderOf } from '../orders.ts'
import { discardCost, engineOf, memorySecondMicro, imageBytes, offloadCost, preserveCost } from '../../kv/cost.ts'
import { callWaitingOn, hostFreeBytes, hostStates, idleStates, stateTokens } from '../../kv/kv-read.ts'
import { WAITS_ENOUGH, borders, expectedWaitUs, returnsPpm, stillWaitingPpm, survivalOf, waitKindOf, type Survival } from '../../predict/wait.ts'
import { callAfter } from '../../standing.ts'
import type { Call, CoreState, Engine, Interrupt, State } from '../../state.ts'
import { compareCalls } from '../../queue/queue.ts'
import { SECOND_US, type Granules, type MicroCost, type Us } from '../../units.ts'
import type { ResidencyDecision, ResidencyPolicy } from './residency.ts'

/** No wait is planned further ahead than this. */
const HORIZON_US: Us = 600 * SECOND_US
/** Deciding again sooner than this is not worth a timer. */
const RECONSIDER_US_MIN: Us = 20_000

export const leastCost: ResidencyPolicy = {
  name: 'least-cost',

  decide(core, state, interrupt, wanted, nowUs) {
    const engine = engineOf(core, state)
    if (engine === null || state.device === null) return stay('no engine holds it')
    const wait = waitOf(core, state, interrupt, nowUs)
    const price = memorySecondMicro(core, engine, state.device.granules, wanted)
    const other = cheaperOther(core, state, engine, wait)
    const doubt = doubtOf(wait.survival)
    const untilUs = doubt !== null ? breakEvenUs(other.cost, price) - wait.elapsedUs : bestHoldUs(wait, other.cost, price)
    const options = [
      { choice: 'preserve', cost: preserveCost(wait.expectedUs, price), infeasible: null },
      ...other.options,
    ] satisfies KvOption[]
    const holds = untilUs >= RECONSIDER_US_MIN
    return {
      choice: holds ? 'preserve' : other.choice,
      options,
      expectedWaitUs: wait.expectedUs,
      reconsiderAtUs: holds && untilUs < HORIZON_US ? nowUs + untilUs : null,
      because: doubt !== null ? `break-even, since ${doubt}` : `${wait.survival.seen} such waits were seen`,
    }
  },

  victims(core, engine, nowUs) {
    return idleStates(core, engine)
      .map((state) => {
        const wait = waitOf(core, state, interruptOf(core, state), nowUs)
        const other = cheaperOther(core, state, engine, wait)
        return { state, choice: other.choice, regret: other.cost, perSecond: perSecondGained(core, state, other.cost, wait) }
      })
      .sort((a, b) => a.perSecond - b.perSecond || (a.state.id < b.state.id ? -1 : 1))
  },

  mayLoseFrom(core, state, regret, call, engine) {
    if (state.owner.kind !== 'thread' || engine.running.size === 0) return 0
    if (goesBefore(core, call, state.owner.thread)) return 0
    return call.stage.kind === 'ready' ? call.stage.sinceUs + regret : null
  },

  hostVictims(core, nowUs) {
    return hostStates(core)
      .map((state) => {
        const engine = engineOf(core, state)
        const wait = waitOf(core, state, interruptOf(core, state), nowUs)
        const regret = engine === null ? 0 : discardCost(core, state, engine, wait.returnPpm)
        const bytes = Math.max(1, state.host?.bytes ?? 1)
        return { state, regret, perMebibyte: Math.round((regret * (1 << 20)) / bytes) }
      })
      .sort((a, b) => a.perMebibyte - b.perMebibyte || (a.state.id < b.state.id ? -1 : 1))
  },
}

/** Whether a ready call goes before the next call of a thread, which has not come yet. */
function goesBefore(core: Readonly<CoreState>, call: Readonly<Call>, thread: ThreadId): boolean {
  const { active, last } = must(core.threads, thread)
  const other = active ?? last
  if (other === null) return true
  const next = active === null ? callAfter(must(core.calls, other)) : must(core.calls, other)
  return compareCalls(call, { ...next, ...orderOf(core).key(core, next) }) < 0
}

interface Wait {
  readonly survival: Survival
  readonly elapsedUs: Us
  readonly expectedUs: Us
  readonly returnPpm: number
}

const stay = (because: string): ResidencyDecision => ({
  choice: 'preserve', options: [], expectedWaitUs: 0, reconsiderAtUs: null, because,
})

function interruptOf(core: Readonly<CoreState>, state: Readonly<State>): Interrupt | null {
  if (state.owner.kind !== 'thread') return null
  const id = core.threads.get(state.owner.thread)?.interrupt ?? null
  return id === null ? null : core.interrupts.get(id) ?? null
}

function waitOf(core: Readonly<CoreState>, state: Readonly<State>, interrupt: Readonly<Interrupt> | null, nowUs: Us): Wait {
  const kind = interrupt === null ? 'open' : waitKindOf(interrupt)
  const survival = survivalOf(core, state.tenant, interrupt?.toolClass ?? null, kind, nowUs)
  const elapsedUs = nowUs - (interrupt?.startedUs ?? state.idleSinceUs)
  return {
    survival,
    elapsedUs,
    expectedUs: expectedWaitUs(survival, elapsedUs, HORIZON_US),
    returnPpm: returnsPpm(survival, elapsedUs),
  }
}

/** Why its wait cannot be told; null where it can. */
const doubtOf = ({ seen, drifting }: Survival): string | null =>
  seen < WAITS_ENOUGH ? `only ${seen} such waits were seen` : drifting ? 'what was expected of such waits did not come true of late' : null

/** Offload or Discard, whichever is cheaper and possible. */
function cheaperOther(core: Readonly<CoreState>, state: Readonly<State>, engine: Engine, wait: Wait): { choice: 'offload' | 'discard'; cost: MicroCost; options: KvOption[] } {
  const noRoom = imageBytes(engine, stateTokens(state)) > hostFreeBytes(core)
  const offload: KvOption = {
    choice: 'offload',
    cost: offloadCost(core, state, engine, wait.expectedUs, wait.returnPpm),
    infeasible: !engine.capabilities.offload || !engine.capabilities.onboard ? 'the engine cannot'
      : noRoom ? 'the host tier has no room for it' : null,
  }
  const discard: KvOption = { choice: 'discard', cost: discardCost(core, state, engine, wait.returnPpm), infeasible: null }
  const options = [offload, discard]
  return offload.infeasible === null && offload.cost <= discard.cost
    ? { choice: 'offload', cost: offload.cost, options }
    : { choice: 'discard', cost: discard.cost, options }
}

function breakEvenUs(otherCost: MicroCost, microPerSecond: number): Us {
  return Math.min(HORIZON_US, Math.floor((otherCost * SECOND_US) / Math.max(1, microPerSecond)))
}

/** The time to hold that makes the expected cost least; held time adds up from border to border. */
function bestHoldUs(wait: Wait, otherCost: MicroCost, microPerSecond: number): Us {
  let best = { untilUs: 0, cost: otherCost }
  let from = { untilUs: 0, heldUs: 0, still: 1_000_000 }
  for (const untilUs of borders(wait.elapsedUs, HORIZON_US)) {
    const still = stillWaitingPpm(wait.survival, wait.elapsedUs, untilUs)
    const heldUs = from.heldUs + Math.round(((untilUs - from.untilUs) * (from.still + still)) / 2_000_000)
    const cost = Math.round((heldUs * microPerSecond) / SECOND_US) + Math.round((otherCost * still) / 1_000_000)
    if (cost < best.cost) best = { untilUs, cost }
    from = { untilUs, heldUs, still }
  }
  return best.untilUs
}

/** A State whose call is ready gains little time before it is wanted again; one that waits long gains much. */
function perSecondGained(core: Readonly<CoreState>, state: Readonly<State>, regret: MicroCost, wait: Wait): MicroCost {
  const gainedUs: Granules = callWaitingOn(core, state) === null ? Math.max(wait.expectedUs, RECONSIDER_US_MIN) : RECONSIDER_US_MIN
  return Math.round((regret * SECOND_US) / gainedUs)
}
