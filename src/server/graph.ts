/**
 * Owns the routes of what is less than a program: reports of its graph, and the cancelling of a thread or a call. They are
 * of the caller's tenant as everything of a program is.
 */
import type { FastifyRequest } from 'fastify'
import { programId, threadId } from '../core/ids.ts'
import { problem, problemOf } from '../protocol/errors.ts'
import { parseReport } from '../protocol/graph.ts'
import { callIdIn } from '../protocol/program.ts'
import { sendProblem, type Door, type Handler } from './door.ts'
import { findProgram, viewGraph } from './program-view.ts'
import { shown } from './programs.ts'

export const reportGraph = (door: Door): Handler => async (request, reply, credential) => {
  const parsed = parseReport(request.body)
  if (!parsed.ok) return sendProblem(reply, parsed.problem)
  const { id } = paramsOf(request)
  const answer = await door.gateway.report(credential.tenant, id, parsed.report)
  if (!answer.ok) return sendProblem(reply, problemOf(answer.code, answer.why))
  const program = findProgram(door.gateway.core, credential.tenant, id)
  return program === null ? sendProblem(reply, problem('unknown_program', `"${id}"`)) : reply.send(viewGraph(door.gateway.core, program))
}

/** Says which effects of its tools remain, as a cancel of the program does, and says it again when asked again. */
export const cancelThread = (door: Door): Handler => async (request, reply, credential) => {
  const { gateway } = door
  const { tenant } = credential
  const { id, part } = paramsOf(request)
  const answer = await gateway.cancelThread(tenant, id, part)
  const isCancelled = gateway.core.threads.get(threadId(programId(tenant, id), part))?.cancelled === true
  if (!isCancelled) return shown(door, reply, credential, answer)
  return shown(door, reply, credential, { ok: true, program: id }, { effectsRemaining: gateway.effectsRemaining(tenant, id, part) })
}

export const cancelCall = (door: Door): Handler => async (request, reply, credential) => {
  const { id, part } = paramsOf(request)
  return shown(door, reply, credential, await door.gateway.cancelCall(credential.tenant, id, callIdIn(part)))
}

const paramsOf = (request: FastifyRequest): { readonly id: string; readonly part: string } =>
  request.params as { readonly id: string; readonly part: string }
