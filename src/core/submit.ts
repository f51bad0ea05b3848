/**
 * Owns where a new call belongs: which program and thread (DESIGN 4), which interrupt its tool results end, and whether
 * it is a call at all or the retry of one. Identity that is inferred serves accounting and affinity; it never raises
 * priority and never opens another's State. Keeps invariants 3, 6, 8 and 14.
 */
import { must } from './assert.ts'
import { bandOf } from './queue/bands.ts'
import { giveUpLongestDetached } from './call.ts'
import { isOver } from './call-read.ts'
import { claimOf, lastOpenOf, threadOfNode, threadRefusal, type Claim } from './claim.ts'
import { lastOfDigest } from './digests.ts'
import { clearTimer, ignore, type Deciding } from './deciding.ts'
import { cancelInterrupt, commitAll, isReplayable } from './effects.ts'
import { fork } from './graph/fork.ts'
import { takeReport } from './graph/graph.ts'
import type { Refusal } from './graph/graph-check.ts'
import { interruptId, programId, sessionId, tenantId, threadId, type CallId, type ProgramId, type SessionId, type ThreadId } from './ids.ts'
import type { Submit } from './input.ts'
import { parentRefusal } from './graph/lineage.ts'
import { expectProgram } from './predict/expect.ts'
import { kindOf } from './predict/work.ts'
import { isOpen, makeRoomForProgram, programsFull, restOf, tenantFull } from './program.ts'
import { readyIfDue } from './ready.ts'
import { EPOCH_FIRST, type Call, type Identity, type Interrupt, type Program } from './state.ts'

export function submit(d: Deciding, input: Submit): void {
  if (d.core.calls.has(input.call)) return ignore(d, 'submit', input.call, 'a call of this id exists')
  const retried = retryOf(d, input)
  if (retried !== null) return retry(d, input, retried)
  const refused = admission(d, input)
  if (refused !== null) return refuse(d, input, refused.code, refused.why)
  const place = placeOf(d, input)
  if ('code' in place) return refuse(d, input, place.code, place.why)
  const claim = threadRefusal(d.core, place.thread) ?? claimOf(d.core, input, place.program, place.thread)
  if (claim !== null && 'code' in claim) return refuse(d, input, claim.code, claim.why)
  arrive(d, input, place, claim)
}

interface Place {
  readonly program: ProgramId
  readonly session: SessionId | null
  readonly declared: boolean
  readonly thread: ThreadId
  readonly identity: Identity
  /** The interrupt that this call ends. */
  readonly answers: Interrupt | null
  /** Set where the thread is new and continues another. */
  readonly forkedFrom: ThreadId | null
}

type Found = Omit<Place, 'thread' | 'answers' | 'forkedFrom'>

const refuse = (d: Deciding, input: Submit, code: string, why: string): void =>
  d.emit({ kind: 'call.refused', call: input.call, code, why })

// ---------------------------------------------------------------- retries

/** The call that this request tries again: the same credential and body while unanswered, by somebody we can name. */
function retryOf(d: Deciding, input: Submit): Call | null {
  const call = lastOfDigest(d.core, input.digest)
  // A digest is of the credential too; whoever hands in another's all the same is not answered with it.
  if (call === undefined || must(d.core.programs, call.program).tenant !== input.tenant) return null
  const { program } = input.claims
  if (program !== null && programId(input.tenant, program) !== call.program) return null
  if (call.stage.kind === 'detached') return call
  const named = program !== null || input.claims.session !== null || input.claims.toolResults.length > 0
  if (!named || !goesOn(must(d.core.programs, call.program), input)) return null
  if (!isOver(call)) return call
  const interrupt = d.core.interrupts.get(interruptId(call.id))
  return interrupt !== undefined && isReplayable(interrupt) ? call : null
}

/** What ended by itself may be asked for again with results of its tools; in other words it may be a new turn. */
const goesOn = (program: Program, { claims }: Submit): boolean =>
  isOpen(program) || (program.stage.kind === 'ended' && program.stage.provisional && claims.toolResults.length > 0)

