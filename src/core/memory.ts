/**
 * Owns the writes to the ledgers of memory, for `apply` only: device granules and sequences of each engine, bytes of the
 * host tier, references of Segments. Keeps invariant 11: free + owned + reserved = total.
 */
import { must } from './assert.ts'
import type { CoreState, DeviceReplica, HostReplica, State } from './state.ts'
import type { SessionId } from './ids.ts'
import type { Tokens } from './units.ts'

/** Sets or changes the device replica, and the engine's ledger with it. */
export function takeDevice(core: CoreState, state: State, replica: DeviceReplica): void {
  releaseDevice(core, state)
  const engine = must(core.engines, replica.engine)
  engine.ownedGranules += replica.granules
  engine.sequencesUsed += 1
  state.device = replica
}

export function releaseDevice(core: CoreState, state: State): void {
  if (state.device === null) return
  const engine = must(core.engines, state.device.engine)
  engine.ownedGranules -= state.device.granules
  engine.sequencesUsed -= 1
  state.device = null
}

export function takeHost(core: CoreState, state: State, replica: HostReplica): void {
  releaseHost(core, state)
  core.host.ownedBytes += replica.bytes
  state.host = replica
}

export function releaseHost(core: CoreState, state: State): void {
  if (state.host === null) return
  core.host.ownedBytes -= state.host.bytes
  state.host = null
}

/** Keeps the first `tokens` of the spans; a Segment nobody refers to goes. */
export function cutSpans(core: CoreState, state: State, tokens: Tokens): void {
  let left = tokens
  const kept: State['spans'] = []
  for (const span of state.spans) {
    if (left > 0) kept.push({ segment: span.segment, tokens: Math.min(span.tokens, left) })
    else dropSegment(core, span.segment)
    left -= span.tokens
  }
  state.spans = kept
}

function dropSegment(core: CoreState, id: State['spans'][number]['segment']): void {
  const segment = must(core.segments, id)
  segment.refs -= 1
  if (segment.refs === 0) core.segments.delete(id)
}

/** A session that has neither a program nor a prefix is nothing. */
export function dropEmptySession(core: CoreState, id: SessionId): void {
  const session = core.sessions.get(id)
  if (session === undefined) return
  if (session.program !== null && !core.programs.has(session.program)) session.program = null
  if (session.program === null && session.states.length === 0) core.sessions.delete(id)
}
