/**
 * Owns the writes to the ledgers of memory, for `apply` only: device granules and sequences of each engine, bytes of the
 * host tier, references of Segments and of token records; and what holding costs a tenant's share. Keeps invariant 11:
 * free + owned + reserved = total.
 */
import { must } from '../assert.ts'
import { callId, type SessionId, type TenantId } from '../ids.ts'
import { granulesTotal } from './kv-read.ts'
import { chargeShares } from '../queue/queue.ts'
import type { Call, CoreState, DeviceReplica, HostReplica, Session, State } from '../state.ts'
import type { Tokens, Us } from '../units.ts'

/** Sets or changes the device replica, and the engine's ledger with it. */
export function takeDevice(core: CoreState, state: State, replica: Omit<DeviceReplica, 'sinceUs'>): void {
  releaseDevice(core, state)
  const engine = must(core.engines, replica.engine)
  engine.ownedGranules += replica.granules
  engine.sequencesUsed += 1
  state.device = { ...replica, sinceUs: core.nowUs }
}

export function releaseDevice(core: CoreState, state: State): void {
  if (state.device === null) return
  chargeDevice(core, state, state.device)
  const engine = must(core.engines, state.device.engine)
  engine.ownedGranules -= state.device.granules
  engine.sequencesUsed -= 1
  engine.idle.delete(state.id)
  state.device = null
}

export function takeHost(core: CoreState, state: State, replica: Omit<HostReplica, 'sinceUs'>): void {
  releaseHost(core, state)
  core.host.ownedBytes += replica.bytes
  state.host = { ...replica, sinceUs: core.nowUs }
}

export function releaseHost(core: CoreState, state: State): void {
  if (state.host === null) return
  chargeHost(core, state, state.host)
  core.host.ownedBytes -= state.host.bytes
  core.hosted.delete(state.id)
  state.host = null
}

/** The only way a continuation changes place, so that the sets of idle and of hosted States are always just these. */
export function reside(core: CoreState, state: State, residence: State['residence']): void {
  const suspended = residence.kind === 'suspended'
  state.residence = residence
  if (residence.kind === 'gone') delete state.plainFor
  if (state.device !== null) setMember(must(core.engines, state.device.engine).idle, state.id, suspended)
  setMember(core.hosted, state.id, suspended && state.host !== null)
}

function setMember<T>(set: Set<T>, item: T, belongs: boolean): void {
  if (!belongs) set.delete(item)
  else set.add(item)
}

// ---------------------------------------------------------------- what holding costs

/** What its owner's shares owe for KV held until now; from now on somebody else may hold it. */
export function chargeHold(core: CoreState, state: State): void {
  if (state.device !== null) {
    chargeDevice(core, state, state.device)
    state.device = { ...state.device, sinceUs: core.nowUs }
  }
  if (state.host !== null) {
    chargeHost(core, state, state.host)
    state.host = { ...state.host, sinceUs: core.nowUs }
  }
}

function chargeDevice(core: CoreState, state: State, { engine, granules, sinceUs }: DeviceReplica): void {
  const total = granulesTotal(must(core.engines, engine))
  if (total === 0) return
  const share = (granules / total) * (core.prices.deviceSecondMicro / 1_000_000)
  chargeShares(core, holderOf(core, state), Math.round((core.nowUs - sinceUs) * share))
}

function chargeHost(core: CoreState, state: State, { bytes, sinceUs }: HostReplica): void {
  const share = (bytes / MEBIBYTE) * (core.prices.hostMebibyteSecondMicro / 1_000_000)
  chargeShares(core, holderOf(core, state), Math.round((core.nowUs - sinceUs) * share))
}

const MEBIBYTE = 1 << 20

/** A State is held for its thread's call; a prefix, for its tenant. */
function holderOf(core: CoreState, state: State): Pick<Call, 'model' | 'band' | 'payer'> {
  const thread = state.owner.kind === 'thread' ? core.threads.get(state.owner.thread) : undefined
  const call = core.calls.get(thread?.active ?? thread?.last ?? NO_CALL)
  return call ?? { model: state.model, band: 'default', payer: state.tenant }
}

const NO_CALL = callId('')

// ---------------------------------------------------------------- Segments and sessions

/** Keeps the first `tokens` of the spans; a Segment nobody refers to goes. */
export function cutSpans(core: CoreState, state: State, tokens: Tokens): void {
  let left = tokens
  const kept: State['spans'] = []
  for (const span of state.spans) {
    if (left > 0) kept.push({ ...span, tokens: Math.min(span.tokens, left) })
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

/** A State that continues what another does: its Segments and its token record are one more's. */
export function shareSpans(core: CoreState, from: State, to: State): void {
  to.spans = from.spans.map((span) => ({ ...span }))
  for (const { segment } of to.spans) must(core.segments, segment).refs += 1
  to.record = from.record
  if (to.record !== null) core.sharedRecords.set(to.record, (core.sharedRecords.get(to.record) ?? 0) + 1)
}

/** A State no longer continues its token record. */
export function leaveRecord(core: CoreState, state: State): void {
  const shared = state.record === null ? undefined : core.sharedRecords.get(state.record)
  if (state.record === null || shared === undefined) return
  if (shared > 1) core.sharedRecords.set(state.record, shared - 1)
  else core.sharedRecords.delete(state.record)
}

/** It is there as long as its newest program or a prefix is, and comes back with a prefix of an older one. */
export function sessionOf(core: CoreState, id: SessionId, tenant: TenantId): Session {
  let session = core.sessions.get(id)
  if (session === undefined) core.sessions.set(id, session = { id, tenant, states: [], program: null })
  return session
}

/** A session that has neither a program nor a prefix is nothing. */
export function dropEmptySession(core: CoreState, id: SessionId): void {
  const session = core.sessions.get(id)
  if (session === undefined) return
  if (session.program !== null && !core.programs.has(session.program)) session.program = null
  if (session.program === null && session.states.length === 0) core.sessions.delete(id)
}
