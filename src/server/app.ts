/**
 * Owns the table of routes and what holds for all of them: who may come in, how large and how slow a request may be,
 * one shape for every error, and a request id on every answer. Leaves what a route does to the file that it names.
 */
import { randomUUID } from 'node:crypto'
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  fastify, LogController,
  type FastifyBaseLogger, type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest,
} from 'fastify'
import type { Gateway } from '../driver/gateway.ts'
import { problem, type Problem } from '../protocol/errors.ts'
import { adminRefusal, bearerOf, isLoopbackName, isSameKey, Keyring, NOBODY, type TenantKey } from './auth.ts'
import { completions } from './completions.ts'
import { sendProblem, type Credential, type Door, type DoorLimits, type Handler } from './door.ts'
import { drainEngine, listEngines, undrainEngine } from './engines.ts'
import { cancelCall, cancelThread, reportGraph } from './graph.ts'
import { FactWaits } from './fact-waits.ts'
import { DoorMetrics } from './metrics.ts'
import { health, listModels, readiness, showModel } from './models.ts'
import { cancelProgram, commitEffect, declareProgram, finishProgram, listPrograms, programFacts, showProgram } from './programs.ts'
import type { UpdateFeed } from './update-feed.ts'

export interface AppOptions {
  readonly gateway: Gateway
  /** Where it will listen: without tenants, and for metrics without a key, that must be loopback. */
  readonly host: string
  readonly tenants: readonly TenantKey[]
  readonly limits: DoorLimits
  readonly metricsKey: string | null
  readonly adminKey: string | null
  /** How many are kept, and how many could not be read or made since the start. */
  readonly snapshots: { readonly count: number; readonly lost: number }
  /** Null: says nothing. */
  readonly log: FastifyBaseLogger | null
}

interface Route {
  readonly method: 'GET' | 'POST' | 'DELETE'
  readonly url: string
  /** `key`: a tenant's; `scrape`: the metrics' own; `admin`: the operator's; `open`: nobody's. */
  readonly access: 'key' | 'scrape' | 'admin' | 'open'
  readonly handle: Handler
}

const routesOf = (door: Door): readonly Route[] => [
  { method: 'POST', url: '/v1/chat/completions', access: 'key', handle: completions(door) },
  { method: 'GET', url: '/v1/models', access: 'key', handle: listModels(door) },
  { method: 'GET', url: '/v1/models/:id', access: 'key', handle: showModel(door) },
  { method: 'POST', url: '/v1/programs', access: 'key', handle: declareProgram(door) },
  { method: 'GET', url: '/v1/programs', access: 'key', handle: listPrograms(door) },
  { method: 'GET', url: '/v1/programs/:id', access: 'key', handle: showProgram(door) },
  { method: 'DELETE', url: '/v1/programs/:id', access: 'key', handle: cancelProgram(door) },
  { method: 'POST', url: '/v1/programs/:id/finish', access: 'key', handle: finishProgram(door) },
  { method: 'POST', url: '/v1/programs/:id/graph', access: 'key', handle: reportGraph(door) },
  { method: 'DELETE', url: '/v1/programs/:id/threads/:part', access: 'key', handle: cancelThread(door) },
  { method: 'DELETE', url: '/v1/programs/:id/calls/:part', access: 'key', handle: cancelCall(door) },
  { method: 'POST', url: '/v1/programs/:id/effects', access: 'key', handle: commitEffect(door) },
  { method: 'GET', url: '/v1/programs/:id/facts', access: 'key', handle: programFacts(door) },
  { method: 'GET', url: '/v1/admin/engines', access: 'admin', handle: listEngines(door) },
  { method: 'POST', url: '/v1/admin/engines/:id/drain', access: 'admin', handle: drainEngine(door) },
  { method: 'POST', url: '/v1/admin/engines/:id/undrain', access: 'admin', handle: undrainEngine(door) },
  { method: 'GET', url: '/healthz', access: 'open', handle: health() },
  { method: 'GET', url: '/readyz', access: 'open', handle: readiness(door) },
  { method: 'GET', url: '/metrics', access: 'scrape', handle: showMetrics(door) },
]

