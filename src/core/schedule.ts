/**
 * Owns what starts a call on an engine that has room for it: from what is on device, after bringing its State back from
 * host, or by feeding it again. Says how many tokens are kept and how many are fed a second time.
 */
import { must } from './assert.ts'
import { copyInUs, recompute } from './cost.ts'
import { clearTimer, type Deciding } from './deciding.ts'
import { moveId, stateId } from './ids.ts'
import { granulesFor, granulesOf, isExact, spanTokens, stateOf, stateTokens } from './kv-read.ts'
import { compareCalls } from './queue.ts'
import type { Call, Engine, State } from './state.ts'
import type { Tokens } from './units.ts'

/** The engine has room. Runs the call, or begins to bring its State in. */
export function schedule(d: Deciding, call: Call, engine: Engine): void {
  const state = stateOf(d.core, call)
  if (state?.host != null && state.device === null) {
    if (isWorthOnboarding(d, call, state, engine)) return beginOnboard(d, call, state, engine)
    d.emit({
      kind: 'kv.discarded', state: state.id, tier: 'host', tokens: state.host.tokens, engine: null, dropImage: state.host.image,
      why: 'the call can do without its image, or the engine cannot read it',
    })
  }
  start(d, call, engine)
}

function isWorthOnboarding(d: Deciding, call: Call, state: State, engine: Engine): boolean {
  const { capabilities } = engine
  if (!capabilities.onboard || capabilities.imageKey === null || state.host?.imageKey !== capabilities.imageKey) return false
  if (fedTokensOf(d, call, state) === 0) return false
  return copyInUs(engine, state.host.tokens) <= recompute(d.core, state, engine).workUs
}

function beginOnboard(d: Deciding, call: Call, state: State, engine: Engine): void {
  d.emit({
    kind: 'kv.onboard.begun', move: moveId(`${state.id}-${d.core.seq}`), state: state.id, engine: engine.id,
    tokens: state.host?.tokens ?? 0, forCall: call.id,
    reservedGranules: Math.max(granulesFor(d.core, engine, call), granulesOf(engine, state.host?.tokens ?? 0)),
  })
}

/** Committed tokens that this call continues: all of them once it has run, before that what its prompt has in common. */
function baseTokensOf(call: Call, state: State): Tokens {
  if (call.startedUs !== null) return spanTokens(state)
  return call.reusable?.state === state.id ? call.reusable.tokens : 0
}

/** What was fed before and still counts: the tail too, unless the call continues an earlier point. */
function fedTokensOf(d: Deciding, call: Call, state: State): Tokens {
  const baseTokens = baseTokensOf(call, state)
  return baseTokens < spanTokens(state) ? baseTokens : stateTokens(state)
}

/** Everything it needs is on the device, or nowhere. */
export function start(d: Deciding, call: Call, engine: Engine): void {
  const state = stateOf(d.core, call)
  const baseTokens = state === null ? 0 : baseTokensOf(call, state)
  const fedTokens = state === null ? 0 : fedTokensOf(d, call, state)
  const keepTokens = Math.min(state?.device?.tokens ?? 0, fedTokens)
  if (state !== null) clearTimer(d, `reconsider:${state.id}`)
  d.emit({
    kind: 'call.scheduled', call: call.id, attempt: call.attempt, engine: engine.id, state: state?.id ?? stateId(`${call.id}-s`),
    baseTokens, keepTokens, granules: Math.max(granulesFor(d.core, engine, call), state?.device?.granules ?? 0),
    recomputeTokens: fedTokens - keepTokens, forcedTokens: call.outputTokens,
    replay: call.exactResume && isExact(engine) ? 'exact' : 'plain', rank: rankOf(d, call, engine),
  })
}

const rankOf = (d: Deciding, call: Call, engine: Engine): number =>
  [...engine.running].filter((id) => compareCalls(must(d.core.calls, id), call) < 0).length
