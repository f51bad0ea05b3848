/**
 * Owns the exhaustive exploration of a small world: a few programs of two calls each, a few engines, and at most one fault
 * anywhere. Every interleaving of what could come next is tried from every state, to a depth; states that differ only in
 * numbers of sequence are one. The laws are checked after every step, and from every leaf everything is drained: what can
 * finish must, and all memory be free.
 */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { emptyCore } from '../../src/core/apply.ts'
import { CORE_DEFAULTS, type CoreConfig } from '../../src/core/config.ts'
import { bodyId, callId, engineId, programId, tenantId } from '../../src/core/ids.ts'
import type { FromAttempt, Held, Input } from '../../src/core/input.ts'
import { checkInvariants } from '../../src/core/invariants.ts'
import { nothingSeen, type Seen } from '../../src/core/invariants/law.ts'
import { checkNobodyIsStuck } from '../../src/core/invariants/waiting.ts'
import { isOver } from '../../src/core/call-read.ts'
import { spanTokens } from '../../src/core/kv/kv-read.ts'
import { step } from '../../src/core/step.ts'
import type { Call, Capabilities, CoreState } from '../../src/core/state.ts'
import { REPORT } from './quiet.ts'
import { CLAIMS, LANES, SPEEDS } from './world.ts'

export interface SmallWorld {
  readonly name: string
  readonly programs: number
  readonly engines: readonly Capabilities[]
  readonly config?: Partial<CoreConfig>
  /** Faults anywhere in one history: 0 or 1. */
  readonly faults: number
  /** Steps; states that deep are leaves. */
  readonly depth: number
}

export interface Explored { states: number; steps: number; leaves: number; deepest: number }

/** Where a world can be: the core, and what its clients have done. */
interface Place {
  readonly core: CoreState
  readonly sent: readonly number[]
  readonly faults: number
}
interface Move { readonly name: string; readonly input: Input; readonly fault: boolean; readonly client: number | null }

/** One lane, room for one State on host: everything has to be fought for. */
export const ONE_LANE: Capabilities = { ...LANES, runningMax: 1, memory: { cells: 1_024, granule: 1_024, sequences: 1 } }

const TENANT = tenantId('t')
const CALLS_EACH = 2

export function explore(world: SmallWorld): Explored {
  const seen = new Set<string>()
  const drains = new Set<string>()
  const explored: Explored = { states: 0, steps: 0, leaves: 0, deepest: 0 }
  let frontier: Place[] = [begin(world)]
  for (let depth = 0; frontier.length > 0; depth += 1) {
    const next: Place[] = []
    for (const place of frontier) {
      const moves = depth < world.depth ? movesFrom(world, place) : []
      explored.deepest = depth
      if (moves.length === 0) {
        explored.leaves += 1
        drain(world, place, drains)
      }
      const lawful = nothingSeen()
      checkInvariants(place.core, lawful)
      for (const move of moves) {
        const there = take(place, move, lawful)
        explored.steps += 1
        const text = digest(there)
        if (seen.has(text)) continue
        seen.add(text)
        next.push(there)
      }
    }
    frontier = next
  }
  explored.states = seen.size + 1
  return explored
}

function begin(world: SmallWorld): Place {
  const core = emptyCore({ ...CORE_DEFAULTS, hostBytesMax: 80_000, grantTokens: 32, ...world.config })
  step(core, { kind: 'restart', reign: 1, wallOffsetUs: 0, images: [] }, 1_000_000)
  for (const [index, capabilities] of world.engines.entries()) {
    step(core, { kind: 'engineJoined', engine: engineId(`e${index}`), reign: 1, capabilities, speeds: SPEEDS }, 1_000_000)
  }
  return { core, sent: new Array<number>(world.programs).fill(0), faults: 0 }
}

