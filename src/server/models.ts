/** Owns the routes that say what is there: models and what their engines can do, that we live, whether we are ready. */
import type { Engine } from '../core/state.ts'
import type { ModelEngineView, ModelView, ReadyView } from '../protocol/admin.ts'
import { problem } from '../protocol/errors.ts'
import { sendProblem, type Door, type Handler } from './door.ts'

export const listModels = (door: Door): Handler => (_request, reply) =>
  reply.send({ object: 'list', data: modelsOf(door) })

export const showModel = (door: Door): Handler => (request, reply) => {
  const { id } = request.params as { readonly id: string }
  const found = modelsOf(door).find((model) => model.id === id)
  return found === undefined ? sendProblem(reply, problem('unknown_model', `"${id}"`)) : reply.send(found)
}

export const health = (): Handler => (_request, reply) => reply.send({ status: 'ok' })

/** Ready is: some engine can take a call. */
export const readiness = (door: Door): Handler => (_request, reply) => {
  const engines = door.gateway.engines().map(({ id, stage }) => ({ id, stage }))
  const ready = engines.some((engine) => engine.stage === 'joined')
  const answer: ReadyView = { status: ready ? 'ready' : engines.some(({ stage }) => stage === 'drained') ? 'drained' : 'starting', engines }
  return reply.code(ready ? 200 : problem('engine_unavailable').status).send(answer)
}

function modelsOf(door: Door): readonly ModelView[] {
  const created = Math.floor(performance.timeOrigin / 1_000)
  const models = new Map<string, ModelEngineView[]>()
  for (const engine of door.gateway.core.engines.values()) {
    if (engine.stage !== 'joined') continue
    for (const model of engine.capabilities.models) models.set(model, [...models.get(model) ?? [], viewEngine(engine)])
  }
  return [...models].map(([id, engines]) =>
    ({ id, object: 'model', created, owned_by: 'entracte', entracte: { engines } }))
}

function viewEngine(engine: Engine): ModelEngineView {
  const { models: _models, contextTokens, runningMax, exact, ...capabilities } = engine.capabilities
  return { id: engine.id, contextTokens, runningMax, exact, capabilities }
}
