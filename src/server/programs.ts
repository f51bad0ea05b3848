/**
 * Owns the routes of programs: declare, list, look, finish, cancel, commit an effect, read the facts. Everything is seen through the
 * caller's tenant: another's program is as absent as one that never was.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { must } from '../core/assert.ts'
import type { Logged } from '../core/fact.ts'
import { isNamedBy, programId, type ProgramId, type TenantId } from '../core/ids.ts'
import type { CoreState, Program } from '../core/state.ts'
import type { ProgramReply } from '../driver/gateway.ts'
import type { Page } from '../protocol/admin.ts'
import { problem, problemOf } from '../protocol/errors.ts'
import { parseDeclaration, parseEffect, type ProgramView } from '../protocol/program.ts'
import { deadlineOf, sendProblem, type Credential, type Door, type Handler } from './door.ts'
import { FACT_WAITS_MAX } from './fact-waits.ts'
import { findProgram, viewProgram, viewProgramDetail } from './program-view.ts'

const PAGE_DEFAULT = 50
const PAGE_MAX = 200
const FACTS_DEFAULT = 1_000
/** Most facts of one answer; a longer history is told by its newest part. */
const FACTS_MAX = 10_000
/** Longest that one request waits for the next fact; its runtime asks again. */
const WAIT_SECONDS_MAX = 30

export const declareProgram = (door: Door): Handler => async (request, reply, credential) => {
  const parsed = parseDeclaration(request.body)
  if (!parsed.ok) return sendProblem(reply, parsed.problem)
  const { program, session, agent, parent, steps, deadlineUs } = parsed.declaration
  const answer = await door.gateway.declare({
    tenant: credential.tenant,
    program,
    session,
    agent: agent ?? 'declared',
    priorityClass: credential.priorityClass,
    deadlineUs: deadlineOf(door, credential, deadlineUs),
    parent,
    steps,
  })
  return shown(door, reply.code(201), credential, answer)
}

/** Programs are kept in the order of their arrival, so that a page is found without a look at the others. */
function pageOf(core: Readonly<CoreState>, tenant: TenantId, after: number, limit: number): { page: Program[]; isLast: boolean } {
  const own = [...core.programs.keys()].filter((id) => isNamedBy(id, tenant))
  let [low, high] = [0, own.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (must(core.programs, own[middle] as ProgramId).seq < after) low = middle + 1
    else high = middle
  }
  const from = Math.max(0, low - limit)
  return { page: own.slice(from, low).reverse().map((id) => must(core.programs, id)), isLast: from === 0 }
}

/** Newest first. */
export const listPrograms = (door: Door): Handler => (request, reply, credential) => {
  const { core } = door.gateway
  const limit = numberOf(request, 'limit', PAGE_DEFAULT, PAGE_MAX)
  const after = numberOf(request, 'after', Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)
  if (limit === null) return refuseQuery(reply, 'limit', `is an integer from 1 to ${PAGE_MAX}`)
  if (after === null) return refuseQuery(reply, 'after', 'is the "next" of a page')
  const { page, isLast } = pageOf(core, credential.tenant, after, limit)
  const last: Program | undefined = page.at(-1)
  const nowUs = door.gateway.nowUs()
  const answer: Page<ProgramView> = {
    object: 'list',
    data: page.map((program) => viewProgram(core, program, nowUs)),
    next: last === undefined || isLast ? null : String(last.seq),
  }
  return reply.send(answer)
}

export const showProgram = (door: Door): Handler => (request, reply, credential) =>
  shown(door, reply, credential, { ok: true, program: rawIdOf(request) })

export const finishProgram = (door: Door): Handler => async (request, reply, credential) =>
  shown(door, reply, credential, await door.gateway.finish(credential.tenant, rawIdOf(request)))

/**
 * Says which effects of tools remain: what was done outside cannot be undone here. An answer may be lost: asked again, it
 * says the same.
 */
export const cancelProgram = (door: Door): Handler => async (request, reply, credential) => {
  const { gateway } = door
  const { tenant } = credential
  const raw = rawIdOf(request)
  const answer = await gateway.cancel(tenant, raw)
  if (findProgram(gateway.core, tenant, raw)?.stage.kind !== 'cancelled') return shown(door, reply, credential, answer)
  return shown(door, reply, credential, { ok: true, program: raw }, { effectsRemaining: gateway.effectsRemaining(tenant, raw, null) })
}

