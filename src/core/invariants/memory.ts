/** Owns the law of conservation (11): in every tier free + owned + reserved = total, and a Segment counts who refers to it. */
import type { EngineId, SegmentId } from '../ids.ts'
import { granulesTotal } from '../kv/kv-read.ts'
import type { CoreState, Engine } from '../state.ts'
import { law } from './law.ts'

export function checkMemory(core: Readonly<CoreState>): void {
  const held = heldOf(core)
  for (const engine of core.engines.values()) checkDevice(engine, held.get(engine.id) ?? { owned: 0, reserved: 0, sequences: 0 })
  for (const id of held.keys()) law(11, core.engines.has(id), () => `KV lies on ${id}, which is not known`)
  checkHost(core)
  checkSegments(core)
}

interface Held { owned: number; reserved: number; sequences: number }

/** What States and moves say lies on each engine. */
function heldOf(core: Readonly<CoreState>): Map<EngineId, Held> {
  const held = new Map<EngineId, Held>()
  const of = (engine: EngineId): Held => {
    const known = held.get(engine) ?? { owned: 0, reserved: 0, sequences: 0 }
    held.set(engine, known)
    return known
  }
  for (const { device } of core.states.values()) {
    if (device === null) continue
    of(device.engine).owned += device.granules
    of(device.engine).sequences += 1
  }
  for (const move of core.moves.values()) {
    if (move.to !== 'device') continue
    of(move.engine).reserved += move.reservedGranules
    of(move.engine).sequences += 1
  }
  return held
}

function checkDevice(engine: Engine, held: Held): void {
  const { memory } = engine.capabilities
  law(11, held.owned === engine.ownedGranules && held.reserved === engine.reservedGranules,
    () => `${engine.id}: ${engine.ownedGranules} owned and ${engine.reservedGranules} reserved in the ledger, ${held.owned} and ${held.reserved} in fact`)
  law(11, held.sequences === engine.sequencesUsed, () => `${engine.id}: ${engine.sequencesUsed} sequences in the ledger, ${held.sequences} in fact`)
  if (memory === null) return
  law(11, held.owned + held.reserved <= granulesTotal(engine), () => `${engine.id} gave out ${held.owned + held.reserved} of ${granulesTotal(engine)} granules`)
  law(11, held.sequences <= memory.sequences, () => `${engine.id} gave out ${held.sequences} of ${memory.sequences} sequences`)
}

function checkHost(core: Readonly<CoreState>): void {
  const { host } = core
  let owned = 0
  let reserved = 0
  for (const state of core.states.values()) owned += state.host?.bytes ?? 0
  for (const move of core.moves.values()) reserved += move.reservedBytes
  law(11, owned === host.ownedBytes && reserved === host.reservedBytes,
    () => `host: ${host.ownedBytes} owned and ${host.reservedBytes} reserved in the ledger, ${owned} and ${reserved} in fact`)
  law(11, owned + reserved <= host.totalBytes, () => `host gave out ${owned + reserved} of ${host.totalBytes} bytes`)
}

function checkSegments(core: Readonly<CoreState>): void {
  const refs = new Map<SegmentId, number>()
  for (const state of core.states.values()) {
    for (const span of state.spans) {
      const segment = core.segments.get(span.segment)
      law(11, segment !== undefined && span.tokens > 0 && span.tokens <= segment.tokens, () => `${state.id} refers to ${span.tokens} tokens of ${span.segment}, which has ${segment?.tokens ?? 0}`)
      refs.set(span.segment, (refs.get(span.segment) ?? 0) + 1)
    }
  }
  for (const segment of core.segments.values()) {
    law(11, refs.get(segment.id) === segment.refs, () => `${segment.id} counts ${segment.refs} references and has ${refs.get(segment.id) ?? 0}`)
  }
}
