/**
 * Owns what a program would do that reports its graph: nodes in an order in which parents come first, the threads they run
 * in, and in how many parts all that is told. Two shapes: a map-reduce, and whatever was drawn.
 */
import type { JoinRule, NodeKind } from '../core/graph/graph-state.ts'
import type { ForkReport, NodeReport } from '../core/input.ts'
import type { Us } from '../core/units.ts'
import { Chance } from './chance.ts'
import type { Piece } from './content.ts'
import { generatedCall, generatedStanding, type CallPlan, type PlanSize } from './plan.ts'

export interface NodePlan {
  readonly report: NodeReport
  /** Declared by its call, and by no report. */
  readonly byCall: boolean
  /** Of an LLM node, and the thread that it runs in. */
  readonly call: CallPlan | null
  readonly thread: string
  readonly fork: ForkReport | null
  /** How long a node takes that runs elsewhere. */
  readonly takesUs: Us
}

export interface GraphPlan {
  readonly kind: 'graph'
  readonly number: number
  readonly tenant: string
  readonly agent: string
  readonly priorityClass: string
  readonly deadlineUs: Us | null
  readonly session: boolean
  readonly prefix: Piece
  readonly nodes: readonly NodePlan[]
  /** Nodes told at once. */
  readonly part: number
}

export function generatedGraph(seed: number, number: number, size: PlanSize): GraphPlan {
  const chance = new Chance(seed, `graph ${number}`)
  const kind = chance.below(3)
  const nodes = chance.hit(400_000) ? mapReduce(chance, size) : drawn(chance, size)
  return {
    kind: 'graph', number, ...generatedStanding(chance), agent: `graph-${kind}`, session: chance.hit(400_000),
    prefix: { kind: 'given', id: 7_000 + kind, tokens: 16 * kind }, nodes, part: chance.between(1, nodes.length),
  }
}

/** One call, branches that continue it in threads of their own, a join, and a call that makes one of it. */
function mapReduce(chance: Chance, size: PlanSize): NodePlan[] {
  const branches = Array.from({ length: chance.between(2, 4) }, (_, at) => `map${at}`)
  return [
    llm(chance, size, 'split', [], 'main', null),
    ...branches.map((name) => llm(chance, size, name, ['split'], name, { thread: name, from: 'main' })),
    elsewhere(chance, 'join', 'JOIN', branches, ruleOf(chance, branches.length)),
    llm(chance, size, 'reduce', ['join'], 'main', null),
  ]
}

function drawn(chance: Chance, size: PlanSize): NodePlan[] {
  const plan = [llm(chance, size, 'n0', [], 'main', null)]
  const count = chance.between(2, 7)
  for (let at = 1; at <= count; at += 1) {
    const name = `n${at}`
    const parents = [...new Set(Array.from({ length: chance.between(1, 3) }, () => `n${chance.below(at)}`))]
    const roll = chance.below(100)
    if (roll < 25) plan.push(elsewhere(chance, name, chance.pick(['TOOL', 'TOOL', 'CODE', 'HUMAN']), parents, null))
    else if (roll < 50) plan.push(elsewhere(chance, name, 'JOIN', parents, ruleOf(chance, parents.length)))
    else {
      const before = plan.filter(({ call }) => call !== null)
      const from = before[chance.below(before.length)]?.thread ?? 'main'
      const thread = roll < 60 ? from : `t-${name}`
      plan.push(llm(chance, size, name, parents, thread, roll > 75 ? { thread, from } : null))
    }
  }
  return plan
}

function ruleOf(chance: Chance, parents: number): JoinRule {
  const need = chance.pick(['all', 'any', 'partial'] as const)
  return {
    need: need === 'partial' ? { kind: need, atLeast: chance.between(1, parents) } : { kind: need },
    siblings: chance.hit(700_000) ? 'cancel' : 'continue',
  }
}

const reportOf = (chance: Chance, node: string, kind: NodeKind, parents: readonly string[], thread: string | null, join: JoinRule | null): NodeReport => ({
  node, kind, thread, join, serviceUs: chance.hit(300_000) ? chance.tail(10_000, 4_000_000) : null,
  parents: parents.map((parent) => ({ node: parent, edge: chance.pick(['data', 'control'] as const) })),
})

function llm(chance: Chance, size: PlanSize, name: string, parents: readonly string[], thread: string, fork: ForkReport | null): NodePlan {
  const call = { ...generatedCall(chance, size, true), then: chance.hit(250_000) ? 'tool' as const : 'end' as const }
  return { report: reportOf(chance, name, 'LLM', parents, thread, null), byCall: fork === null && chance.hit(200_000), call, thread, fork, takesUs: 0 }
}

const elsewhere = (chance: Chance, name: string, kind: NodeKind, parents: readonly string[], join: JoinRule | null): NodePlan => ({
  report: reportOf(chance, name, kind, parents, null, join), byCall: false, call: null, thread: '', fork: null,
  takesUs: chance.tail(1_000, kind === 'HUMAN' ? 20_000_000 : 4_000_000),
})