/** The step, with the laws after it; a failure says by which move, and where from. */
function take(from: Place, move: Move, seen: Seen): Place {
  const core = copy(from.core)
  const nowUs = move.input.kind === 'due' ? Math.max(core.nowUs, core.timers.get(move.input.timer) ?? 0) : core.nowUs
  try {
    step(core, move.input, nowUs)
    checkInvariants(core, { ...seen, programs: new Map(seen.programs) })
    checkNobodyIsStuck(core)
  } catch (error) {
    throw new Error(`${move.name} from ${canonical(from)}: ${String(error)}`, { cause: error })
  }
  const sent = from.sent.map((count, index) => (index === move.client ? count + 1 : count))
  return { core, sent, faults: from.faults + (move.fault ? 1 : 0) }
}

/** Without choice and without faults, to the end; timers of every kind come due when nothing else can happen. */
function drain(world: SmallWorld, from: Place, drains: Set<string>): void {
  const seen = nothingSeen()
  checkInvariants(from.core, seen)
  let place = { ...from, faults: world.faults }
  for (let steps = 0; steps < 500; steps += 1) {
    const text = digest(place)
    if (drains.has(text)) return
    drains.add(text)
    const [move] = movesFrom(world, place)
    const timer = [...place.core.timers].sort((a, b) => a[1] - b[1] || (a[0] < b[0] ? -1 : 1))[0]
    if (move !== undefined) place = take(place, move, seen)
    else if (timer !== undefined) place = take(place, { name: timer[0], input: { kind: 'due', timer: timer[0] }, fault: false, client: null }, seen)
    else break
  }
  const { core } = place
  const left = { calls: core.openCalls, states: core.states.size, segments: core.segments.size, moves: core.moves.size, hostBytes: core.host.ownedBytes + core.host.reservedBytes, open: [...core.programs.values()].filter(({ stage }) => stage.kind === 'open').length }
  assert.deepEqual(left, { calls: 0, states: 0, segments: 0, moves: 0, hostBytes: 0, open: 0 }, `something is left, from ${canonical(from)}`)
}

// ---------------------------------------------------------------- what could come next

function movesFrom(world: SmallWorld, { core, sent, faults }: Place): Move[] {
  const moves: Move[] = []
  const add = (name: string, input: Input, fault = false, client: number | null = null): void => void moves.push({ name, input, fault, client })
  for (const call of core.calls.values()) ofCall(core, call, add)
  for (const { id, engine } of core.moves.values()) {
    add(`copied ${id}`, { kind: 'moveDone', engine, reign: core.reign, move: id, bytes: 7_000, digest: 'x', copyUs: 5 })
  }
  for (const engine of core.engines.values()) {
    if (engine.stage !== 'lost') continue
    const joins = { kind: 'engineJoined', engine: engine.id, reign: core.reign, capabilities: engine.capabilities, speeds: SPEEDS } as const
    add(`join ${engine.id}`, joins)
    // Cut off, and back with all that it may still hold.
    const inventory = engine.capabilities.inventory ? heldOf(core) : []
    if (inventory.length > 0) add(`return ${engine.id}`, { ...joins, inventory })
  }
  for (const [index, count] of sent.entries()) {
    const next = clientSends(core, index, count)
    const again = core.calls.get(callId(`${index}-${count}`))?.stage.kind === 'detached'
    if (next !== null) add(`send ${index}`, next, false, again ? null : index)
  }
  const reconsider = [...core.timers].filter(([timer]) => timer.startsWith('reconsider:')).sort((a, b) => a[1] - b[1])[0]
  if (reconsider !== undefined) add(reconsider[0], { kind: 'due', timer: reconsider[0] })
  if (faults < world.faults) for (const [name, input] of faultsOf(core)) add(name, input, true)
  return moves
}

/** Every State whose KV is nowhere, as an engine would report it that never lost it. */
const heldOf = (core: CoreState): Held[] => [...core.states.values()].flatMap(({ id, owner, residence, spans }) => {
  const last = core.segments.get(spans.at(-1)?.segment as never)
  const program = owner.kind === 'thread' ? core.programs.get(core.threads.get(owner.thread)?.program as never) : undefined
  const tokens = spans.reduce((sum, span) => sum + span.tokens, 0)
  return residence.kind === 'gone' && last !== undefined && program !== undefined ? [{ state: id, epoch: program.epoch, tokens, digest: last.digest }] : []
})

