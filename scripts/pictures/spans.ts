/**
 * Owns what a picture shows of a run: from its facts, what each program did when, where each State's bytes were, and how
 * much of the device was taken. Decides nothing about how it looks.
 */
import type { Fact, Logged } from '../../src/core/fact.ts'

export type Doing = 'queued' | 'running' | 'waiting' | 'device' | 'host'

/** One stretch of a row; times in microseconds. */
export interface Span { readonly row: string; readonly doing: Doing; readonly fromUs: number; readonly toUs: number }

/** What each program was doing: in the queue, on an engine, or waiting for a tool or a person. */
export function programSpans(facts: readonly Logged[]): Span[] {
  const rows = new Rows()
  const programOf = new Map<string, string>()
  for (const { atUs, fact } of facts) {
    if (fact.kind === 'call.arrived') programOf.set(fact.call, fact.program)
    const next = doingOf(fact)
    const program = 'call' in fact ? programOf.get(fact.call) : undefined
    if (next !== undefined && program !== undefined) rows.change(program, next, atUs)
  }
  return rows.spans
}

/** Undefined: nothing changes; null: it does nothing now. */
function doingOf(fact: Fact): Doing | null | undefined {
  switch (fact.kind) {
    case 'call.arrived': case 'call.paused': case 'call.retried': case 'kv.onboard.begun': return 'queued'
    case 'call.scheduled': return 'running'
    case 'interrupt.started': return 'waiting'
    case 'call.completed': case 'call.cancelled': case 'call.failed': case 'call.detached': return null
    default: return undefined
  }
}

/** Where each State's bytes were; a gap: nowhere, only its tokens were known. */
export function stateSpans(facts: readonly Logged[]): Span[] {
  const rows = new Rows()
  const stateOf = new Map<string, string>()
  for (const { atUs, fact } of facts) {
    if (fact.kind === 'call.scheduled') {
      stateOf.set(fact.call, fact.state)
      rows.change(fact.state, 'device', atUs)
    }
    if (fact.kind === 'kv.moved') rows.change(fact.state, fact.to, atUs)
    if (fact.kind === 'kv.discarded') rows.change(fact.state, null, atUs)
  }
  rows.close(facts.at(-1)?.atUs ?? 0)
  return rows.spans
}

class Rows {
  readonly spans: Span[] = []
  readonly #now = new Map<string, { doing: Doing; fromUs: number }>()

  change(row: string, doing: Doing | null, atUs: number): void {
    const before = this.#now.get(row)
    if (before?.doing === doing) return
    if (before !== undefined && atUs > before.fromUs) this.spans.push({ row, doing: before.doing, fromUs: before.fromUs, toUs: atUs })
    if (doing === null) this.#now.delete(row)
    else this.#now.set(row, { doing, fromUs: atUs })
  }

  close(atUs: number): void {
    for (const row of [...this.#now.keys()]) this.change(row, null, atUs)
  }
}