/** A tool did what it does to the world: cancel lists it, and its call is never made anew. */
export const commitEffect = (door: Door): Handler => async (request, reply, credential) => {
  const parsed = parseEffect(request.body)
  if (!parsed.ok) return sendProblem(reply, parsed.problem)
  const { toolCall, record } = parsed.effect
  return shown(door, reply, credential, await door.gateway.commitEffect(credential.tenant, rawIdOf(request), toolCall, record))
}

/** With `waitSeconds`, what comes next: so a runtime hears at once that a wait was cancelled, and can stop its tools. */
export const programFacts = (door: Door): Handler => async (request, reply, credential) => {
  const raw = rawIdOf(request)
  const max = numberOf(request, 'max', FACTS_DEFAULT, FACTS_MAX)
  if (max === null) return refuseQuery(reply, 'max', `is an integer from 1 to ${FACTS_MAX}`)
  const after = numberOf(request, 'after', 0, Number.MAX_SAFE_INTEGER, 0)
  if (after === null) return refuseQuery(reply, 'after', 'is the "seq" of a fact')
  const waitSeconds = numberOf(request, 'waitSeconds', 0, WAIT_SECONDS_MAX, 0)
  if (waitSeconds === null) return refuseQuery(reply, 'waitSeconds', `is an integer from 0 to ${WAIT_SECONDS_MAX}`)
  const program = findProgram(door.gateway.core, credential.tenant, raw)
  if (program === null) return sendProblem(reply, problem('unknown_program', `"${raw}"`))
  const facts = () => door.gateway.facts(credential.tenant, raw, FACTS_MAX).filter(({ seq }) => seq > after)
  const hasNews = (): boolean => (door.gateway.facts(credential.tenant, raw, 1)[0]?.seq ?? 0) > after
  if (waitSeconds > 0 && !hasNews()) {
    const { tenant } = credential
    if (door.factWaits.isFull(tenant)) return sendProblem(reply, problem('tenant_full', `${FACT_WAITS_MAX} requests of it wait for facts`))
    await door.factWaits.next(tenant, reply, hasNews, waitSeconds * 1_000)
  }
  // Who follows must miss none; who only looks wants the newest.
  const told = after > 0 ? facts().slice(0, max) : facts().slice(-max)
  return reply.send({ object: 'list', data: told.map((logged) => withoutOthers(door, credential, logged)) })
}

/** A call that took its place may be another tenant's: then it has no name here. */
function withoutOthers(door: Door, { tenant }: Credential, logged: Logged): object {
  if (logged.fact.kind !== 'call.preempted' || logged.fact.by === null) return logged
  const { calls, programs } = door.gateway.core
  const by = calls.get(logged.fact.by)
  const isOwn = by !== undefined && programs.get(by.program)?.tenant === tenant
  return isOwn ? logged : { ...logged, fact: { ...logged.fact, by: 'another call' } }
}

export function shown(
  door: Door, reply: FastifyReply, credential: Credential, answer: ProgramReply, more: object = {},
): FastifyReply {
  if (!answer.ok) return sendProblem(reply, problemOf(answer.code, answer.why))
  const { core } = door.gateway
  const program = findProgram(core, credential.tenant, answer.program)
  if (program === null) return sendProblem(reply, problem('unknown_program', `"${answer.program}"`))
  return reply.send({ ...viewProgramDetail(core, program, door.gateway.nowUs()), ...more })
}

const rawIdOf = (request: FastifyRequest): string => (request.params as { readonly id: string }).id

const refuseQuery = (reply: FastifyReply, name: string, rule: string): FastifyReply =>
  sendProblem(reply, problem('invalid_request', `"${name}" ${rule}`, name))

/** Null where the query says something else than an integer from `min` to `max`. */
function numberOf(request: FastifyRequest, name: string, otherwise: number, max: number, min = 1): number | null {
  const given = (request.query as Readonly<Record<string, unknown>>)[name]
  if (given === undefined) return otherwise
  const value = typeof given === 'string' && /^\d{1,16}$/.test(given) ? Number(given) : -1
  return value >= min && value <= max ? value : null
}
