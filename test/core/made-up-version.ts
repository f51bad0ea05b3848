/**
 * A version of facts that no release ever had, for the law that old logs are lifted: agents had no name, a retry had
 * another, and nothing was said of the effect of tools. `lower` makes today's facts into it, `LIFTS` back.
 */
import type { Fact, Logged } from '../../src/core/fact.ts'
import type { Lift, OldFact } from '../../src/core/upcast.ts'

export const MADE_UP_VERSION = 0

export const LIFTS: ReadonlyMap<number, Lift> = new Map([[MADE_UP_VERSION, (old: OldFact): OldFact => {
  switch (old.kind) {
    case 'program.started': return { ...old, agent: 'agent' }
    case 'call.tried.again': return { ...old, kind: 'call.retried' }
    case 'interrupt.started': return { ...old, effect: 'read' }
    default: return old
  }
}]])

export const lower = (logged: Logged): Logged => ({ ...logged, version: MADE_UP_VERSION, fact: lowered(logged.fact) as Fact })

function lowered(fact: Fact): OldFact {
  switch (fact.kind) {
    case 'program.started': return without(fact, 'agent')
    case 'call.retried': return { ...fact, kind: 'call.tried.again' }
    case 'interrupt.started': return without(fact, 'effect')
    default: return fact as OldFact
  }
}

function without(fact: Fact, field: string): OldFact {
  const rest: Record<string, unknown> = { ...fact }
  delete rest[field]
  return rest as OldFact
}
