/**
 * Owns the prices of Preserve, Offload and Discard in one unit (seed section 12): micro-units, of which a million buy one
 * engine-second. What is counted, and where, so that nothing is counted twice:
 *
 *   Preserve  device granules held while waiting x the price of a granule-second
 *   Offload   copy out + P(returns) x copy in, both as engine time (copies run between batches, so contention is in
 *             them) + host bytes held x their price
 *   Discard   P(returns) x the engine time of feeding the State again, as it will be done: what was prefilled at the
 *             prefill speed; what was decoded at the cost of its own row in a shared batch where the recompute is exact,
 *             and at the prefill speed where it is plain
 *
 * The price of memory is a shadow price, by the share of the engine's memory that is held, whatever its granule. Nobody waits
 * for memory: almost nothing (`idleMemorySecondMicro` for all of it). Somebody does: an engine loses about the share of its
 * throughput that the share of memory is which cannot be used.
 */
import type { CoreState, Engine, State } from '../state.ts'
import { must } from '../assert.ts'
import { isExact, stateTokens, tokensByOrigin } from './kv-read.ts'
import { SECOND_US, type Bytes, type Granules, type MicroCost, type Tokens, type Us } from '../units.ts'

const MEBIBYTE = 1 << 20

/** Time x price in micro-units per second. */
const over = (timeUs: Us, microPerSecond: number): MicroCost => Math.round((timeUs * microPerSecond) / SECOND_US)
const nsToUs = (ns: number): Us => Math.round(ns / 1_000)

/** Engine time is the unit: a microsecond of it costs one micro-unit. */
const engineTime = (timeUs: Us): MicroCost => timeUs

export const copyOutUs = (engine: Engine, tokens: Tokens): Us => nsToUs(tokens * engine.speeds.copyOutNsPerToken)
export const copyInUs = (engine: Engine, tokens: Tokens): Us => nsToUs(tokens * engine.speeds.copyInNsPerToken)
export const imageBytes = (engine: Engine, tokens: Tokens): Bytes => tokens * engine.capabilities.kvBytesPerToken

/** What an image may take on host: its bytes and a manifest; one that turns out larger fails its move. */
export const imageReserveBytes = (engine: Engine, tokens: Tokens): Bytes => imageBytes(engine, tokens) + IMAGE_OVERHEAD_BYTES
const IMAGE_OVERHEAD_BYTES = 64 * 1_024

/**
 * Engine time of feeding so many tokens of each origin again, and how long that takes if it has the engine to itself.
 * `exact`: whether tokens are wanted as they were.
 */
export function feedAgain(engine: Engine, { prefilled, decoded }: { prefilled: Tokens; decoded: Tokens }, exact: boolean): { workUs: Us; wallUs: Us } {
  const { prefillNsPerToken, decodeBaseNs, decodeRowNs } = engine.speeds
  if (!exact || !isExact(engine)) {
    const workUs = nsToUs((prefilled + decoded) * prefillNsPerToken)
    return { workUs, wallUs: workUs }
  }
  const company = Math.max(1, Math.min(engine.running.size, engine.capabilities.runningMax))
  const prefillUs = nsToUs(prefilled * prefillNsPerToken)
  return {
    workUs: prefillUs + nsToUs(decoded * (decodeRowNs + Math.round(decodeBaseNs / company))),
    wallUs: prefillUs + nsToUs(decoded * (decodeBaseNs + decodeRowNs * company)),
  }
}

/** Micro-units for so much of this engine's memory, held for one second. */
export function memorySecondMicro(core: Readonly<CoreState>, engine: Engine, granules: Granules, wanted: boolean): number {
  const { memory } = engine.capabilities
  if (memory === null) return 0
  const allMicro = wanted ? 1_000_000 : core.config.idleMemorySecondMicro
  return Math.round((allMicro * granules * memory.granule) / memory.cells)
}

export const preserveCost = (holdUs: Us, microPerSecond: number): MicroCost => over(holdUs, microPerSecond)

export function offloadCost(core: Readonly<CoreState>, state: Readonly<State>, engine: Engine, holdUs: Us, returnPpm: number): MicroCost {
  const tokens = stateTokens(state)
  const bytes = imageBytes(engine, tokens)
  return engineTime(copyOutUs(engine, tokens))
    + Math.round((engineTime(copyInUs(engine, tokens)) * returnPpm) / 1_000_000)
    + Math.round((over(holdUs, core.config.hostMebibyteSecondMicro) * bytes) / MEBIBYTE)
}

export function discardCost(core: Readonly<CoreState>, state: Readonly<State>, engine: Engine, returnPpm: number): MicroCost {
  return Math.round((engineTime(feedAgain(engine, tokensByOrigin(state), core.config.exactResume).workUs) * returnPpm) / 1_000_000)
}

/** The engine a State's costs are reckoned with: where it is, or the first that can run it. */
export function engineOf(core: Readonly<CoreState>, state: Readonly<State>): Engine | null {
  if (state.device !== null) return must(core.engines, state.device.engine)
  for (const engine of core.engines.values()) {
    if (engine.stage === 'joined' && engine.capabilities.models.includes(state.model)) return engine
  }
  return null
}
