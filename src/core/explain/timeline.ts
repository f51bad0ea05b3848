/**
 * Owns when each call of a program was where: its facts laid out as spans of time, each of one part. Leaves sums and
 * words to `explain.ts`. Pure: the same facts give the same spans.
 *
 * Where the exact order of an attempt's parts is not in the facts, it is the one an attempt has by nature: wait,
 * recompute, prefill, decode, the last of them ending where the attempt ended.
 */
import type { Fact, Logged } from '../fact.ts'
import type { CallId, InterruptId, MoveId, ThreadId } from '../ids.ts'
import type { AttemptParts, AttemptReport } from '../input.ts'
import type { Tokens, Us } from '../units.ts'

/** In order of precedence: where threads overlap, an instant counts as the first of these that any of them is in. */
export const PARTS = ['decode', 'prefill', 'recompute', 'copy', 'engineWait', 'queue', 'toolWait', 'other'] as const
export type Part = (typeof PARTS)[number]

export interface Span { readonly part: Part; readonly fromUs: Us; readonly toUs: Us }

/** One uninterrupted stay on an engine. */
interface Stretch {
  readonly fromUs: Us
  /** Output tokens already shown: feeding them again is no decode of this stretch. */
  readonly forcedTokens: Tokens
  readonly reports: { readonly atUs: Us; readonly report: AttemptReport }[]
}

/** Where a call is after the last fact. */
type Phase =
  | { readonly kind: 'queued'; readonly sinceUs: Us }
  | { readonly kind: 'copying'; readonly move: MoveId; readonly sinceUs: Us }
  | { readonly kind: 'running'; readonly sinceUs: Us; readonly stretch: Stretch }
  | { readonly kind: 'detached'; readonly sinceUs: Us }
  | { readonly kind: 'ended'; readonly sinceUs: Us }

export interface CallTrack {
  readonly call: CallId
  readonly thread: ThreadId | null
  readonly arrivedUs: Us
  readonly answers: InterruptId | null
  phase: Phase
  /** How it ended: its finish reason, `cancelled`, `failed` or `refused`; null while it has not. */
  end: string | null
  readonly spans: Span[]
  promptTokens: Tokens
  cachedTokens: Tokens
  outputTokens: Tokens
  recomputedTokens: Tokens
}

export interface WaitTrack {
  readonly interrupt: InterruptId
  readonly call: CallId
  readonly of: string
  readonly toolClass: string
  readonly startedUs: Us
  /** Null while it waits. */
  endedUs: Us | null
  end: 'completed' | 'expired' | 'cancelled' | null
}

export interface Timeline {
  readonly calls: ReadonlyMap<CallId, CallTrack>
  readonly waits: ReadonlyMap<InterruptId, WaitTrack>
}

export function timelineOf(facts: readonly Logged[], untilUs: Us): Timeline {
  const calls = new Map<CallId, CallTrack>()
  const waits = new Map<InterruptId, WaitTrack>()
  for (const { fact, atUs } of facts) {
    placeWait(waits, fact, atUs)
    placeMove(calls, fact, atUs)
    if (!('call' in fact) || fact.call === null || !fact.kind.startsWith('call.')) continue
    const track = calls.get(fact.call) ?? trackFor(fact, atUs)
    if (track === null) continue
    calls.set(fact.call, track)
    placeCall(track, fact, atUs)
  }
  for (const track of calls.values()) leave(track, untilUs)
  return { calls, waits }
}

/** A record that begins late may know a call only from its later facts. */
function trackFor(fact: Extract<Fact, { call: CallId }>, atUs: Us): CallTrack | null {
  if (fact.kind === 'call.attached' || fact.kind === 'call.replayed' || fact.kind === 'call.refused') return null
  const arrived = fact.kind === 'call.arrived' ? fact : null
  return {
    call: fact.call, thread: arrived?.thread ?? null, arrivedUs: atUs, answers: arrived?.answers ?? null,
    phase: { kind: 'queued', sinceUs: atUs }, end: null, spans: [],
    promptTokens: arrived?.promptTokens ?? 0, cachedTokens: 0, outputTokens: 0, recomputedTokens: 0,
  }
}

function placeWait(waits: Map<InterruptId, WaitTrack>, fact: Fact, atUs: Us): void {
  if (fact.kind === 'interrupt.started') {
    const { interrupt, call, of, toolClass } = fact
    waits.set(interrupt, { interrupt, call, of, toolClass, startedUs: atUs, endedUs: null, end: null })
  }
  if (fact.kind !== 'interrupt.completed' && fact.kind !== 'interrupt.expired' && fact.kind !== 'interrupt.cancelled') return
  const wait = waits.get(fact.interrupt)
  if (wait === undefined || wait.endedUs !== null) return
  wait.endedUs = atUs
  wait.end = fact.kind === 'interrupt.completed' ? 'completed' : fact.kind === 'interrupt.expired' ? 'expired' : 'cancelled'
}

/** A copy counts as resume time only while a call waits for it. */
function placeMove(calls: ReadonlyMap<CallId, CallTrack>, fact: Fact, atUs: Us): void {
  if (fact.kind === 'kv.onboard.begun' && fact.forCall !== null) {
    const track = calls.get(fact.forCall)
    if (track?.phase.kind === 'queued') enter(track, { kind: 'copying', move: fact.move, sinceUs: atUs })
  }
  if (fact.kind !== 'kv.moved' && fact.kind !== 'kv.move.failed') return
  for (const track of calls.values()) {
    if (track.phase.kind === 'copying' && track.phase.move === fact.move) enter(track, { kind: 'queued', sinceUs: atUs })
  }
}

