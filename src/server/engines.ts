/** Owns the routes of who looks after engines: how each is, draining one, and ending that. */
import type { EngineStanding } from '../driver/gateway.ts'
import { parseDrain, type EngineView } from '../protocol/admin.ts'
import { problemOf } from '../protocol/errors.ts'
import { sendProblem, type Door, type Handler } from './door.ts'

export const listEngines = (door: Door): Handler => (_request, reply) =>
  reply.send({ object: 'list', data: door.gateway.engines().map(viewOf), next: null })

/** Answered when it has begun, and a crash cannot undo that; the list says when it is done. */
export const drainEngine = (door: Door): Handler => async (request, reply) => {
  const { id } = request.params as { readonly id: string }
  const parsed = parseDrain(request.body)
  if (!parsed.ok) return sendProblem(reply, parsed.problem)
  const answer = await door.gateway.drain(id, parsed.withinUs)
  if (!answer.ok) return sendProblem(reply, problemOf(answer.code, answer.why))
  return reply.code(202).send({ id, draining: true })
}

export const undrainEngine = (door: Door): Handler => async (request, reply) => {
  const { id } = request.params as { readonly id: string }
  const answer = await door.gateway.undrain(id)
  if (!answer.ok) return sendProblem(reply, problemOf(answer.code, answer.why))
  return reply.code(202).send({ id, draining: false })
}

const viewOf = ({ id, stage, why, running, idle }: EngineStanding): EngineView =>
  ({ id, stage, why, callsRunning: running, statesIdle: idle })
