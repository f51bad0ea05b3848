/**
 * Owns what an agent of a trace does: which of its calls and waits begin when others have ended, and which thread each
 * call is of. It knows its whole graph, and tells nobody: the core sees calls as they come.
 */
import type { TraceCall, TraceProgram, TraceWait } from '../src/eval/traces.ts'
import type { Us } from '../src/core/units.ts'

/** A program of a trace, drawn: with its arrival, and a time for each wait. */
export interface DrawnProgram {
  /** Unique in its run. */
  readonly name: string
  readonly of: TraceProgram
  readonly arrivalUs: Us
  /** By node; 0 for calls. */
  readonly waitsUs: readonly Us[]
}

export interface PlannedCall {
  readonly place: number
  readonly call: TraceCall
  readonly thread: string
  /** The call before it in its thread; -1: it begins one. */
  readonly continues: number
  /** The tools it calls, if the next call of its thread brings their results. */
  readonly tools: readonly string[]
}

export interface PlannedWait { readonly place: number; readonly wait: TraceWait; readonly waitUs: Us }

/** The threads of a graph: a call continues the last of the calls it follows that no call continues yet. */
export function planThreads({ nodes }: TraceProgram): ReadonlyMap<number, PlannedCall> {
  const continued = new Set<number>()
  const threads = new Map<number, string>()
  const continues = new Map<number, number>()
  const afterWait = new Set<number>()
  for (const [place, node] of nodes.entries()) {
    if (node.kind !== 'call') continue
    const follows = callsBefore(nodes, place)
    const from = [...follows.keys()].sort((a, b) => b - a).find((call) => !continued.has(call)) ?? -1
    continues.set(place, from)
    threads.set(place, from < 0 ? `t${place}` : threads.get(from) ?? '')
    if (from < 0) continue
    continued.add(from)
    if (follows.get(from) === 'wait') afterWait.add(from)
  }
  return new Map([...continues].map(([place, from]) => {
    const call = nodes[place]
    if (call?.kind !== 'call') throw new Error(`node ${place} is no call`)
    const tools = afterWait.has(place) ? nodes.flatMap((node) => (node.kind !== 'call' && node.parents.includes(place) ? [node.tool] : [])) : []
    return [place, { place, call, thread: threads.get(place) ?? '', continues: from, tools }]
  }))
}

/** Calls that a node follows, at once or after waits. */
function callsBefore(nodes: TraceProgram['nodes'], place: number): Map<number, 'wait' | 'none'> {
  const found = new Map<number, 'wait' | 'none'>()
  const look = (parents: readonly number[], between: 'wait' | 'none'): void => {
    for (const parent of parents) {
      const node = nodes[parent]
      if (node?.kind === 'call') { if (found.get(parent) !== 'wait') found.set(parent, between) }
      else look(node?.parents ?? [], 'wait')
    }
  }
  look(nodes[place]?.parents ?? [], 'none')
  return found
}

export class VirtualAgent {
  readonly drawn: DrawnProgram
  readonly calls: ReadonlyMap<number, PlannedCall>
  readonly #missing: number[]
  readonly #children: number[][]
  #left: number

  constructor(drawn: DrawnProgram) {
    const { nodes } = drawn.of
    this.drawn = drawn
    this.calls = planThreads(drawn.of)
    this.#left = nodes.length
    this.#missing = nodes.map(({ parents }) => parents.length)
    this.#children = nodes.map(() => [])
    for (const [place, { parents }] of nodes.entries()) for (const parent of parents) this.#children[parent]?.push(place)
  }

  get done(): boolean {
    return this.#left === 0
  }

  begin(): (PlannedCall | PlannedWait)[] {
    return this.#missing.flatMap((missing, place) => (missing === 0 ? [this.#at(place)] : []))
  }

  /** What begins now that this node has ended. */
  ended(place: number): (PlannedCall | PlannedWait)[] {
    this.#left -= 1
    const begin: (PlannedCall | PlannedWait)[] = []
    for (const child of this.#children[place] ?? []) {
      const missing = (this.#missing[child] ?? 0) - 1
      this.#missing[child] = missing
      if (missing === 0) begin.push(this.#at(child))
    }
    return begin
  }

  #at(place: number): PlannedCall | PlannedWait {
    const node = this.drawn.of.nodes[place]
    if (node?.kind !== 'call') return { place, wait: node as TraceWait, waitUs: this.drawn.waitsUs[place] ?? 0 }
    return this.calls.get(place) as PlannedCall
  }
}