function retry(d: Deciding, input: Submit, call: Call): void {
  if (call.stage.kind === 'committed') return d.emit({ kind: 'call.replayed', call: input.call, as: call.id })
  d.emit({ kind: 'call.attached', call: input.call, as: call.id })
  if (call.stage.kind !== 'detached') return
  clearTimer(d, `detached:${call.id}`)
  d.emit({ kind: 'call.retried', call: call.id, attempt: call.attempt + 1, why: 'its client came back' })
  readyIfDue(d, call)
}

// ---------------------------------------------------------------- admission

function admission(d: Deciding, input: Submit): Refusal | null {
  const engines = [...d.core.engines.values()]
  if (engines.length === 0) return { code: 'engine_unavailable', why: 'no engine has joined yet' }
  if (engines.some((engine) => engine.capabilities.models.includes(input.model))) return callsFull(d, input)
  const served = [...new Set(engines.flatMap((engine) => engine.capabilities.models))].sort().join(', ')
  return { code: 'unknown_model', why: `no engine serves ${input.model}; served: ${served}` }
}

/** At a limit of open calls the one whose client has been gone the longest gives way. */
function callsFull(d: Deciding, { tenant }: Submit): Refusal | null {
  const { callsOpenMax, tenantCallsOpenMax } = d.core.config
  const own = d.core.tenants.get(tenant)?.openCalls ?? 0
  if (own >= tenantCallsOpenMax && !giveUpLongestDetached(d, (call) => must(d.core.programs, call.program).tenant === tenant)) {
    return { code: 'tenant_full', why: `${own} of its calls are open, and tenantCallsOpenMax is ${tenantCallsOpenMax}` }
  }
  const open = d.core.openCalls
  if (open < callsOpenMax || giveUpLongestDetached(d, () => true)) return null
  return { code: 'queue_full', why: `${open} calls are open, and callsOpenMax is ${callsOpenMax}` }
}

// ---------------------------------------------------------------- program and thread

function placeOf(d: Deciding, input: Submit): Place | Refusal {
  const { claims, tenant } = input
  const links = claims.toolResults.map((id) => ({ id, link: d.core.toolCalls.get(`${tenant}/${id}`) }))
  const known = links.find(({ link }) => link !== undefined)?.link
  const unknown = links.filter(({ link }) => link === undefined).map(({ id }) => id)
  const linked = known === undefined ? null : must(d.core.calls, known.call)
  // Results are of one call: the last assistant message is one.
  const strange = linked === null ? undefined : claims.toolResults.find((id) => !linked.toolCallIds.includes(id))
  if (strange !== undefined && linked !== null) return { code: 'unknown_tool_call', why: `${strange} is no tool call of ${linked.id}, whose results these are` }
  const named = claims.program === null ? null : programId(tenant, claims.program)
  if (named !== null && unknown.length > 0 && d.core.programs.has(named)) {
    return { code: 'unknown_tool_call', why: `${unknown.join(', ')}: this program has no such tool call` }
  }
  if (named !== null && linked !== null && linked.program !== named) {
    return { code: 'unknown_tool_call', why: `${links[0]?.id ?? ''} is a tool call of another program` }
  }
  const session = claims.session === null ? null : sessionId(tenant, claims.session)
  const found = named !== null ? { program: named, session, declared: true, identity: claims.identity }
    : linked !== null ? ofLinked(d, linked, input)
    : session !== null ? ofSession(d, session, input)
    : { program: programId(tenant, input.freshProgram), session: null, declared: false, identity: claims.identity }
  const refused = programRefusal(d, found.program, input)
  if (refused !== null) return refused
  return withThread(d, input, found, linked)
}

function ofLinked(d: Deciding, linked: Call, input: Submit): Found {
  const { id, session } = must(d.core.programs, linked.program)
  const { identity } = input.claims
  const inferred: Identity = { source: 'inferred', confidence: 90 }
  return { program: id, session, declared: false, identity: identity.source === 'anonymous' ? inferred : identity }
}

/** A session's newest program goes on while it runs; else a new message is a new turn, and a turn is a program. */
function ofSession(d: Deciding, session: SessionId, input: Submit): Found {
  const newest = d.core.sessions.get(session)?.program ?? null
  const program = newest === null ? undefined : d.core.programs.get(newest)
  const again = program !== undefined && (isRunning(d, program) || isRetryOfHungUp(d, program, input))
  const id = again ? program.id : programId(input.tenant, input.freshProgram)
  return { program: id, session, declared: false, identity: input.claims.identity }
}

