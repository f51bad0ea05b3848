/**
 * The engine where the call is predicted to be done first, with what it costs those who must make room (seed section 17).
 * Five terms, all in microseconds that this placement adds, each instant in one of them only:
 *
 *   queue     departures that must come before those ahead of it and it have a place, and before running calls free the memory it lacks, times
 *             the measured time between departures: how long calls stayed there of late, over how many run
 *   prefill   its new tokens, and what is not on the device and cannot be copied there, fed as it will be fed: what was
 *             decoded one by one where the recompute is exact, at prefill speed where it is plain
 *   transfer  copies of its own KV: out of another engine's device, and in
 *   critical  what follows on its program's critical path because of the engine, and is in no other term: its decode, at
 *             the step time of this engine with this company; queue, feeding and copies delay the path too, and are above
 *   pressure  memory beyond what is free, its own and the next grants of those that run, as the time it takes idle and
 *             running States away from there and back (by copies, or by feeding them again); what departures are waited
 *             for is in the queue
 *
 * Affinity is no rule but a saving: a State is left where it is unless another engine is better by `placementGainUs`, the
 * copy included, so that it yields to load and does not swing. All is read from counters: no term walks calls or States.
 */
import { copyInUs, copyOutUs, feedAgain } from '../../kv/cost.ts'
import { granulesBy, luggageOf, wayTo, type Luggage, type Way } from '../../kv/continuation.ts'
import { must } from '../../assert.ts'
import type { Site } from '../../site.ts'
import type { Call, CoreState, Engine } from '../../state.ts'
import type { Granules, Tokens, Us } from '../../units.ts'
import type { Ahead, Line, PlacementPolicy, Terms } from './placement.ts'

export const leastSeconds: PlacementPolicy = {
  name: 'least-seconds',

  place(core, call, state, candidates, ahead) {
    const luggage = luggageOf(core, call, state)
    let best = candidates[0] as Site
    const [only] = candidates.length === 1 ? candidates : []
    if (only !== undefined) return { site: only, way: wayTo(core, call, luggage, only.engine) }
    let bestWay: Way = 'fresh'
    let bestUs = Number.MAX_SAFE_INTEGER
    for (const site of candidates) {
      const way = wayTo(core, call, luggage, site.engine)
      // Who stays needs no gain.
      const us = totalUs(termsOf(core, call, luggage, site, way, ahead)) - (way === 'kept' ? core.config.placementGainUs : 0)
      if (us >= bestUs) continue
      best = site
      bestWay = way
      bestUs = us
    }
    return { site: best, way: bestWay }
  },

  priced(core, call, state, candidates, ahead) {
    const luggage = luggageOf(core, call, state)
    return candidates.map((site) => {
      const way = wayTo(core, call, luggage, site.engine)
      return { engine: site.engine.id, way, ...termsOf(core, call, luggage, site, way, ahead) }
    })
  },
}

const totalUs = ({ queueUs, prefillUs, transferUs, criticalUs, pressureUs }: Terms): Us =>
  queueUs + prefillUs + transferUs + criticalUs + pressureUs

const nsToUs = (ns: number): Us => Math.round(ns / 1_000)

function termsOf(core: Readonly<CoreState>, call: Readonly<Call>, luggage: Luggage, site: Site, way: Way, ahead: Ahead): Terms {
  const { state } = luggage
  const { engine } = site
  const held = state?.device?.engine === engine.id ? state.device.granules : 0
  const needed = Math.max(0, granulesBy(core, call, state, engine, way) - held)
  const line = ahead.get(engine.id) ?? NOBODY
  const short = shortOf(site, needed, held > 0, line.granules)
  return {
    queueUs: departures(site, line.calls, held > 0, short) * site.departureUs,
    prefillUs: prefillUs(call, luggage, engine, way),
    transferUs: transferUs(core, luggage, engine, way),
    criticalUs: expectedTokens(core, call) * stepUs(engine, engine.running.size + 1),
    pressureUs: pressureUs(engine, short),
  }
}

// ---------------------------------------------------------------- queue and memory

interface Short {
  /** Memory that only a running call could give, and that must be there before it starts. */
  readonly running: Granules
  /** Memory to be had from idle States, and what running calls will soon be short of. */
  readonly other: Granules
}

function shortOf(site: Site, needed: Granules, hasSequence: boolean, aheadGranules: Granules): Short {
  if (site.engine.capabilities.memory === null) return NOTHING_SHORT
  const lacking = needed + aheadGranules - site.freeGranules
  const running = Math.max(0, lacking - site.idleGranules)
  // Without a sequence, somebody idle must leave whatever is free.
  const forSequence = !hasSequence && site.sequencesFull ? site.meanGranules : 0
  return { running, other: Math.max(forSequence, lacking + site.growthGranules - running, 0) }
}
const NOTHING_SHORT: Short = { running: 0, other: 0 }

const NOBODY: Line = { calls: 0, granules: 0 }

function departures({ engine, places, sequencesFull, meanGranules }: Site, callsAhead: number, hasSequence: boolean, short: Short): number {
  const forPlace = Math.max(0, 1 + callsAhead - places)
  const allRun = !hasSequence && sequencesFull && engine.running.size >= engine.sequencesUsed
  return Math.max(forPlace, allRun ? 1 : 0, Math.ceil(short.running / Math.max(1, meanGranules)))
}

function pressureUs(engine: Engine, short: Short): Us {
  const { memory, offload, onboard } = engine.capabilities
  if (memory === null || short.other === 0) return 0
  const { copyOutNsPerToken, copyInNsPerToken, prefillNsPerToken } = engine.speeds
  return nsToUs(short.other * memory.granule * (offload && onboard ? copyOutNsPerToken + copyInNsPerToken : prefillNsPerToken))
}

// ---------------------------------------------------------------- the call itself

function prefillUs(call: Readonly<Call>, luggage: Luggage, engine: Engine, way: Way): Us {
  const { state, fedTokens, byOrigin } = luggage
  const freshTokens = Math.max(0, call.promptTokens - fedTokens)
  const lostTokens = way === 'kept' ? Math.max(0, fedTokens - (state?.device?.tokens ?? 0)) : 0
  const againUs = way === 'recomputed' ? feedAgain(engine, byOrigin, call.exactResume).wallUs : 0
  return againUs + nsToUs((freshTokens + lostTokens) * engine.speeds.prefillNsPerToken)
}

function transferUs(core: Readonly<CoreState>, { state }: Luggage, engine: Engine, way: Way): Us {
  if (way === 'onboarded') return copyInUs(engine, state?.host?.tokens ?? 0)
  if (way !== 'moved' || state?.device == null) return 0
  return copyOutUs(must(core.engines, state.device.engine), state.device.tokens) + copyInUs(engine, state.device.tokens)
}

/** Output still to come, no further than its next grant. */
const expectedTokens = (core: Readonly<CoreState>, call: Readonly<Call>): Tokens =>
  Math.max(0, Math.min(call.maxTokens - call.outputTokens, core.config.grantTokens))

const stepUs = ({ speeds }: Engine, rows: number): Us => nsToUs(speeds.decodeBaseNs + speeds.decodeRowNs * rows)
