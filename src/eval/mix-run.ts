/**
 * Owns one run of the mix against one server: agents arrive when drawn, each runs by itself, and at the end the server is
 * asked for the facts of each. What came out is kept by program, so that two runs can be compared program by program.
 */
import { setMaxListeners } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { explain, type Explanation } from '../core/explain/explain.ts'
import { runAgent } from './agent.ts'
import type { AgentStep, ProgramRecord } from './agent-record.ts'
import type { Endpoint } from './chat-client.ts'
import { Corpus } from './corpus.ts'
import { runGraphAgent } from './graph-agent.ts'
import type { GraphArrival } from './graphs.ts'
import type { Arrival } from './mix.ts'
import { factsOf } from './program-client.ts'
import { Toolbox } from './tools.ts'

interface MixRunOptions {
  readonly endpoint: Endpoint
  readonly model: string
  readonly tokenScale: number
  readonly arrivals: readonly Arrival[]
  /** Programs that report forks and joins, beside the others; none where it is not given. */
  readonly graphs?: readonly GraphArrival[]
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
  const jobOf = <P extends { readonly name: string }>(program: P): { id: string; program: P; seed: number } =>
    ({ id: `${options.prefix}${program.name}`, program, seed: options.seed })
  const arrived = (atMs: number): Promise<void> => sleep(Math.max(0, atMs - now()), undefined, { signal })
  const records = await Promise.all([
    ...options.arrivals.map(({ program, atMs, waitsMs }) => arrived(atMs).then(() => runAgent({ ...jobOf(program), waitsMs }, world))),
    ...(options.graphs ?? []).map(({ program, atMs }) => arrived(atMs).then(() => runGraphAgent(jobOf(program), world))),
  ])
  const wallMs = now()
  const programs = await Promise.all(records.map(async (record) => ({ record, explanation: explain(await factsOf(endpoint, record.id), NOBODY_WAITS) })))
  return { programs: programs.sort((a, b) => (a.record.name < b.record.name ? -1 : 1)), wallMs }
}

/** Every program has ended, so nothing of the present is needed. */
const NOBODY_WAITS = { nowUs: 0, queued: {} }
