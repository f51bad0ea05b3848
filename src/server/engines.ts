/** Owns the routes of who looks after engines: how each is, draining one, and ending that. */
import type { EngineStanding } from '../driver/gateway.ts'
import { parseDrain, type EngineView } from '../protocol/admin.ts'
import { problem } from '../protocol/errors.ts'
import { sendProblem, type Door, type Handler } from './door.ts'

export const listEngines = (door: Door): Handler => (_request, reply) =>
  reply.send({ object: 'list', data: door.gateway.engines().map(viewOf), next: null })

/** Answered when it has begun; the list says when it is done. */
export const drainEngine = (door: Door): Handler => (request, reply) => {
  const { id } = request.params as { readonly id: string }
  const parsed = parseDrain(request.body)
  if (!parsed.ok) return sendProblem(reply, parsed.problem)
  if (!door.gateway.drain(id, parsed.withinUs)) return sendProblem(reply, problem('unknown_engine', `"${id}"`))
  return reply.code(202).send({ id, draining: true })
}

export const undrainEngine = (door: Door): Handler => (request, reply) => {
  const { id } = request.params as { readonly id: string }
  if (!door.gateway.undrain(id)) return sendProblem(reply, problem('unknown_engine', `"${id}"`))
  return reply.code(202).send({ id, draining: false })
}

const viewOf = ({ id, stage, why, running, idle }: EngineStanding): EngineView =>
  ({ id, stage, why, callsRunning: running, statesIdle: idle })
