/**
 * Owns the answer to "every call was fast, so why did the user wait two minutes?": a pure fold over the facts of one
 * program. Leaves the laying out of time to `timeline.ts` and the words to `explain-text.ts`.
 *
 * X1: the parts add up exactly to the wall time, from the program's start to its end, or to now while it is open.
 * X2: each instant is in one part; where threads overlap, the first in the order of `PARTS` that any of them is in.
 */
import type { Fact, KvChoice, KvOption, Logged } from '../fact.ts'
import { rawOf } from '../ids.ts'
import type { Candidate } from '../policy/placement/placement.ts'
import { PARTS, timelineOf, type CallTrack, type Part, type Span, type Timeline, type WaitTrack } from './timeline.ts'
import type { Bytes, MicroCost, Tokens, Us } from '../units.ts'

export type PartTimes = Readonly<Record<Part, Us>>

/** What the facts of one program cannot know: the time, and who else is there. */
export interface Live {
  readonly nowUs: Us
  /** By call of this program, where one waits in a queue. */
  readonly queued: Readonly<Record<string, Queued>>
  /** What is known of it without them, where the oldest are no longer kept. */
  readonly known?: { readonly program: string; readonly stage: Explanation['stage']; readonly why: string | null }
}

interface Queued {
  /** What the call lacks, in words: its turn, memory. */
  readonly what: string
  /** Who is served meanwhile; those of other keys are only counted. */
  readonly behind: { readonly programs: readonly string[]; readonly others: number } | null
}

export interface CallLine {
  readonly call: string
  readonly thread: string | null
  readonly arrivedUs: Us
  /** Its own time, whatever other threads did meanwhile; adds up to its end, or to now. */
  readonly parts: PartTimes
  /** Null while it has not ended. */
  readonly endedUs: Us | null
  readonly end: string | null
  readonly promptTokens: Tokens
  readonly cachedTokens: Tokens
  readonly outputTokens: Tokens
  readonly recomputedTokens: Tokens
  readonly wait: { readonly of: string; readonly toolClass: string; readonly waitUs: Us; readonly end: string | null } | null
}

export interface DecisionLine {
  readonly atUs: Us
  readonly state: string
  /** The call whose tools are waited for; null for a State that nobody waits with. */
  readonly after: string | null
  readonly choice: KvChoice
  readonly performed: boolean
  readonly because: string
  readonly options: readonly KvOption[]
  readonly costMicro: MicroCost | null
  readonly expectedWaitUs: Us
  /** How long the wait was in all; null while it lasts, or where there was none. */
  readonly waitUs: Us | null
}

/** Where a call was placed, of several engines. */
interface PlacementLine {
  readonly atUs: Us
  readonly call: string
  readonly engine: string
  readonly candidates: readonly Candidate[]
}

interface MoveLine {
  readonly atUs: Us
  readonly direction: 'offload' | 'onboard'
  readonly tokens: Tokens
  readonly bytes: Bytes
  readonly copyUs: Us
  readonly forCall: string | null
  readonly outcome: 'moved' | 'failed' | 'under way'
  readonly why: string | null
}

interface EventLine { readonly atUs: Us; readonly what: 'preempted' | 'retried' | 'discarded' | 'detached' | 'forked' | 'joined' | 'cancelled' | 'failed' | 'ignored' | 'boosted' | 'not boosted' | 'promoted' | 'memory kept'; readonly subject: string; readonly why: string }

export type Waiting =
  | { readonly kind: 'queue'; readonly call: string; readonly sinceUs: Us; readonly queued: Queued | null }
  | { readonly kind: 'copy' | 'engine'; readonly call: string; readonly sinceUs: Us }
  | { readonly kind: 'tool'; readonly of: string; readonly toolClass: string; readonly after: string; readonly sinceUs: Us }
  | { readonly kind: 'client'; readonly sinceUs: Us; readonly why: string }

export interface Explanation {
  /** As its client wrote it. */
  readonly program: string
  readonly agent: string | null
  readonly stage: 'open' | 'completed' | 'cancelled' | 'failed'
  readonly why: string | null
  readonly startUs: Us
  readonly endUs: Us
  readonly wallUs: Us
  /** False where older facts are no longer kept: then time counts from the oldest that is. */
  readonly whole: boolean
  readonly parts: PartTimes
  readonly calls: readonly CallLine[]
  readonly decisions: readonly DecisionLine[]
  readonly placements: readonly PlacementLine[]
  readonly moves: readonly MoveLine[]
  readonly events: readonly EventLine[]
  readonly recomputedTokens: Tokens
  /** For an open program what it waits for, one for each thread that does; empty once it ended. */
  readonly waiting: readonly Waiting[]
}

