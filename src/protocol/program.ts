/**
 * Owns the wire of `/v1/programs`: what declares a program and what is shown of one. Field names are those of the
 * facts. Ids are as their client wrote them; which tenant they belong to comes from the credential alone. A body that
 * names a class or a priority, or anything else that is not here, is refused by that name; a deadline counts only where the key's configuration lets it (invariant 8).
 */
import { z } from 'zod'
import { seconds, type Bytes, type Tokens, type Us } from '../core/units.ts'
import type { Problem } from './errors.ts'
import { bodyProblem } from './schema-fault.ts'

/** Longest id a client may choose, in a body or a header. */
const ID_CHARS_MAX = 256
const PLAIN = /^[\x20-\x7e]+$/

/** Printable ASCII, so that an id can stand in a header, a URL and a terminal. */
export const isPlainId = (value: string): boolean =>
  value.length <= ID_CHARS_MAX && PLAIN.test(value) && value.trim() === value

/** A call's id, from the id of the reply that a client got; any other name as it is. */
export const callIdIn = (name: string): string => (name.startsWith(REPLY_PREFIX) ? name.slice(REPLY_PREFIX.length) : name)
const REPLY_PREFIX = 'chatcmpl-'

export const id = z.string().refine(isPlainId, `expected 1 to ${ID_CHARS_MAX} printable ASCII characters`)

/** Most calls that a program may say it will make. */
const STEPS_MAX = 1_000_000
/** A year. */
const DEADLINE_SECONDS_MAX = 31_536_000

const declaration = z.strictObject({
  id: id.nullish(), session: id.nullish(), agent: id.nullish(), parent: id.nullish(), steps: z.int().min(1).max(STEPS_MAX).nullish(),
  deadlineSeconds: z.number().gt(0).max(DEADLINE_SECONDS_MAX).nullish(),
})

interface ProgramDeclaration {
  readonly program: string | null
  readonly session: string | null
  readonly agent: string | null
  /** The program whose sub-agent it is. */
  readonly parent: string | null
  /** How many calls it will make. */
  readonly steps: number | null
  /** From its arrival; for the key's configuration to allow. */
  readonly deadlineUs: Us | null
}

type ParsedDeclaration =
  | { readonly ok: true; readonly declaration: ProgramDeclaration }
  | { readonly ok: false; readonly problem: Problem }

/** An absent body declares a program with an id of ours. */
export function parseDeclaration(json: unknown): ParsedDeclaration {
  const parsed = declaration.safeParse(json ?? {})
  if (!parsed.success) return { ok: false, problem: bodyProblem(parsed.error) }
  const { id: program = null, session = null, agent = null, parent = null, steps = null, deadlineSeconds = null } = parsed.data
  const deadlineUs = deadlineSeconds === null ? null : seconds(deadlineSeconds)
  return { ok: true, declaration: { program, session, agent, parent, steps, deadlineUs } }
}

const effect = z.strictObject({ toolCall: z.string().min(1).max(ID_CHARS_MAX), record: z.string().max(ID_CHARS_MAX).nullish() })

type ParsedEffect =
  | { readonly ok: true; readonly effect: { readonly toolCall: string; readonly record: string | null } }
  | { readonly ok: false; readonly problem: Problem }

/** A tool call that is done, and what its runtime keeps about it. */
export function parseEffect(json: unknown): ParsedEffect {
  const parsed = effect.safeParse(json ?? {})
  if (!parsed.success) return { ok: false, problem: bodyProblem(parsed.error) }
  return { ok: true, effect: { toolCall: parsed.data.toolCall, record: parsed.data.record ?? null } }
}

interface ServiceView { readonly residentUs: Us; readonly workUs: Us }

export interface ProgramView {
  readonly object: 'program'
  readonly id: string
  readonly session: string | null
  readonly parent: string | null
  readonly kind: string
  readonly declared: boolean
  readonly identity: { readonly source: string; readonly confidence: number }
  readonly priorityClass: string
  /** Milliseconds since 1970. */
  readonly deadlineAtMs: number | null
  readonly stage: { readonly kind: string; readonly provisional?: boolean; readonly why?: string }
  readonly epoch: number
  /** Milliseconds since 1970. */
  readonly arrivedAtMs: number
  /** From its arrival to its end, or until now. */
  readonly ageUs: Us
  readonly callsTotal: number
  readonly service: { readonly useful: ServiceView; readonly retried: ServiceView; readonly recomputed: ServiceView }
  readonly waits: readonly WaitView[]
}

export interface ProgramDetail extends ProgramView {
  readonly calls: readonly CallView[]
  readonly states: readonly StateView[]
  /** As its runtime declared it; empty where it declared none. */
  readonly nodes: readonly NodeView[]
}

/** What a thread of a program waits for. */
export interface WaitView {
  readonly thread: string
  readonly call: string | null
  /** `tool`, `retry`: its client, with results or again; `thread`: an earlier call; the others: us. */
  readonly on: 'tool' | 'thread' | 'measure' | 'queue' | 'resume' | 'engine' | 'retry'
  readonly forUs: Us
  readonly what: string
  /** In a queue: who runs meanwhile, by name where it is this key's. */
  readonly behind: { readonly programs: readonly string[]; readonly others: number } | null
}

export interface CallView {
  readonly id: string
  readonly thread: string
  readonly model: string
  readonly stage: string
  readonly attempt: number
  readonly promptTokens: Tokens
  readonly outputTokens: Tokens
  readonly recomputedTokens: Tokens
  readonly finish: string | null
  readonly why: string | null
}

export interface NodeView {
  readonly id: string
  readonly kind: string
  readonly stage: string
  readonly why: string | null
  readonly thread: string | null
  readonly call: string | null
  readonly parents: readonly string[]
}

export interface StateView {
  readonly thread: string
  readonly residence: string
  readonly tier: string | null
  readonly deviceTokens: Tokens
  readonly hostBytes: Bytes
}