const showMetrics = (door: Door): Handler => async (_request, reply) =>
  reply.type(door.metrics.contentType).send(await door.metrics.text())

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'] as const
/** Of an id in a path, percent-encoded. */
const PARAM_CHARS_MAX = 1_024
/** Time that answers have to end when the server stops, and how often it is looked whether they have. */
const CLOSE_MS_MAX = 2_000
const CLOSE_STEP_MS = 5
const REQUEST_ID = /^[\x21-\x7e]{1,128}$/

/** Throws where a listener that others can reach has no keys: there is no safe way to serve it. */
export function buildApp(options: AppOptions): FastifyInstance {
  if (options.tenants.length === 0 && !isLoopbackName(options.host)) {
    throw new Error(`${options.host} can be reached by other machines and no tenants are configured`)
  }
  const app = fastify({
    ...(options.log === null ? { logger: false } : { loggerInstance: options.log }),
    logController: new LogController({ disableRequestLogging: true }),
    return503OnClosing: false,
    bodyLimit: options.limits.bodyBytesMax,
    requestTimeout: options.limits.requestMsMax,
    // Only after `preClose`, which lets every answer end in its own words.
    forceCloseConnections: true,
    routerOptions: { maxParamLength: PARAM_CHARS_MAX },
    genReqId: ({ headers }) => requestIdOf(headers['x-request-id']),
    frameworkErrors: (error, _request, reply) => { void sendProblem(reply as FastifyReply, problemOfError(error)) },
    clientErrorHandler: (error, socket) => answerBrokenClient(error, socket),
  })
  const feeds = new Set<UpdateFeed>()
  const metrics = new DoorMetrics(options.gateway, options.snapshots, () => feeds.size)
  const door: Door = { gateway: options.gateway, limits: options.limits, metrics, feeds, factWaits: new FactWaits(options.gateway) }
  readJsonOnly(app)
  addAnswers(app)
  if (options.log !== null) logAnswers(app)
  addRoutes(app, routesOf(door), options)
  app.addHook('preClose', () => {
    door.factWaits.close()
    return endAnswers(feeds)
  })
  app.addHook('onClose', () => metrics.close())
  return app
}

/** The client's own where it is plain, so that both logs speak of the same. */
function requestIdOf(given: string | string[] | undefined): string {
  return typeof given === 'string' && REQUEST_ID.test(given) ? given : randomUUID()
}

/** Whoever waits is told that we stop; what is not told by then is cut. */
async function endAnswers(feeds: ReadonlySet<UpdateFeed>): Promise<void> {
  for (const feed of feeds) feed.stop()
  const until = performance.now() + CLOSE_MS_MAX
  do await sleep(CLOSE_STEP_MS)
  while (feeds.size > 0 && performance.now() < until)
}

/** A page in a browser can send plain text anywhere without asking; JSON it cannot. An absent body is no body. */
function readJsonOnly(app: FastifyInstance): void {
  const parse = app.getDefaultJsonParser('error', 'error')
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) => {
    if (body.length === 0) done(null, undefined)
    else void parse(request, body as string, done)
  })
}

function logAnswers(app: FastifyInstance): void {
  app.addHook('onResponse', async (request, reply) => {
    const { method, routeOptions: { url: route } } = request
    request.log.info({ method, route, status: reply.raw.statusCode, ms: Math.round(reply.elapsedTime) }, 'answered')
  })
}

function addAnswers(app: FastifyInstance): void {
  let closing = false
  app.addHook('preClose', async () => { closing = true })
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id)
    return closing ? sendProblem(reply.header('connection', 'close'), problem('shutting_down')) : undefined
  })
  app.setNotFoundHandler(({ method, url }, reply) =>
    sendProblem(reply, problem('not_found', `${method} ${url.slice(0, PARAM_CHARS_MAX)}`)))
  app.setErrorHandler((error: FastifyError, request, reply) => {
    const answer = problemOfError(error)
    if (answer.status >= 500) request.log.error({ err: error }, 'a request failed')
    return sendProblem(reply, answer)
  })
}