/** `facts`: all of one program, oldest first. */
export function explain(facts: readonly Logged[], live: Live): Explanation {
  const life = lifeOf(facts, live)
  const timeline = timelineOf(facts, life.endUs)
  const calls = [...timeline.calls.values()]
  const waits = [...timeline.waits.values()]
  const spans = [...calls.flatMap((call) => call.spans), ...waits.map((wait) => waitSpan(wait, life.endUs))]
  const within = { startUs: life.startUs, endUs: life.endUs }
  return {
    ...life,
    wallUs: life.endUs - life.startUs,
    parts: divide(spans, within),
    calls: calls.map((call) => callLine(call, waits.find((wait) => wait.call === call.call), life.endUs)),
    decisions: decisionsOf(facts, timeline),
    placements: facts.flatMap(({ fact, atUs }) => fact.kind === 'call.placed'
      ? [{ atUs, call: fact.call, engine: fact.engine, candidates: fact.candidates }] : []),
    moves: movesOf(facts),
    events: eventsOf(facts),
    recomputedTokens: calls.reduce((sum, call) => sum + call.recomputedTokens, 0),
    waiting: life.stage === 'open' ? waitingOf(timeline, live, life.startUs) : [],
  }
}

type Life = Pick<Explanation, 'program' | 'agent' | 'stage' | 'why' | 'startUs' | 'endUs' | 'whole'>

function lifeOf(facts: readonly Logged[], { nowUs, known }: Live): Life {
  const lastUs = facts.at(-1)?.atUs ?? nowUs
  const startUs = facts[0]?.atUs ?? nowUs
  let life: Life = { program: '', agent: null, stage: 'open', why: null, startUs, endUs: Math.max(nowUs, lastUs), whole: false }
  const openEndUs = life.endUs
  for (const { fact, atUs } of facts) {
    if (fact.kind === 'program.started') life = { ...life, program: rawOf(fact.program), agent: fact.agent, stage: 'open', startUs: atUs, endUs: openEndUs, whole: true }
    else if (fact.kind === 'program.completed') life = { ...life, program: rawOf(fact.program), stage: 'completed', endUs: atUs }
    else if (fact.kind === 'program.cancelled') life = { ...life, program: rawOf(fact.program), stage: 'cancelled', endUs: atUs }
    else if (fact.kind === 'program.failed') life = { ...life, program: rawOf(fact.program), stage: 'failed', why: fact.why, endUs: atUs }
    else if (fact.kind === 'program.reopened') life = { ...life, program: rawOf(fact.program), stage: 'open', endUs: openEndUs }
    else if (fact.kind === 'call.arrived') life = { ...life, program: rawOf(fact.program) }
  }
  if (life.whole || known === undefined) return life
  // Without its start its end may be gone too, and then nothing of it is waited for.
  const isOver = known.stage !== 'open' && life.stage === 'open'
  return { ...life, ...(isOver ? { stage: known.stage, why: known.why, endUs: lastUs } : {}), program: known.program }
}

const waitSpan = (wait: WaitTrack, endUs: Us): Span => ({ part: 'toolWait', fromUs: wait.startedUs, toUs: wait.endedUs ?? endUs })

const noTimes = (): Record<Part, Us> => ({ decode: 0, prefill: 0, recompute: 0, copy: 0, engineWait: 0, queue: 0, toolWait: 0, other: 0 })

/** Cuts the time at every border of a span and gives each piece to the first part that holds it (X1, X2). */
function divide(spans: readonly Span[], within: { readonly startUs: Us; readonly endUs: Us }): PartTimes {
  const borders: { atUs: Us; part: Part; change: 1 | -1 }[] = []
  for (const { part, fromUs, toUs } of spans) {
    const beginUs = Math.max(fromUs, within.startUs)
    const endUs = Math.min(toUs, within.endUs)
    if (endUs > beginUs) borders.push({ atUs: beginUs, part, change: 1 }, { atUs: endUs, part, change: -1 })
  }
  borders.sort((a, b) => a.atUs - b.atUs)
  const times = noTimes()
  const open = noTimes()
  let atUs = within.startUs
  for (const border of borders) {
    times[PARTS.find((part) => open[part] > 0) ?? 'other'] += border.atUs - atUs
    open[border.part] += border.change
    atUs = border.atUs
  }
  times.other += within.endUs - atUs
  return times
}

function callLine(track: CallTrack, wait: WaitTrack | undefined, untilUs: Us): CallLine {
  const endedUs = track.phase.kind === 'ended' ? track.phase.sinceUs : null
  return {
    call: track.call, thread: track.thread, arrivedUs: track.arrivedUs, endedUs, end: track.end,
    parts: divide(track.spans, { startUs: track.arrivedUs, endUs: endedUs ?? Math.max(untilUs, track.arrivedUs) }),
    promptTokens: track.promptTokens, cachedTokens: track.cachedTokens,
    outputTokens: track.outputTokens, recomputedTokens: track.recomputedTokens,
    wait: wait === undefined ? null : { of: wait.of, toolClass: wait.toolClass, waitUs: (wait.endedUs ?? untilUs) - wait.startedUs, end: wait.end },
  }
}

// ---------------------------------------------------------------- what was decided and done

