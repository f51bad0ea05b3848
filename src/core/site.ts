/**
 * Owns what is read of an engine for every call of one look at a queue, so that it is worked out once and not for each of
 * them: good until something starts, ends or moves there. Reads only.
 */
import { granulesFree, granulesTotal } from './kv/kv-read.ts'
import type { CoreState, Engine } from './state.ts'
import type { Granules, Us } from './units.ts'

export interface Site {
  readonly engine: Engine
  /** Calls it has a place for; below none where fewer may run than do. */
  readonly places: number
  readonly totalGranules: Granules
  readonly freeGranules: Granules
  /** Whether every sequence is taken. */
  readonly sequencesFull: boolean
  /** What a State there holds in the mean. */
  readonly meanGranules: Granules
  /** What idle States hold: about their share of the sequences. */
  readonly idleGranules: Granules
  /** What running calls will be short of next, all told. */
  readonly growthGranules: Granules
  /** Time from one departure to the next while it is full. */
  readonly departureUs: Us
}

/** Joined engines of the model, but for those that are drained. */
export function sitesOf(core: Readonly<CoreState>, model: string): Site[] {
  const sites: Site[] = []
  for (const engine of core.engines.values()) {
    if (engine.stage === 'joined' && engine.draining !== true && engine.capabilities.models.includes(model)) sites.push(siteOf(core, engine))
  }
  return sites
}

function siteOf(core: Readonly<CoreState>, engine: Engine): Site {
  const { capabilities: { memory, runningMax }, running, resuming, sequencesUsed, ownedGranules } = engine
  const idleSequences = Math.max(0, sequencesUsed - running.size)
  return {
    engine,
    places: runningMax - running.size - resuming,
    totalGranules: granulesTotal(engine),
    freeGranules: granulesFree(engine),
    sequencesFull: memory !== null && sequencesUsed >= memory.sequences,
    meanGranules: Math.floor(ownedGranules / Math.max(1, sequencesUsed)),
    idleGranules: sequencesUsed === 0 ? 0 : Math.floor((ownedGranules * idleSequences) / sequencesUsed),
    growthGranules: memory === null ? 0 : running.size * Math.floor(core.config.grantTokens / memory.granule),
    departureUs: departureUs(core, engine),
  }
}

/** By how long calls stayed there of late; before any left, as if each used its grant. */
function departureUs(core: Readonly<CoreState>, { running, stayUs, speeds }: Engine): Us {
  const rows = Math.max(1, running.size)
  const usualUs = stayUs > 0 ? stayUs : core.config.grantTokens * Math.round((speeds.decodeBaseNs + speeds.decodeRowNs * rows) / 1_000)
  return Math.round(usualUs / rows)
}
