/**
 * Owns one run of the mix against one server: agents arrive when drawn, each runs by itself, and at the end the server is
 * asked for the facts of each. What came out is kept by program, so that two runs can be compared program by program.
 */
import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { explain, type Explanation } from '../core/explain.ts'
import type { Logged } from '../core/fact.ts'
import { runAgent, type AgentStep, type ProgramRecord } from './agent.ts'
import { ChatError, type Endpoint } from './chat-client.ts'
import { Corpus } from './corpus.ts'
import type { Arrival } from './mix.ts'
import { Toolbox } from './tools.ts'

const FACTS_MAX = 10_000

interface MixRunOptions {
  readonly endpoint: Endpoint
  readonly model: string
  readonly tokenScale: number
  readonly arrivals: readonly Arrival[]
  readonly seed: number
  /** Set apart from other runs on the same server. */
  readonly prefix: string
  readonly notify: (step: AgentStep, atMs: number) => void
  readonly signal: AbortSignal
}

export interface ProgramOutcome {
  readonly record: ProgramRecord
  readonly explanation: Explanation
}

export interface MixOutcome {
  /** In the order of the programs' names. */
  readonly programs: readonly ProgramOutcome[]
  /** From the first arrival to the last answer. */
  readonly wallMs: number
}

export async function runMix(options: MixRunOptions): Promise<MixOutcome> {
  const { endpoint, model, tokenScale, signal } = options
  // Every request and every wait of every agent hangs on it.
  setMaxListeners(0, signal)
  const beganAt = performance.now()
  const now = (): number => performance.now() - beganAt
  const world = {
    endpoint, model, tokenScale, signal, now, toolbox: new Toolbox(), corpus: Corpus.load(),
    notify: (step: AgentStep): void => options.notify(step, now()),
  }
  const records = await Promise.all(options.arrivals.map(async ({ program, atMs, waitsMs }) => {
    await sleep(Math.max(0, atMs - now()), undefined, { signal })
    return runAgent({ id: `${options.prefix}${program.name}`, program, waitsMs, seed: options.seed }, world)
  }))
  const wallMs = now()
  const programs = await Promise.all(records.map(async (record) => ({ record, explanation: explain(await factsOf(endpoint, record.id), NOBODY_WAITS) })))
  return { programs: programs.sort((a, b) => (a.record.name < b.record.name ? -1 : 1)), wallMs }
}

/** Every program has ended, so nothing of the present is needed. */
const NOBODY_WAITS = { nowUs: 0, queued: {} }

export async function factsOf(endpoint: Endpoint, program: string): Promise<readonly Logged[]> {
  const response = await fetch(`${endpoint.url}/v1/programs/${encodeURIComponent(program)}/facts?max=${FACTS_MAX}`, { headers: endpoint.headers })
  if (!response.ok) throw new ChatError(`the facts of ${program}: HTTP ${response.status}: ${await response.text()}`)
  const page = await response.json() as { readonly data: readonly Logged[] }
  return page.data
}