function decisionsOf(facts: readonly Logged[], timeline: Timeline): DecisionLine[] {
  return facts.flatMap(({ fact, atUs }) => {
    if (fact.kind !== 'kv.decided') return []
    const wait = fact.interrupt === null ? undefined : timeline.waits.get(fact.interrupt)
    const waitUs = wait === undefined || wait.endedUs === null ? null : wait.endedUs - wait.startedUs
    const costMicro = fact.options.find((option) => option.choice === fact.choice)?.cost ?? null
    const { state, choice, performed, because, options, expectedWaitUs } = fact
    return [{ atUs, state, after: wait?.call ?? null, choice, performed, because, options, costMicro, expectedWaitUs, waitUs }]
  })
}

function movesOf(facts: readonly Logged[]): MoveLine[] {
  const moves = new Map<string, MoveLine>()
  for (const { fact, atUs } of facts) {
    if (fact.kind === 'kv.offload.begun' || fact.kind === 'kv.onboard.begun') {
      const onboard = fact.kind === 'kv.onboard.begun'
      moves.set(fact.move, {
        atUs, direction: onboard ? 'onboard' : 'offload', tokens: fact.tokens, bytes: 0, copyUs: 0,
        forCall: onboard ? fact.forCall : null, outcome: 'under way', why: null,
      })
    }
    if (fact.kind !== 'kv.moved' && fact.kind !== 'kv.move.failed') continue
    const move = moves.get(fact.move)
    if (move === undefined) continue
    moves.set(fact.move, fact.kind === 'kv.moved'
      ? { ...move, outcome: 'moved', bytes: fact.bytes, copyUs: fact.copyUs }
      : { ...move, outcome: 'failed', why: fact.why })
  }
  return [...moves.values()]
}

const eventsOf = (facts: readonly Logged[]): EventLine[] => facts.flatMap(({ fact, atUs }) => {
  const event = eventOf(fact)
  return event === null ? [] : [{ atUs, ...event }]
})

function eventOf(fact: Fact): Omit<EventLine, 'atUs'> | null {
  switch (fact.kind) {
    case 'call.preempted': return { what: 'preempted', subject: fact.call, why: fact.by === null ? fact.why : `by ${fact.by}: ${fact.why}` }
    case 'boost.given': return { what: 'boosted', subject: fact.call, why: 'what is left no longer surely fits before the deadline' }
    case 'boost.withheld': return { what: 'not boosted', subject: fact.call, why: fact.why }
    case 'call.promoted': return { what: 'promoted', subject: fact.call, why: 'it has waited long for what it was served' }
    case 'call.aged': return fact.passed ? { what: 'promoted', subject: fact.call, why: `to level ${fact.level}: it has waited long, and later programs were served` } : null
    case 'call.reserved': return { what: 'memory kept', subject: fact.call, why: `${fact.granules} granules of ${fact.engine}: it is large and has waited long` }
    case 'call.retried': return { what: 'retried', subject: fact.call, why: `attempt ${fact.attempt}: ${fact.why}` }
    case 'call.detached': return { what: 'detached', subject: fact.call, why: 'its client is gone' }
    case 'kv.discarded': return { what: 'discarded', subject: fact.state, why: `${fact.tokens} tokens on ${fact.tier}: ${fact.why}` }
    case 'thread.forked': return { what: 'forked', subject: fact.thread, why: `it continues ${fact.tokens} tokens of ${fact.from}` }
    case 'thread.joined': return { what: 'joined', subject: fact.node, why: `${fact.committed.length} of its parents have committed` }
    case 'thread.cancelled': return { what: 'cancelled', subject: fact.thread, why: fact.why }
    case 'node.cancelled': return { what: 'cancelled', subject: fact.node, why: fact.why }
    case 'node.failed': return { what: 'failed', subject: fact.node, why: fact.why }
    case 'result.ignored': return { what: 'ignored', subject: fact.subject, why: `${fact.input}: ${fact.why}` }
    default: return null
  }
}

// ---------------------------------------------------------------- what it waits for now

function waitingOf(timeline: Timeline, live: Live, startUs: Us): Waiting[] {
  const found: Waiting[] = []
  for (const track of timeline.calls.values()) {
    const waiting = waitingFor(track, live)
    if (waiting !== null) found.push(waiting)
  }
  for (const wait of timeline.waits.values()) {
    if (wait.endedUs === null) found.push({ kind: 'tool', of: wait.of, toolClass: wait.toolClass, after: wait.call, sinceUs: wait.startedUs })
  }
  if (found.length > 0) return found
  const sinceUs = [...timeline.calls.values()].reduce((latest, { phase }) => Math.max(latest, phase.sinceUs), startUs)
  return [{ kind: 'client', sinceUs, why: timeline.calls.size === 0 ? 'no call has arrived' : 'every call is answered' }]
}

function waitingFor(track: CallTrack, live: Live): Waiting | null {
  const { call, phase } = track
  const { sinceUs } = phase
  switch (phase.kind) {
    case 'queued': return { kind: 'queue', call, sinceUs, queued: live.queued[call] ?? null }
    case 'copying': return { kind: 'copy', call, sinceUs }
    case 'running': return { kind: 'engine', call, sinceUs }
    case 'detached': return { kind: 'client', sinceUs, why: `${call} lost its client: the same request again brings it back` }
    case 'ended': return null
  }
}
