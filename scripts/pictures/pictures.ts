/** Owns which runs the pictures of `docs/` show. Each is a function of its settings alone. */
import type { Logged } from '../../src/core/fact.ts'
import { allFaults, faultsNamed } from '../../src/sim/faults.ts'
import { settingsOf, type Settings } from '../../src/sim/settings.ts'
import { World } from '../../src/sim/world.ts'
import { gantt } from './gantt.ts'
import { programSpans, stateSpans, type Span } from './spans.ts'

export async function pictures(): Promise<Record<string, string>> {
  const byCall = await run({ ...CALM, core: { ...CALM.core, order: 'fcfs' } })
  const whole = await run({ ...CALM, core: { ...CALM.core, order: 'fcfs-program' } })
  const stormy = await run({ ...settingsOf({ seed: 5, steps: 300, faults: allFaults(), order: 'fcfs-program', residency: 'least-cost', engines: ['lanes', 'lanes'] }), agentsAtOnce: 8 })
  return {
    'orders.svg': gantt([programs('First come, first served, call by call', byCall), programs('The oldest program first', whole)]),
    'tiers.svg': gantt([states('Where each State is while its program waits', whole)]),
    'faults.svg': gantt([{ ...programs('Everything goes wrong (marks), then all is healed and what can finish does', stormy), marks: stormy.marks }]),
  }
}

/** Fourteen programs on one engine of four lanes, and nothing goes wrong. */
const CALM: Settings = {
  ...settingsOf({ seed: 21, steps: 120, faults: faultsNamed([]), residency: 'least-cost', engines: ['lanes'] }),
  agents: Array.from({ length: 14 }, (_, at) => at + 1),
  agentsAtOnce: 14,
  size: { callsMax: 5, givenMax: 60, saysMax: 90, waitMaxUs: 1_500_000 },
}

interface Run { readonly facts: readonly Logged[]; readonly marks: { atUs: number; text: string }[] }

async function run(settings: Settings): Promise<Run> {
  const facts: Logged[] = []
  const marks: { atUs: number; text: string }[] = []
  const tell = (line: string): void => {
    const [atUs, what, ...rest] = line.split(' ')
    if (what === 'life') facts.push(JSON.parse(line.slice(line.indexOf('{'))) as Logged)
    if (what === 'fault') marks.push({ atUs: Number(atUs), text: rest.join(' ') })
  }
  const outcome = await new World(settings, { tell }).run()
  if (outcome.failure !== null) throw new Error(`the run failed: ${outcome.failure.what}`)
  return { facts, marks }
}

const programs = (title: string, { facts }: Run) => chart(title, programSpans(facts), facts)
const states = (title: string, { facts }: Run) => chart(title, stateSpans(facts), facts)

function chart(title: string, spans: readonly Span[], facts: readonly Logged[]) {
  const rows = [...new Set([...spans].sort((a, b) => a.fromUs - b.fromUs).map(({ row }) => row))]
  const short = new Map(rows.map((row, at) => [row, `${at + 1}`]))
  return {
    title,
    rows: [...short.values()],
    spans: spans.map((span) => ({ ...span, row: short.get(span.row) ?? span.row })),
    endUs: facts.reduce((last, { atUs, fact }) => (fact.kind === 'call.completed' ? atUs : last), 0),
  }
}
