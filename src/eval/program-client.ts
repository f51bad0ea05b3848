/**
 * Owns the client's side of the program API: a program is declared, reported on, cancelled, and asked for its facts.
 * Refusals are a `ChatError` that says what was refused; what is on the wire is in `docs/protocol.md`.
 */
import type { Logged } from '../core/fact.ts'
import { ChatError, codeIn, type Endpoint } from './chat-client.ts'

/** For what is not on the server yet when its last answer is here; beyond it the server is not well. */
const CANCEL_MS_MAX = 5_000
const FACTS_MAX = 10_000

interface Declaration {
  readonly id: string
  readonly agent: string
}

export const declareProgram = (endpoint: Endpoint, program: Declaration, signal: AbortSignal): Promise<void> =>
  post(endpoint, '/v1/programs', program, `declaring ${program.id}`, signal)

/** As much of a report as agents here have to say. */
export interface GraphReport {
  readonly forks: readonly { readonly thread: string; readonly from: string }[]
  readonly nodes: readonly (
    | { readonly id: string; readonly kind: 'LLM'; readonly thread: string; readonly parents: readonly string[] }
    | { readonly id: string; readonly kind: 'JOIN'; readonly parents: readonly string[]; readonly join: JoinRule }
  )[]
}

/** Branches that are open when it fires are cancelled. */
export type JoinRule =
  | { readonly rule: 'all' | 'any' }
  | { readonly rule: 'partial'; readonly atLeast: number }

export const reportGraph = (endpoint: Endpoint, id: string, report: GraphReport, signal: AbortSignal): Promise<void> =>
  post(endpoint, `/v1/programs/${encodeURIComponent(id)}/graph`, report, `the graph of ${id}`, signal)

async function post(endpoint: Endpoint, path: string, body: object, what: string, signal: AbortSignal): Promise<void> {
  const headers = { 'content-type': 'application/json', ...endpoint.headers }
  const response = await fetch(`${endpoint.url}${path}`, { method: 'POST', headers, body: JSON.stringify(body), signal })
  const text = await response.text()
  if (!response.ok) throw new ChatError(`${what}: HTTP ${response.status}: ${text}`, codeIn(text))
}

/** A program that failed holds memory that others wait for. That it cannot be cancelled either is no news worth more. */
export async function cancelProgram(endpoint: Endpoint, id: string): Promise<void> {
  const request = { method: 'DELETE', headers: endpoint.headers, signal: AbortSignal.timeout(CANCEL_MS_MAX) }
  await Promise.allSettled([fetch(`${endpoint.url}/v1/programs/${encodeURIComponent(id)}`, request)])
}

export async function factsOf(endpoint: Endpoint, program: string): Promise<readonly Logged[]> {
  const response = await fetch(`${endpoint.url}/v1/programs/${encodeURIComponent(program)}/facts?max=${FACTS_MAX}`, { headers: endpoint.headers })
  if (!response.ok) throw new ChatError(`the facts of ${program}: HTTP ${response.status}: ${await response.text()}`)
  const page = await response.json() as { readonly data: readonly Logged[] }
  return page.data
}

/** `fetch` hides what happened in the cause. */
export function reasonOf(fault: unknown): string {
  if (!(fault instanceof Error)) return String(fault)
  return fault.cause instanceof Error ? `${fault.message}: ${fault.cause.message}` : fault.message
}
