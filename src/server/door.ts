/**
 * Owns what every route is given: the gateway behind the door, the limits before it, and who may come in. `main.ts`
 * fills it from the configuration.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { TenantId } from '../core/ids.ts'
import type { Us } from '../core/units.ts'
import type { Gateway } from '../driver/gateway.ts'
import type { Problem } from '../protocol/errors.ts'
import type { FactWaits } from './fact-waits.ts'
import type { DoorMetrics } from './metrics.ts'
import type { UpdateFeed } from './update-feed.ts'

/** Every one of them has its behaviour at the limit beside it in the configuration. */
export interface DoorLimits {
  readonly bodyBytesMax: number
  readonly keepAliveMs: number
  readonly queueHoldMs: number
  readonly streamBufferBytesMax: number
  readonly slowReaderMs: number
  readonly requestMsMax: number
}

/** What a request may do, from its credential alone (invariant 8). */
export interface Credential {
  readonly tenant: TenantId
  readonly priorityClass: string
  /** From a program's arrival. */
  readonly deadlineUs: Us | null
  /** Whether a program's runtime may state a deadline when it declares it. */
  readonly statesDeadlines: boolean
  readonly exactResume: boolean | null
}

export interface Door {
  readonly gateway: Gateway
  readonly limits: DoorLimits
  readonly metrics: DoorMetrics
  /** Calls that somebody waits for here. */
  readonly feeds: Set<UpdateFeed>
  readonly factWaits: FactWaits
}

export type Handler = (request: FastifyRequest, reply: FastifyReply, credential: Credential) => unknown

export function sendProblem(reply: FastifyReply, problem: Problem): FastifyReply {
  return reply.code(problem.status).headers(problem.headers).send(problem.body)
}

/**
 * The deadline of a program that arrives now, as a point in time: the credential's, or where it lets a runtime state one,
 * what was `stated`, but never sooner than the credential's own.
 */
export function deadlineOf(door: Door, credential: Credential, stated: Us | null = null): Us | null {
  const own = credential.deadlineUs
  const fromNowUs = stated === null || !credential.statesDeadlines ? own : Math.max(stated, own ?? 0)
  return fromNowUs === null ? null : door.gateway.nowUs() + fromNowUs
}
