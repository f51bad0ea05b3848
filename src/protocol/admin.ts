/** Owns the wire of what operators and model pickers read: models with what their engines can do, readiness, pages. */
import { z } from 'zod'
import { seconds, type Us } from '../core/units.ts'
import type { Problem } from './errors.ts'
import { bodyProblem } from './schema-fault.ts'

export interface ModelView {
  readonly id: string
  readonly object: 'model'
  /** Seconds since 1970. */
  readonly created: number
  readonly owned_by: 'entracte'
  /** Our extension: one entry for each engine that serves it. */
  readonly entracte: { readonly engines: readonly ModelEngineView[] }
}

export interface ModelEngineView {
  readonly id: string
  readonly contextTokens: number
  readonly runningMax: number
  /** Whether a resumed State yields the same tokens, and why that is known. */
  readonly exact: { readonly answer: string; readonly because: string }
  /** What the engine declares; the rest of it, by name. */
  readonly capabilities: Readonly<Record<string, unknown>>
}

export interface ReadyView {
  /** `drained`: none takes calls, and at least one by an operator's word. */
  readonly status: 'ready' | 'drained' | 'starting'
  /** `starting`, `joined`, `draining`, `drained`, `lost`, `crash-loop` or `refused`. */
  readonly engines: readonly { readonly id: string; readonly stage: string }[]
}

/** An engine, for who looks after it. */
export interface EngineView {
  readonly id: string
  readonly stage: string
  /** What went wrong and what comes next, or what is not as configured. */
  readonly why: string | null
  readonly callsRunning: number
  /** Suspended States on its device. */
  readonly statesIdle: number
}

/** `next` goes into the query's `after` for the page that follows; null on the last. */
export interface Page<Item> {
  readonly object: 'list'
  readonly data: readonly Item[]
  readonly next: string | null
}

/** A day. */
const WITHIN_SECONDS_MAX = 86_400
const WITHIN_SECONDS = 30

const drain = z.strictObject({ withinSeconds: z.number().min(0).max(WITHIN_SECONDS_MAX).default(WITHIN_SECONDS) })

type ParsedDrain = { readonly ok: true; readonly withinUs: Us } | { readonly ok: false; readonly problem: Problem }

/** An absent body lets what runs there have half a minute. */
export function parseDrain(json: unknown): ParsedDrain {
  const parsed = drain.safeParse(json ?? {})
  return parsed.success ? { ok: true, withinUs: seconds(parsed.data.withinSeconds) } : { ok: false, problem: bodyProblem(parsed.error) }
}