type Add = (name: string, input: Input) => void

function ofCall(core: CoreState, call: Call, add: Add): void {
  const { kind } = call.stage
  if (kind === 'arrived' && core.threads.get(call.thread)?.active === call.id) {
    const id = core.threads.get(call.thread)?.state
    const state = id == null ? undefined : core.states.get(id)
    const tokens = state === undefined ? 0 : spanTokens(state)
    add(`measure ${call.id}`, {
      kind: 'measured', call: call.id, promptTokens: tokens + 60, renderingWon: null,
      matched: state?.record == null ? null : { record: state.record, tokens },
    })
  }
  if (call.stage.kind !== 'running' && call.stage.kind !== 'pausing') return
  const from = attemptOf(core, call, call.stage.engine)
  if (kind === 'pausing') add(`pause ${call.id}`, { kind: 'paused', ...from, report: { ...REPORT, tailDecoded: 4, outputTokens: 5 } })
  add(`finish ${call.id}`, finish(call, from))
}

const attemptOf = (core: CoreState, call: Call, engine: FromAttempt['engine']): FromAttempt =>
  ({ engine, reign: core.reign, call: call.id, attempt: call.attempt, run: call.preemptions, epoch: call.epoch })

const finish = (call: Call, from: FromAttempt): Input => ({
  kind: 'finished', ...from, report: REPORT, parts: { waitUs: 0, recomputeUs: 0, prefillUs: 1, decodeUs: 1 },
  spans: [{ tokens: 60, origin: 'prefilled', digest: 'a' }, { tokens: 9, origin: 'decoded', digest: 'b' }], resume: 'none', toolEffect: 'idempotent',
  ...(call.final ? { finish: 'stop', toolCalls: [] } : { finish: 'tool_calls', toolCalls: [{ id: `tool-${call.id}`, name: 'search' }] }),
})

/** A client sends its next call when the one before is over; one that is detached it sends again. */
function clientSends(core: CoreState, index: number, count: number): Input | null {
  const program = core.programs.get(programId(TENANT, `p${index}`))
  if (program !== undefined && program.stage.kind !== 'open' && !(program.stage.kind === 'ended' && program.stage.provisional)) return null
  const before = core.calls.get(callId(`${index}-${count}`))
  if (before?.stage.kind === 'detached') return submit(index, count, [], `again-${before.attempt}`)
  if (count === CALLS_EACH || (before !== undefined && !isOver(before))) return null
  const waits = before?.stage.kind === 'committed' && core.threads.get(before.thread)?.interrupt != null
  return submit(index, count + 1, waits ? [`tool-${before.id}`] : [])
}

const submit = (index: number, number: number, toolResults: readonly string[], again = ''): Input => ({
  kind: 'submit', tenant: TENANT, call: callId(`${index}-${number}${again}`), body: bodyId('b'), freshProgram: 'fresh', model: 'm',
  claims: { ...CLAIMS, program: `p${index}`, toolResults, final: number === CALLS_EACH, identity: { source: 'explicit', confidence: 100 } },
  digest: `${index}-${number}`, seed: 1, promptTokensEstimate: 60, maxTokens: 40, exactResume: null, priorityClass: 'default', deadlineUs: null,
})