function placeCall(track: CallTrack, fact: Fact, atUs: Us): void {
  if (track.phase.kind === 'ended') return
  switch (fact.kind) {
    case 'call.measured':
      track.promptTokens = fact.promptTokens
      return
    case 'call.ready':
      if (track.phase.kind === 'detached') enter(track, { kind: 'queued', sinceUs: atUs })
      return
    case 'call.scheduled': {
      track.cachedTokens = fact.keepTokens
      enter(track, { kind: 'running', sinceUs: atUs, stretch: { fromUs: atUs, forcedTokens: fact.forcedTokens, reports: [] } })
      return
    }
    case 'call.progressed':
      heard(track, fact.report, atUs)
      return
    case 'call.paused':
      heard(track, fact.report, atUs)
      enter(track, { kind: 'queued', sinceUs: atUs })
      return
    case 'call.retried':
      if (track.phase.kind === 'running') enter(track, { kind: 'queued', sinceUs: atUs })
      return
    case 'call.detached':
      enter(track, { kind: 'detached', sinceUs: atUs })
      return
    default:
      placeEnd(track, fact, atUs)
  }
}

function placeEnd(track: CallTrack, fact: Fact, atUs: Us): void {
  switch (fact.kind) {
    case 'call.completed':
      heard(track, fact.report, atUs)
      track.recomputedTokens += fact.report.recomputedTokens
      track.end = fact.finish
      if (track.phase.kind !== 'running') break
      track.spans.push(...byParts(track.phase.stretch.fromUs, fact.parts, atUs))
      track.phase = { kind: 'ended', sinceUs: atUs }
      return
    case 'call.cancelled':
      track.end = 'cancelled'
      break
    case 'call.failed':
      track.end = 'failed'
      break
    case 'call.refused':
      track.end = 'refused'
      break
    default:
      return
  }
  enter(track, { kind: 'ended', sinceUs: atUs })
}

function heard(track: CallTrack, report: AttemptReport, atUs: Us): void {
  track.outputTokens = Math.max(track.outputTokens, report.outputTokens)
  if (track.phase.kind === 'running') track.phase.stretch.reports.push({ atUs, report })
}

function enter(track: CallTrack, next: Phase): void {
  leave(track, next.sinceUs)
  track.phase = next
}

/** Adds the span of a phase that ends, or that reaches to the end of the record. */
function leave(track: CallTrack, toUs: Us): void {
  const { phase, spans } = track
  if (phase.kind === 'running') spans.push(...byReports(phase.stretch, toUs))
  else if (phase.kind === 'queued') add(spans, 'queue', phase.sinceUs, toUs)
  else if (phase.kind === 'copying') add(spans, 'copy', phase.sinceUs, toUs)
  else if (phase.kind === 'detached') add(spans, 'other', phase.sinceUs, toUs)
}

function add(spans: Span[], part: Part, fromUs: Us, toUs: Us): void {
  if (toUs > fromUs) spans.push({ part, fromUs, toUs })
}

// ---------------------------------------------------------------- an attempt's parts

/** A committed attempt: its parts backwards from its end; what they do not fill is waiting in or before the engine. */
function byParts(fromUs: Us, parts: AttemptParts, toUs: Us): Span[] {
  const spans: Span[] = []
  const order: readonly (readonly [Part, Us])[] = [
    ['decode', parts.decodeUs], ['prefill', parts.prefillUs], ['recompute', parts.recomputeUs], ['engineWait', toUs - fromUs],
  ]
  let endUs = toUs
  for (const [part, lengthUs] of order) {
    const beginUs = Math.max(fromUs, endUs - lengthUs)
    add(spans, part, beginUs, endUs)
    endUs = beginUs
  }
  return spans
}

/** A stretch that did not commit, or has not yet: what grew between two reports is what was done between them. */
function byReports(stretch: Stretch, toUs: Us): Span[] {
  const spans: Span[] = []
  let fromUs = stretch.fromUs
  let before: Counts = { outputTokens: stretch.forcedTokens, recomputedTokens: 0, fedTokens: 0, usefulUs: 0, recomputeUs: 0 }
  let last: Part = 'engineWait'
  for (const { atUs, report } of stretch.reports) {
    const after = countsOf(report)
    last = grown(before, after)
    const measured = after.usefulUs > before.usefulUs || after.recomputeUs > before.recomputeUs
    const usefulFromUs = Math.max(fromUs, atUs - (measured ? after.usefulUs - before.usefulUs : 0))
    const recomputeFromUs = Math.max(fromUs, usefulFromUs - (measured ? after.recomputeUs - before.recomputeUs : 0))
    add(spans, measured ? 'engineWait' : last, fromUs, recomputeFromUs)
    add(spans, 'recompute', recomputeFromUs, usefulFromUs)
    add(spans, last === 'decode' ? 'decode' : 'prefill', usefulFromUs, atUs)
    fromUs = atUs
    before = after
  }
  add(spans, last, fromUs, toUs)
  return spans
}

interface Counts {
  readonly outputTokens: Tokens
  readonly recomputedTokens: Tokens
  readonly fedTokens: Tokens
  readonly usefulUs: Us
  readonly recomputeUs: Us
}

const countsOf = ({ service, outputTokens, recomputedTokens, tailPrefilled, tailDecoded }: AttemptReport): Counts => ({
  outputTokens, recomputedTokens, fedTokens: tailPrefilled + tailDecoded,
  usefulUs: service.useful.residentUs, recomputeUs: service.recomputed.residentUs,
})

function grown(before: Counts, after: Counts): Part {
  if (after.outputTokens > before.outputTokens) return 'decode'
  if (after.recomputedTokens > before.recomputedTokens) return 'recompute'
  return after.fedTokens > before.fedTokens ? 'prefill' : 'engineWait'
}