const isRunning = (d: Deciding, program: Program): boolean =>
  program.stage.kind === 'open' && program.threads.some((thread) => must(d.core.threads, thread).active !== null)

/** Its last call was given up by its client, and here the same body comes again: the ledger goes on. */
function isRetryOfHungUp(d: Deciding, program: Program, input: Submit): boolean {
  const last = program.calls.at(-1)
  const call = last === undefined ? undefined : must(d.core.calls, last)
  return program.stage.kind === 'ended' && program.stage.provisional
    && call?.stage.kind === 'cancelled' && call.digest === input.digest
}

function programRefusal(d: Deciding, id: ProgramId, input: Submit): Refusal | null {
  const program = d.core.programs.get(id)
  if (program === undefined) {
    // Else the first call of a program would be taken, and the next, which says the same, would not.
    const named = input.claims.program !== null
    return (named ? staleEpoch(input, EPOCH_FIRST) : null) ?? tenantFull(d, input.tenant) ?? (makeRoomForProgram(d, null) ? null
      : { code: 'queue_full', why: programsFull(d) })
  }
  if (program.calls.length >= d.core.config.callsPerProgramMax) {
    return { code: 'program_full', why: `the program has ${program.calls.length} calls, and callsPerProgramMax is as many` }
  }
  const { stage } = program
  if (stage.kind === 'cancelled') return { code: 'program_cancelled', why: 'the program was cancelled' }
  if (stage.kind === 'failed') return { code: 'program_ended', why: `the program failed: ${stage.why}` }
  if (stage.kind === 'ended' && !stage.provisional) return { code: 'program_ended', why: 'the program has finished' }
  return staleEpoch(input, program.epoch)
}

const staleEpoch = ({ claims }: Submit, epoch: number): Refusal | null => claims.epoch === null || claims.epoch === epoch ? null
  : { code: 'stale_epoch', why: `the program's epoch is ${epoch}, the request says ${claims.epoch}` }

function withThread(d: Deciding, input: Submit, found: Found, linked: Call | null): Place | Refusal {
  const { claims } = input
  const beside = claims.beside === undefined ? undefined : d.core.calls.get(claims.beside)
  if (beside?.program === found.program) return { ...found, thread: freshThread(d, found.program, 'choice'), answers: null, forkedFrom: livingThread(d, beside) }
  if (linked !== null) {
    const thread = must(d.core.threads, linked.thread)
    const interrupt = thread.interrupt === null ? null : must(d.core.interrupts, thread.interrupt)
    if (interrupt !== null && interrupt.call === linked.id) {
      const missing = interrupt.toolCallIds.filter((id) => !claims.toolResults.includes(id))
      if (missing.length > 0) return { code: 'missing_tool_results', why: `no result for ${missing.join(', ')}` }
      return { ...found, thread: thread.id, answers: interrupt, forkedFrom: null }
    }
    // Cut by its token limit, so nothing waits for it, and yet somebody answers it: the thread goes on.
    if (interrupt === null && thread.last === linked.id && thread.active === null) return { ...found, thread: thread.id, answers: null, forkedFrom: null }
    // Answered before with another history: a fork.
    return { ...found, thread: freshThread(d, found.program, 'fork'), answers: null, forkedFrom: livingThread(d, linked) }
  }
  const named = claims.thread === null ? threadOfNode(d.core, found.program, claims.node) : threadId(found.program, claims.thread)
  if (named !== null) return { ...found, thread: named, answers: null, forkedFrom: null }
  const main = threadId(found.program, 'main')
  const thread = d.core.threads.get(main)
  const free = thread === undefined || (thread.active === null && thread.interrupt === null)
  return { ...found, thread: free ? main : freshThread(d, found.program, 'thread'), answers: null, forkedFrom: null }
}

/** The call's thread, where something can go on from it. */
const livingThread = (d: Deciding, call: Call): ThreadId | null => (must(d.core.threads, call.thread).cancelled ? null : call.thread)

