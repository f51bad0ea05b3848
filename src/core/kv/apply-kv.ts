/**
 * Owns the writes of `kv.*` facts; part of `apply.ts`. A move is two facts: the first reserves in the target and leaves
 * the owner alone, the second publishes at once or drops the reservation (invariants 5, 11).
 */
import { assert, must } from '../assert.ts'
import type { Fact } from '../fact.ts'
import { spanTokens } from './kv-read.ts'
import { moveTo, prepay } from '../apply-call.ts'
import { chargeHold, cutSpans, dropEmptySession, leaveRecord, releaseDevice, releaseHost, reside, sessionOf, takeDevice, takeHost } from './memory.ts'
import type { CoreState, Move, State } from '../state.ts'
import type { Us } from '../units.ts'

type Of<Kind extends Fact['kind']> = Extract<Fact, { kind: Kind }>

export function applyKv(core: CoreState, fact: Fact, atUs: Us): boolean {
  switch (fact.kind) {
    case 'kv.offload.begun':
      beginMove(core, {
        id: fact.move, state: fact.state, engine: fact.engine, from: 'device', to: 'host', tokens: fact.tokens,
        reservedGranules: 0, reservedBytes: fact.reservedBytes, begunUs: atUs, forCall: null,
      })
      return true
    case 'kv.onboard.begun':
      beginOnboard(core, fact, atUs)
      return true
    case 'kv.moved':
      publish(core, fact, atUs)
      return true
    case 'kv.move.failed':
      undo(core, fact)
      return true
    case 'kv.discarded':
      discard(core, fact)
      return true
    case 'kv.settled':
      settle(core, fact, atUs)
      return true
    case 'kv.found': {
      const state = must(core.states, fact.state)
      takeDevice(core, state, { engine: fact.engine, tokens: fact.tokens, granules: fact.granules })
      reside(core, state, { kind: 'suspended', tier: 'device' })
      return true
    }
    case 'kv.adopted': {
      const state = must(core.states, fact.state)
      const session = must(core.sessions, fact.session)
      session.states = session.states.filter((id) => id !== fact.state)
      state.owner = { kind: 'thread', thread: fact.thread }
      must(core.threads, fact.thread).state = fact.state
      return true
    }
    case 'kv.forgotten':
      forget(core, must(core.states, fact.state))
      return true
    default:
      return false
  }
}

function beginMove(core: CoreState, move: Move): void {
  core.moves.set(move.id, move)
  core.host.reservedBytes += move.reservedBytes
  const engine = must(core.engines, move.engine)
  engine.reservedGranules += move.reservedGranules
  if (move.to === 'device') engine.sequencesUsed += 1
  engine.moves.add(move.id)
  if (move.forCall !== null) engine.resuming += 1
  reside(core, must(core.states, move.state), { kind: 'moving', move: move.id })
}

function endMove(core: CoreState, id: Move['id']): Move {
  const move = must(core.moves, id)
  core.moves.delete(id)
  core.host.reservedBytes -= move.reservedBytes
  const engine = must(core.engines, move.engine)
  engine.reservedGranules -= move.reservedGranules
  if (move.to === 'device') engine.sequencesUsed -= 1
  engine.moves.delete(id)
  if (move.forCall !== null) engine.resuming -= 1
  return move
}

function beginOnboard(core: CoreState, fact: Of<'kv.onboard.begun'>, atUs: Us): void {
  beginMove(core, {
    id: fact.move, state: fact.state, engine: fact.engine, from: 'host', to: 'device', tokens: fact.tokens,
    reservedGranules: fact.reservedGranules, reservedBytes: 0, begunUs: atUs, forCall: fact.forCall,
  })
  if (fact.forCall === null) return
  const call = must(core.calls, fact.forCall)
  moveTo(core, call, { kind: 'resuming', engine: fact.engine, move: fact.move, sinceUs: atUs })
  prepay(core, call, fact.expectedWorkUs)
}

function publish(core: CoreState, fact: Of<'kv.moved'>, atUs: Us): void {
  const move = endMove(core, fact.move)
  const state = must(core.states, move.state)
  if (move.to === 'host') {
    const { imageKey } = must(core.engines, move.engine).capabilities
    assert(imageKey !== null, `${move.engine} made an image and names no key`)
    releaseDevice(core, state)
    takeHost(core, state, { image: move.id, tokens: move.tokens, bytes: fact.bytes, digest: fact.digest, imageKey })
    reside(core, state, { kind: 'suspended', tier: 'host' })
    return
  }
  releaseHost(core, state)
  takeDevice(core, state, { engine: move.engine, tokens: Math.min(move.tokens, spanTokens(state) + state.tail.prefilled + state.tail.decoded), granules: move.reservedGranules })
  reside(core, state, { kind: 'suspended', tier: 'device' })
  state.lastUsedUs = atUs
}

/** The one undo path: the reservation goes, the source stays unless it is what was lost. */
function undo(core: CoreState, fact: Of<'kv.move.failed'>): void {
  const move = endMove(core, fact.move)
  const state = must(core.states, move.state)
  if (fact.sourceLost && move.from === 'host') releaseHost(core, state)
  if (fact.sourceLost && move.from === 'device') releaseDevice(core, state)
  restAt(core, state)
}

function discard(core: CoreState, fact: Of<'kv.discarded'>): void {
  const state = must(core.states, fact.state)
  if (fact.tier === 'device') releaseDevice(core, state)
  else releaseHost(core, state)
  if (state.residence.kind !== 'moving') restAt(core, state)
}

function restAt(core: CoreState, state: State): void {
  if (state.device !== null) reside(core, state, { kind: 'suspended', tier: 'device' })
  else if (state.host !== null) reside(core, state, { kind: 'suspended', tier: 'host' })
  else reside(core, state, { kind: 'gone' })
}

function settle(core: CoreState, fact: Of<'kv.settled'>, atUs: Us): void {
  const state = must(core.states, fact.state)
  chargeHold(core, state)
  leaveOwner(core, state)
  state.owner = fact.owner
  state.idleSinceUs = atUs
  if (fact.owner.kind === 'session') sessionOf(core, fact.owner.session, state.tenant).states.push(state.id)
}

function leaveOwner(core: CoreState, state: State): void {
  if (state.owner.kind === 'thread') {
    const thread = core.threads.get(state.owner.thread)
    if (thread?.state === state.id) thread.state = null
  }
  if (state.owner.kind === 'session') {
    const session = core.sessions.get(state.owner.session)
    if (session !== undefined) session.states = session.states.filter((id) => id !== state.id)
    dropEmptySession(core, state.owner.session)
  }
}

function forget(core: CoreState, state: State): void {
  assert(state.device === null && state.host === null, `${state.id} is forgotten with bytes held`)
  leaveOwner(core, state)
  cutSpans(core, state, 0)
  leaveRecord(core, state)
  core.states.delete(state.id)
}