function faultsOf(core: CoreState): [string, Input][] {
  const faults: [string, Input][] = []
  const { reign } = core
  for (const { id, stage } of core.engines.values()) if (stage === 'joined') faults.push([`lose ${id}`, { kind: 'engineLost', engine: id, reign, why: 'killed' }])
  for (const { id, engine, from } of core.moves.values()) {
    for (const sourceLost of from === 'host' ? [true, false] : [false]) faults.push([`fail ${id}`, { kind: 'moveFailed', engine, reign, move: id, why: 'no space', sourceLost }])
  }
  for (const call of core.calls.values()) {
    if (isOver(call)) continue
    faults.push([`hang up ${call.id}`, { kind: 'hangUp', call: call.id }])
    if (call.stage.kind === 'arrived') faults.push([`unmeasured ${call.id}`, { kind: 'measureFailed', call: call.id, code: 'bad_body', why: '' }])
    if (call.stage.kind !== 'running' && call.stage.kind !== 'pausing') continue
    const from = attemptOf(core, call, call.stage.engine)
    for (const retryable of [true, false]) faults.push([`fail ${call.id}`, { kind: 'attemptFailed', ...from, retryable, why: 'the engine says so' }])
    for (const old of [{ attempt: 0 }, { epoch: 0 }, { reign: 0 }, { run: 9 }]) faults.push([`old ${call.id}`, { ...finish(call, { ...from, ...old }) }])
  }
  for (const { id, stage } of core.programs.values()) {
    if (stage.kind === 'open') faults.push([`cancel ${id}`, { kind: 'cancelProgram', tenant: TENANT, program: id.slice(2) }])
  }
  for (const interrupt of core.interrupts.values()) {
    if (interrupt.stage.kind === 'waiting') faults.push([`expire ${interrupt.id}`, { kind: 'due', timer: `expire:${interrupt.id}` }])
  }
  const images = [...core.states.values()].flatMap(({ host }) => (host === null ? [] : [host.image]))
  faults.push(['restart', { kind: 'restart', reign: reign + 1, wallOffsetUs: 0, images }])
  if (images.length > 0) faults.push(['restart without images', { kind: 'restart', reign: reign + 1, wallOffsetUs: 0, images: [] }])
  return faults
}

// ---------------------------------------------------------------- states as values

/** A copy that shares nothing but the frozen configuration. */
function copy(core: CoreState): CoreState {
  const { config, ...rest } = core
  return { config, ...(deep(rest) as Omit<CoreState, 'config'>) }
}

function deep(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) return value.map(deep)
  if (value instanceof Map) return new Map([...value].map(([key, of]) => [key, deep(of)]))
  if (value instanceof Set) return new Set(value)
  const made: Record<string, unknown> = {}
  for (const key in value) made[key] = deep((value as Record<string, unknown>)[key])
  return made
}

/** The same for states that differ only in numbers of sequence: those become their ranks, and ids made of them lose them. */
function canonical({ core, sent, faults }: Place): string {
  const numbers = [...core.programs.values(), ...core.calls.values()].map(({ seq }) => seq).sort((a, b) => a - b)
  const rank = new Map(numbers.map((number, index) => [number, index]))
  const { config: _config, seq: _seq, ...rest } = core
  return write({ sent, faults, ...rest }, rank).replaceAll(/(-s)-\d+/g, '$1-m')
}

const digest = (place: Place): string => createHash('sha1').update(canonical(place)).digest('base64')

/** What an engine is does not change in a small world. */
const LEFT_OUT: ReadonlySet<string> = new Set(['capabilities', 'speeds', 'identity', 'why'])

function write(value: unknown, rank: ReadonlyMap<number, number>): string {
  if (typeof value !== 'object' || value === null) return String(value)
  let text = ''
  if (Array.isArray(value) || value instanceof Set) {
    for (const one of value) text += `${write(one, rank)},`
    return `[${text}]`
  }
  if (value instanceof Map) {
    for (const [key, one] of value) text += `${String(key)}:${write(one, rank)},`
    return `(${text})`
  }
  for (const key in value) {
    if (LEFT_OUT.has(key)) continue
    const one = (value as Record<string, unknown>)[key]
    text += `${(key === 'seq' || key === 'tie') && typeof one === 'number' ? rank.get(one) ?? one : write(one, rank)},`
  }
  return `{${text}}`
}