function addRoutes(app: FastifyInstance, routes: readonly Route[], options: AppOptions): void {
  const keyring = new Keyring(options.tenants)
  const credentials = new WeakMap<FastifyRequest, Credential>()
  const admitKey = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> => {
    const admission = keyring.admit(request.headers)
    if (!admission.ok) return sendProblem(reply, problem(admission.code, admission.why))
    credentials.set(request, admission.credential)
    return undefined
  }
  const admitScrape = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> => {
    const refusal = scrapeRefusal(options, bearerOf(request.headers))
    return refusal === null ? undefined : sendProblem(reply, refusal)
  }
  const isShared = options.tenants.length > 0 || !isLoopbackName(options.host)
  const admitAdmin = async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> => {
    const refusal = adminRefusal(request.headers, options.adminKey, isShared)
    return refusal === null ? undefined : sendProblem(reply, problem(refusal.code, refusal.why))
  }
  const admit = { key: admitKey, scrape: admitScrape, admin: admitAdmin, open: async () => undefined }
  for (const { method, url, access, handle } of routes) {
    app.route({
      method, url, onRequest: admit[access],
      handler: (request, reply) => handle(request, reply, credentials.get(request) ?? NOBODY),
    })
  }
  for (const url of new Set(routes.map((route) => route.url))) {
    refuseOtherMethods(app, url, routes.filter((route) => route.url === url).map((route) => route.method))
  }
}

function refuseOtherMethods(app: FastifyInstance, url: string, allowed: readonly string[]): void {
  app.route({
    method: METHODS.filter((method) => !allowed.includes(method)),
    url,
    onRequest: async (request, reply) =>
      sendProblem(reply.header('allow', allowed.join(', ')), problem('method_not_allowed', request.method)),
    handler: () => undefined,
  })
}

/** Metrics show every tenant, so no tenant's key opens them. */
function scrapeRefusal(options: AppOptions, key: string | null): Problem | null {
  if (options.metricsKey === null && isLoopbackName(options.host)) return null
  if (options.metricsKey === null) return problem('unauthorized', 'without metricsKey metrics are shown on loopback only')
  const admitted = key !== null && isSameKey(key, options.metricsKey)
  return admitted ? null : problem('unauthorized', 'metrics want metricsKey of the configuration')
}

const BY_FASTIFY_CODE: Readonly<Record<string, (error: FastifyError) => Problem>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: () => problem('body_too_large'),
  FST_ERR_CTP_INVALID_MEDIA_TYPE: (error) => problem('unsupported_media_type', error.message),
  FST_ERR_CTP_EMPTY_TYPE: () => problem('unsupported_media_type'),
  FST_ERR_CTP_INVALID_JSON_BODY: () => problem('invalid_json'),
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: (error) => problem('invalid_request', error.message),
}

/** What comes here was not said in our own words: framework, parser, or a bug. */
function problemOfError(error: FastifyError): Problem {
  const known = BY_FASTIFY_CODE[error.code]
  if (known !== undefined) return known(error)
  if (error instanceof SyntaxError) return problem('invalid_json', error.message)
  const { statusCode = 500, message } = error
  return statusCode >= 400 && statusCode < 500 ? problem('invalid_request', message) : problem('internal')
}

/** What came is not even HTTP, or came too slowly. */
function answerBrokenClient(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const late = error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
  const { status, headers, body } = late ? problem('request_timeout') : problem('invalid_request', error.message)
  const text = JSON.stringify(body)
  const length = String(Buffer.byteLength(text))
  const all = { ...headers, 'content-type': 'application/json', 'content-length': length, connection: 'close' }
  const lines = Object.entries(all)
  socket.end(`HTTP/1.1 ${status} Error\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${text}`)
}
