/**
 * Programs whose graphs are drawn at random and told bit by bit, late, and sometimes wrong, in a world with faults: branches
 * fail, clients hang up, calls and threads are cancelled, engines and the control plane die.
 */
import type { JoinRule } from '../../src/core/graph/graph-state.ts'
import { nodeId, programId, type CallId } from '../../src/core/ids.ts'
import type { ForkReport, NodeReport } from '../../src/core/input.ts'
import { join, node, T, tool } from './graph-world.ts'
import { CLAIMS, random, World, type WorldOptions } from './world.ts'

interface Planned { readonly report: NodeReport; readonly fork: ForkReport | null; readonly thread: string }

export class GraphLife extends World {
  readonly #draw: () => number
  #trouble: number

  constructor(seed: number, options: WorldOptions) {
    super(seed, options)
    this.#draw = random(seed * 7 + 1)
    this.#trouble = options.faults ?? 0
  }

  begin(count: number): void {
    for (let index = 0; index < count; index += 1) this.at(this.#draw() * 5_000_000, () => this.#program(`g${index}`))
  }

  override heal(): void {
    super.heal()
    this.#trouble = 0
  }

  #below(count: number): number {
    return Math.floor(this.#draw() * count)
  }

  #program(program: string): void {
    const session = this.#draw() < 0.5 ? `s-${program}` : null
    this.feed({ kind: 'declareProgram', tenant: T, program, session, agent: 'mapper', priorityClass: 'default', deadlineUs: this.nowUs + 60_000_000, parent: null, steps: null })
    const plan = this.#plan()
    this.#tell(program, plan.splice(0, 1))
    while (plan.length > 0) {
      const part = plan.splice(0, 1 + this.#below(plan.length))
      this.at(this.#draw() * 4_000_000, () => this.#tell(program, part))
    }
    if (this.#draw() < this.#trouble * 0.3) this.at(this.#draw() * 15_000_000, () => this.feed({ kind: 'cancelProgram', tenant: T, program }))
    this.at(40_000_000, () => this.feed({ kind: 'finishProgram', tenant: T, program }))
  }

  /** In an order in which parents come first, though parts of it may be told in another. */
  #plan(): Planned[] {
    const plan: Planned[] = [{ report: node('n0', [], { thread: 'main' }), fork: null, thread: 'main' }]
    const count = 3 + this.#below(10)
    for (let index = 1; index <= count; index += 1) {
      const name = `n${index}`
      const parents = [...new Set(Array.from({ length: 1 + this.#below(3) }, () => `n${this.#below(index)}`))]
      const more = { serviceUs: this.#draw() < 0.5 ? this.#below(2_000_000) : null }
      const roll = this.#draw()
      if (roll < 0.25) plan.push({ report: tool(name, parents, more), fork: null, thread: '' })
      else if (roll < 0.5) plan.push({ report: join(name, this.#rule(parents.length), parents, more), fork: null, thread: '' })
      else plan.push(this.#llm(name, parents, plan))
    }
    return plan
  }

  #rule(parents: number): JoinRule {
    const kind = (['all', 'any', 'partial'] as const)[this.#below(3)] ?? 'all'
    const need = kind === 'partial' ? { kind, atLeast: 1 + this.#below(parents) } : { kind }
    return { need, siblings: this.#draw() < 0.7 ? 'cancel' : 'continue' }
  }

  /** In a thread of its own, forked or not, or behind another call in its thread. */
  #llm(name: string, parents: string[], plan: readonly Planned[]): Planned {
    const before = plan.filter(({ report }) => report.kind === 'LLM')
    const other = before[this.#below(before.length)]?.thread ?? 'main'
    const roll = this.#draw()
    const thread = roll < 0.2 ? other : `t-${name}`
    return { report: node(name, parents, { thread: this.#draw() < 0.5 ? thread : null }), thread, fork: roll > 0.5 ? { thread, from: other } : null }
  }

  #tell(program: string, part: readonly Planned[]): void {
    const forks = part.flatMap(({ fork }) => fork ?? [])
    const said = this.feed({ kind: 'reportGraph', tenant: T, program, epoch: null, parent: null, forks, nodes: part.map(({ report }) => report), outcomes: [] })
    if (said.some(({ fact }) => fact.kind === 'program.refused')) {
      if (part.length > 1) for (const one of part) this.#tell(program, [one])
      return
    }
    for (const planned of part) this.at(this.#draw() * 6_000_000, () => this.#live(program, planned))
  }

  #live(program: string, planned: Planned): void {
    const id = programId(T, program)
    const { node: name, kind } = planned.report
    const found = this.core.graphs.get(id)?.nodes.get(nodeId(name))
    if (found === undefined || found.stage.kind !== 'open' || kind === 'JOIN') return
    if (kind !== 'LLM') {
      const outcome = this.#draw() < 0.1 + this.#trouble * 0.2 ? 'failed' as const : 'completed' as const
      this.feed({ kind: 'reportGraph', tenant: T, program, epoch: null, parent: null, forks: [], nodes: [], outcomes: [{ node: name, outcome, why: 'chance' }] })
      return this.at(1_000_000, () => this.#live(program, planned))
    }
    const claims = { ...CLAIMS, program, node: name, thread: planned.thread, identity: { source: 'explicit' as const, confidence: 100 } }
    const call = this.submit({ claims })
    if (!this.core.calls.has(call)) return
    if (this.#draw() < this.#trouble * 0.4) this.at(this.#draw() * 3_000_000, () => this.#trip(program, planned, call))
  }

  #trip(program: string, planned: Planned, call: CallId): void {
    const roll = this.#draw()
    if (roll < 0.4) {
      this.feed({ kind: 'hangUp', call })
      this.at(500_000, () => this.#live(program, planned))
    } else if (roll < 0.7) this.feed({ kind: 'cancelCall', tenant: T, program, call: this.#draw() < 0.5 ? call : planned.report.node })
    else this.feed({ kind: 'cancelThread', tenant: T, program, thread: planned.thread })
  }
}
