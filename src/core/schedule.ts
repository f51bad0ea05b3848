/**
 * Owns what starts a call on an engine that has room for it: from what is on device, after bringing its State back from
 * host, or by feeding it again. Says how many tokens are kept and how many are fed a second time.
 */
import { must } from './assert.ts'
import { clearQueueTimersOf } from './call-timers.ts'
import { baseTokensOf, fedTokensOf, granulesBy, luggageOf, wayTo } from './kv/continuation.ts'
import { clearTimer, type Deciding } from './deciding.ts'
import { moveId, stateId } from './ids.ts'
import { granulesFor, isExact, spanTokens, stateOf, stateTokens } from './kv/kv-read.ts'
import { compareCalls } from './queue/queue.ts'
import type { Call, Engine, State } from './state.ts'
import type { Tokens, Us } from './units.ts'

/** The engine has room. Runs the call, or begins to bring its State in. */
export function schedule(d: Deciding, call: Call, engine: Engine): void {
  const state = stateOf(d.core, call)
  const way = wayTo(d.core, call, luggageOf(d.core, call, state), engine)
  clearQueueTimersOf(d, call.id)
  if (state !== null && way === 'onboarded') return beginOnboard(d, call, state, engine)
  if (state?.host != null && state.device === null) {
    d.emit({
      kind: 'kv.discarded', state: state.id, tier: 'host', tokens: state.host.tokens, engine: null, dropImage: state.host.image,
      why: 'the call can do without its image, or the engine cannot read it',
    })
  }
  start(d, call, engine)
}

function beginOnboard(d: Deciding, call: Call, state: State, engine: Engine): void {
  d.emit({
    kind: 'kv.onboard.begun', move: moveId(`${state.id}-${d.core.seq}`), state: state.id, engine: engine.id,
    tokens: state.host?.tokens ?? 0, forCall: call.id,
    reservedGranules: granulesBy(d.core, call, state, engine, 'onboarded'),
    expectedWorkUs: expectedWorkUs(d, call, engine, state.host?.tokens ?? 0),
  })
}

/** Everything it needs is on the device, or nowhere. */
export function start(d: Deciding, call: Call, engine: Engine): void {
  const state = stateOf(d.core, call)
  const baseTokens = state === null ? 0 : baseTokensOf(call, state)
  const fedTokens = state === null ? 0 : fedTokensOf(call, state)
  const keepTokens = Math.min(state?.device?.tokens ?? 0, fedTokens)
  if (state !== null) clearTimer(d, `reconsider:${state.id}`)
  d.emit({
    kind: 'call.scheduled', call: call.id, attempt: call.attempt, engine: engine.id, state: state?.id ?? stateId(`${call.id}-s`),
    baseTokens, keepTokens, granules: Math.max(granulesFor(d.core, engine, call), state?.device?.granules ?? 0),
    recomputeTokens: fedTokens - keepTokens, forcedTokens: call.outputTokens,
    replay: call.exactResume && isExact(engine) ? 'exact' : 'plain', rank: rankOf(d, call, engine), expectedWorkUs: expectedWorkUs(d, call, engine, keepTokens),
  })
}

/** What shares are charged ahead: feeding what it lacks, and as many tokens as it is granted, in the company that is there. */
function expectedWorkUs(d: Deciding, call: Call, engine: Engine, keepTokens: Tokens): Us {
  const { prefillNsPerToken, decodeBaseNs, decodeRowNs } = engine.speeds
  const outputTokens = Math.min(call.maxTokens - call.outputTokens, d.core.config.grantTokens)
  const rowNs = decodeRowNs + Math.round(decodeBaseNs / (engine.running.size + 1))
  return Math.round((Math.max(0, call.promptTokens - keepTokens) * prefillNsPerToken + Math.max(0, outputTokens) * rowNs) / 1_000)
}

const rankOf = (d: Deciding, call: Call, engine: Engine): number =>
  [...engine.running].filter((id) => compareCalls(must(d.core.calls, id), call) < 0).length
