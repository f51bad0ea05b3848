/** Owns the questions asked of States and memory, by policies and by the core alike. Reads only. */
import { must } from '../assert.ts'
import { areParentsCommitted } from '../graph/graph-read.ts'
import type { CallId, StateId } from '../ids.ts'
import { candidates } from '../queue/queue.ts'
import type { Call, CoreState, Engine, State } from '../state.ts'
import type { Bytes, Granules, Tokens } from '../units.ts'

/** Tokens committed as Segments. */
export const spanTokens = (state: Readonly<State>): Tokens => state.spans.reduce((sum, span) => sum + span.tokens, 0)

/** All tokens of the continuation: Segments and tail. */
export const stateTokens = (state: Readonly<State>): Tokens =>
  spanTokens(state) + state.tail.prefilled + state.tail.decoded

export function tokensByOrigin(state: Readonly<State>): { prefilled: Tokens; decoded: Tokens } {
  const sum = { prefilled: state.tail.prefilled, decoded: state.tail.decoded }
  for (const { origin, tokens } of state.spans) sum[origin] += tokens
  return sum
}

/** The same of its first tokens only. */
export function originsOf(state: Readonly<State>, firstTokens: Tokens): { prefilled: Tokens; decoded: Tokens } {
  const sum = { prefilled: 0, decoded: 0 }
  let left = firstTokens
  for (const span of state.spans) {
    const tokens = Math.min(span.tokens, left)
    sum[span.origin] += tokens
    left -= tokens
  }
  sum.prefilled += Math.min(state.tail.prefilled, left)
  sum.decoded += Math.min(state.tail.decoded, Math.max(0, left - state.tail.prefilled))
  return sum
}

/** Whether a recompute on this engine would replay origins, so that the same tokens come out. */
export const isExact = (engine: Readonly<Engine>): boolean =>
  engine.capabilities.exact.answer === 'yes' && engine.capabilities.replayByOrigin

export const granulesTotal = (engine: Readonly<Engine>): Granules => {
  const memory = engine.capabilities.memory
  return memory === null ? 0 : Math.floor(memory.cells / memory.granule)
}
export const granulesFree = (engine: Readonly<Engine>): Granules =>
  granulesTotal(engine) - engine.ownedGranules - engine.reservedGranules

export const hostFreeBytes = (core: Readonly<CoreState>): Bytes =>
  core.host.totalBytes - core.host.ownedBytes - core.host.reservedBytes

/** Granules that so many tokens take. */
export const granulesOf = (engine: Readonly<Engine>, tokens: Tokens): Granules =>
  engine.capabilities.memory === null ? 0 : Math.max(1, Math.ceil(tokens / engine.capabilities.memory.granule))

/**
 * Granules a call must have to start: its prompt, what it generated, and a step of its output grant; the step is shorter
 * where the whole engine holds no more.
 */
export function granulesFor(core: Readonly<CoreState>, engine: Readonly<Engine>, call: Readonly<Call>): Granules {
  const { contextTokens, memory } = engine.capabilities
  const output = Math.min(call.maxTokens, call.outputTokens + core.config.grantTokens)
  const nextTokens = call.promptTokens + Math.min(output, call.outputTokens + 1)
  const mostTokens = memory === null ? contextTokens : Math.max(nextTokens, granulesTotal(engine) * memory.granule)
  return granulesOf(engine, Math.min(call.promptTokens + output, contextTokens, mostTokens))
}

/** Whether the engine, were it empty, could run the call. */
export const couldHold = (core: Readonly<CoreState>, engine: Readonly<Engine>, call: Readonly<Call>): boolean =>
  engine.capabilities.models.includes(call.model)
  && (engine.capabilities.memory === null
    || (call.promptTokens <= engine.capabilities.contextTokens && granulesFor(core, engine, call) <= granulesTotal(engine)))

/** Whether the next ready calls would take more than the engine has free; how many calls are looked at is limited. */
export function isMemoryWanted(core: Readonly<CoreState>, engine: Readonly<Engine>): boolean {
  const free = granulesFree(engine)
  let wanted = 0
  for (const model of engine.capabilities.models) {
    const queue = core.queues.get(model)
    if (queue === undefined || queue.size === 0) continue
    let seen = 0
    for (const id of candidates(queue)) {
      const call = must(core.calls, id)
      if (stateOf(core, call)?.device == null) wanted += granulesFor(core, engine, call)
      if (wanted > free) return true
      seen += 1
      if (seen > core.config.dispatchWindow) break
    }
  }
  return false
}

/** Granules that become free, or idle, when the moves under way and the pauses told are done. */
export function granulesLeaving(core: Readonly<CoreState>, engine: Readonly<Engine>): Granules {
  let sum = 0
  for (const id of engine.moves) {
    const move = must(core.moves, id)
    if (move.from === 'device') sum += must(core.states, move.state).device?.granules ?? 0
  }
  for (const id of engine.pausing) sum += stateOf(core, must(core.calls, id))?.device?.granules ?? 0
  return sum
}

/** Sequences that are left when the moves under way are done, or idle when the pauses told are. */
export function sequencesLeaving(core: Readonly<CoreState>, engine: Readonly<Engine>): number {
  let count = engine.pausing.size
  for (const id of engine.moves) if (must(core.moves, id).from === 'device') count += 1
  return count
}

/** The call of the thread that owns this State, where one is open, has a client, and nothing but us keeps it from running. */
export function callWaitingOn(core: Readonly<CoreState>, state: Readonly<State>): Call | null {
  if (state.owner.kind !== 'thread') return null
  const active = core.threads.get(state.owner.thread)?.active ?? null
  const call = active === null ? null : must(core.calls, active)
  return call !== null && call.stage.kind !== 'detached' && areParentsCommitted(core, call) ? call : null
}

/** States idle on a device: nobody runs on them, nobody copies them; of the longest idle, `victimsMax`. */
export const idleStates = (core: Readonly<CoreState>, engine: Readonly<Engine>): State[] => first(core, engine.idle)

/** States whose continuation is on host; of the longest there, `victimsMax`. */
export const hostStates = (core: Readonly<CoreState>): State[] => first(core, core.hosted)

function first(core: Readonly<CoreState>, ids: ReadonlySet<StateId>): State[] {
  const states: State[] = []
  for (const id of ids) {
    if (states.length === core.config.victimsMax) break
    states.push(must(core.states, id))
  }
  return states
}

/** The token record that nobody continues once this State does not. */
export const lastRecordOf = (core: Readonly<CoreState>, state: Readonly<State> | null): CallId | null =>
  state?.record == null || core.sharedRecords.has(state.record) ? null : state.record

export const stateOf = (core: Readonly<CoreState>, call: Readonly<Call>): State | null => {
  const id: StateId | null = core.threads.get(call.thread)?.state ?? null
  return id === null ? null : must(core.states, id)
}
