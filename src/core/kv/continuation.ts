/**
 * Owns what a call continues: how many committed tokens of its thread's State, and by which way its KV would come to an
 * engine. Reads only; `schedule.ts` carries out, and a placement prices, the way that is named here, so that what was
 * priced is what is done.
 */
import { copyInUs, copyOutUs, feedAgain, imageReserveBytes } from './cost.ts'
import { must } from '../assert.ts'
import { granulesFor, granulesOf, granulesTotal, hostFreeBytes, originsOf, spanTokens, stateTokens } from './kv-read.ts'
import type { Call, CoreState, Engine, State } from '../state.ts'
import type { Granules, Tokens } from '../units.ts'

export type Way =
  /** There is nothing to bring. */
  | 'fresh'
  /** Its KV is on the engine's device. */
  | 'kept'
  /** From host. */
  | 'onboarded'
  /** From the device of another engine, through host. */
  | 'moved'
  /** Its tokens are fed again. */
  | 'recomputed'

/** Committed tokens that this call continues: all of them once it has run, before that what its prompt has in common. */
export function baseTokensOf(call: Readonly<Call>, state: Readonly<State>): Tokens {
  if (call.startedUs !== null) return spanTokens(state)
  return call.reusable?.state === state.id ? call.reusable.tokens : 0
}

/** What was fed before and still counts: the tail too, unless the call continues an earlier point. */
export function fedTokensOf(call: Readonly<Call>, state: Readonly<State>): Tokens {
  const baseTokens = baseTokensOf(call, state)
  return baseTokens < spanTokens(state) ? baseTokens : stateTokens(state)
}

/** What a call brings with it, read once for all the engines it may go to. */
export interface Luggage {
  readonly state: State | null
  readonly fedTokens: Tokens
  readonly byOrigin: { readonly prefilled: Tokens; readonly decoded: Tokens }
}

export function luggageOf(core: Readonly<CoreState>, call: Readonly<Call>, state: State | null): Luggage {
  if (state === null) return { state, fedTokens: 0, byOrigin: { prefilled: 0, decoded: 0 } }
  const fedTokens = fedTokensOf(call, state)
  return { state, fedTokens, byOrigin: originsOf(state, fedTokens) }
}

/** Device memory that a call takes up when it comes by this way: its own, or that of an image which is longer. */
export function granulesBy(core: Readonly<CoreState>, call: Readonly<Call>, state: Readonly<State> | null, engine: Engine, way: Way): Granules {
  return Math.max(granulesFor(core, engine, call), way === 'onboarded' ? granulesOf(engine, state?.host?.tokens ?? 0) : 0)
}

/** The cheaper of copying and feeding again, where an engine can read the copy at all. */
export function wayTo(core: Readonly<CoreState>, call: Readonly<Call>, luggage: Luggage, engine: Engine): Way {
  const { state, fedTokens } = luggage
  if (state === null || fedTokens === 0) return 'fresh'
  if (state.device?.engine === engine.id) return 'kept'
  const againUs = feedAgain(engine, luggage.byOrigin, call.exactResume).workUs
  if (state.device !== null) {
    const from = must(core.engines, state.device.engine)
    const copyUs = copyOutUs(from, state.device.tokens) + copyInUs(engine, state.device.tokens)
    return canMove(core, state, from, engine) && canHold(engine, state.device.tokens) && copyUs <= againUs ? 'moved' : 'recomputed'
  }
  if (state.host === null) return 'recomputed'
  return canRead(engine, state.host.imageKey) && canHold(engine, state.host.tokens) && copyInUs(engine, state.host.tokens) <= againUs ? 'onboarded' : 'recomputed'
}

const canRead = ({ capabilities }: Engine, imageKey: string | null): boolean =>
  capabilities.onboard && imageKey !== null && capabilities.imageKey === imageKey

const canHold = (engine: Engine, tokens: Tokens): boolean =>
  engine.capabilities.memory === null || granulesOf(engine, tokens) <= granulesTotal(engine)

const canMove = (core: Readonly<CoreState>, state: State, from: Engine, to: Engine): boolean =>
  from.stage === 'joined' && from.capabilities.offload && canRead(to, from.capabilities.imageKey)
  && hostFreeBytes(core) >= imageReserveBytes(from, stateTokens(state))