function freshThread(d: Deciding, program: ProgramId, word: string): ThreadId {
  for (let count = (d.core.programs.get(program)?.threads.length ?? 0) + 1; ; count += 1) {
    const id = threadId(program, `${word}-${count}`)
    if (!d.core.threads.has(id)) return id
  }
}

// ---------------------------------------------------------------- arrival

function arrive(d: Deciding, input: Submit, place: Place, claim: Claim | null): void {
  const program = d.core.programs.get(place.program)
  const parent = parentOf(d, input, place.program)
  if (program === undefined) {
    d.emit({
      kind: 'program.started', program: place.program, tenant: input.tenant, session: place.session, declared: place.declared,
      agent: kindOf(d.core, input.tenant, input.claims.kind), identity: place.identity, priorityClass: input.priorityClass, deadlineUs: input.deadlineUs,
      parent, steps: null,
    })
    expectProgram(d, place.program)
  } else {
    clearTimer(d, `close:${place.program}`)
    if (program.stage.kind === 'ended') d.emit({ kind: 'program.reopened', program: place.program })
    const session = program.session === null ? place.session : null
    if (session !== null || parent !== null) d.emit({ kind: 'program.linked', program: place.program, session, parent })
  }
  if (place.answers !== null) endInterrupt(d, place.answers, input.call)
  else abandonInterrupt(d, place.thread)
  if (place.forkedFrom !== null) fork(d, place.program, place.thread, place.forkedFrom)
  if (claim?.plan != null) takeReport(d, place.program, claim.plan, input.call)
  const before = lastOpenOf(d.core, place.thread)
  d.emit({
    kind: 'call.arrived', call: input.call, program: place.program, thread: place.thread, model: input.model,
    epoch: must(d.core.programs, place.program).epoch, ...shareOf(d, must(d.core.programs, place.program)), identity: place.identity, digest: input.digest, body: input.body,
    seed: input.seed, maxTokens: input.maxTokens, exactResume: input.exactResume ?? d.core.config.exactResume,
    promptTokens: input.promptTokensEstimate, parents: before === null ? [] : [before], node: claim?.node ?? null,
    answers: place.answers?.id ?? null, final: input.claims.final, toolResults: input.claims.toolResults,
  })
}

/** The parent that the call names and its program does not have yet; one that cannot be is ignored, and the call is served. */
function parentOf(d: Deciding, input: Submit, program: ProgramId): ProgramId | null {
  const { parent: named } = input.claims
  if (named === null) return null
  const parent = input.claims.program === null ? parentBySession(d, input, named, program) : programId(input.tenant, named)
  if (parent === null) return null
  const refused = parentRefusal(d.core, program, parent)
  if (refused !== null) ignore(d, 'submit', program, `its parent: ${refused.why}`)
  return refused === null && d.core.programs.get(program)?.parent !== parent ? parent : null
}

/** The turn of the parent's session in which its sub-agent began: it stays that when later turns come. No session is below itself. */
function parentBySession(d: Deciding, { tenant, claims }: Submit, named: string, program: ProgramId): ProgramId | null {
  if (named === claims.session || (d.core.programs.get(program)?.parent ?? null) !== null) return null
  return d.core.sessions.get(sessionId(tenant, named))?.program ?? null
}

/** In `observe` all wait in one line. */
const shareOf = (d: Deciding, { priorityClass, tenant }: Program): Pick<Call, 'band' | 'payer'> =>
  d.core.config.mode === 'observe' ? { band: 'default', payer: EVERYBODY } : { band: bandOf(priorityClass), payer: tenant }

const EVERYBODY = tenantId('')

/** A named thread goes on without the results that it waited for. */
function abandonInterrupt(d: Deciding, id: ThreadId): void {
  const interrupt = d.core.threads.get(id)?.interrupt ?? null
  if (interrupt === null) return
  cancelInterrupt(d, interrupt)
  restOf(d, id)
}

function endInterrupt(d: Deciding, interrupt: Interrupt, by: CallId): void {
  commitAll(d, interrupt)
  d.emit({ kind: 'interrupt.completed', interrupt: interrupt.id, by, waitUs: d.nowUs - interrupt.startedUs })
  clearTimer(d, `expire:${interrupt.id}`)
  restOf(d, interrupt.thread)
}
