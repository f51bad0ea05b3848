/**
 * Owns what a report about a graph may say. A report is taken whole or not at all: it is drawn over what is known, and
 * what contradicts it is refused by name. The same report again says nothing new and is no contradiction, since a runtime
 * may have to send one twice.
 */
import { cycleThrough } from './graph-cycle.ts'
import type { DeclaredNode, Edge, Graph, GraphNode, JoinRule } from './graph-state.ts'
import { nodeId, threadId, type CallId, type NodeId, type ProgramId, type ThreadId } from '../ids.ts'
import type { ForkReport, NodeReport, OutcomeReport } from '../input.ts'
import { neededOf, verdictOf } from './join.ts'
import type { CoreState } from '../state.ts'

export interface Refusal { readonly code: string; readonly why: string }

/** What of a report is new. */
export interface GraphPlan {
  readonly forks: readonly { readonly thread: ThreadId; readonly from: ThreadId }[]
  readonly nodes: readonly DeclaredNode[]
  readonly grown: readonly { readonly node: NodeId; readonly parents: readonly Edge[] }[]
  readonly outcomes: readonly { readonly node: NodeId; readonly outcome: OutcomeReport['outcome']; readonly why: string }[]
}

type Drawn = Pick<GraphNode, 'kind' | 'thread' | 'parents' | 'join' | 'call' | 'stage' | 'serviceUs'>

interface Drawing {
  readonly core: Readonly<CoreState>
  readonly program: ProgramId
  readonly graph: Readonly<Graph> | undefined
  /** Nodes as the report would have them, where it changes them. */
  readonly drawn: Map<NodeId, Drawn>
  readonly threads: Map<ThreadId, ThreadId>
  readonly nodes: Map<NodeId, DeclaredNode>
  readonly grown: Map<NodeId, readonly Edge[]>
  readonly outcomes: GraphPlan['outcomes'][number][]
  edges: number
}

interface Report {
  readonly forks: readonly ForkReport[]
  readonly nodes: readonly NodeReport[]
  readonly outcomes: readonly OutcomeReport[]
}

/** The program may be one that its first call is about to start. */
export function planReport(core: Readonly<CoreState>, program: ProgramId, report: Report): GraphPlan | Refusal {
  const graph = core.graphs.get(program)
  const to: Drawing = {
    core, program, graph, drawn: new Map(), threads: new Map(), nodes: new Map(), grown: new Map(), outcomes: [],
    edges: graph?.edges ?? 0,
  }
  const refused = tooLong(to, report)
    ?? first(report.forks, (fork) => drawFork(to, fork))
    ?? first(report.nodes, (node) => drawNode(to, node))
    ?? first(report.nodes, (node) => drawParents(to, node))
    ?? tooMany(to)
    ?? circle(to)
    ?? first([...to.nodes.keys(), ...to.grown.keys()], (node) => unmeetable(to, node))
    ?? first(report.outcomes, (outcome) => drawOutcome(to, outcome))
  if (refused !== null) return refused
  const forks = [...to.threads].map(([thread, from]) => ({ thread, from }))
  const grown = [...to.grown].map(([node, parents]) => ({ node, parents }))
  return { forks, nodes: [...to.nodes.values()], grown, outcomes: to.outcomes }
}

function first<T>(items: readonly T[], refusalOf: (item: T) => Refusal | null): Refusal | null {
  for (const item of items) {
    const refused = refusalOf(item)
    if (refused !== null) return refused
  }
  return null
}

const refuse = (code: string, why: string): Refusal => ({ code, why })
const at = (to: Drawing, id: NodeId): Drawn | undefined => to.drawn.get(id) ?? to.graph?.nodes.get(id)

// ---------------------------------------------------------------- forks

function drawFork(to: Drawing, fork: ForkReport): Refusal | null {
  const thread = threadId(to.program, fork.thread)
  const from = threadId(to.program, fork.from)
  const found = to.core.threads.get(thread)
  const forkedFrom = to.threads.get(thread) ?? found?.forkedFrom ?? null
  if (forkedFrom === from) return null
  if (found !== undefined || forkedFrom !== null) return refuse('thread_exists', `the thread "${fork.thread}" has begun another way`)
  const source = to.core.threads.get(from)
  if (source?.cancelled === true) return refuse('thread_cancelled', `the thread "${fork.from}" was cancelled`)
  if (source === undefined && !to.threads.has(from)) return refuse('unknown_thread', `there is no thread "${fork.from}" to fork from`)
  const count = (to.core.programs.get(to.program)?.threads.length ?? 0) + to.threads.size
  if (count >= to.core.config.threadsPerProgramMax) return refuse('graph_full', `it has ${count} threads, and threadsPerProgramMax is ${to.core.config.threadsPerProgramMax}`)
  to.threads.set(thread, from)
  return null
}

// ---------------------------------------------------------------- nodes

/** Everything of a node but its parents, so that nodes of one report may name each other in any order. */
function drawNode(to: Drawing, report: NodeReport): Refusal | null {
  const id = nodeId(report.node)
  const thread = report.thread === null ? null : threadId(to.program, report.thread)
  const found = at(to, id)
  if ((report.join !== null) !== (report.kind === 'JOIN')) return refuse('node_conflict', `"${report.node}": a join has a rule, and no other node has one`)
  if (found !== undefined) return isSame(found, report, thread) ? null : refuse('node_conflict', `"${report.node}" was declared otherwise`)
  if (thread !== null && to.core.threads.get(thread)?.cancelled === true) return refuse('thread_cancelled', `"${report.node}": its thread was cancelled`)
  declare(to, { node: id, of: report.kind, thread, parents: [], join: report.join, serviceUs: report.serviceUs, call: null })
  return null
}

function declare(to: Drawing, node: DeclaredNode): void {
  const call = node.call === null ? undefined : to.core.calls.get(node.call)
  const stage: Drawn['stage'] = call === undefined ? { kind: 'open' }
    : call.stage.kind === 'committed' ? { kind: 'committed', atUs: call.stage.atUs }
    : call.stage.kind === 'failed' || call.stage.kind === 'cancelled' ? { kind: 'cancelled', atUs: call.stage.atUs, why: 'its call ended' }
    : { kind: 'open' }
  to.nodes.set(node.node, node)
  to.drawn.set(node.node, { kind: node.of, stage, thread: node.thread, parents: node.parents, join: node.join, call: node.call, serviceUs: node.serviceUs })
}

const isSame = (found: Drawn, report: NodeReport, thread: ThreadId | null): boolean =>
  found.kind === report.kind && (thread === null || found.thread === null || found.thread === thread)
  && (report.serviceUs === null || found.serviceUs === report.serviceUs) && ruleText(found.join) === ruleText(report.join)

const ruleText = (join: JoinRule | null): string =>
  (join === null ? '' : `${join.need.kind} ${join.need.kind === 'partial' ? join.need.atLeast : ''} ${join.siblings}`)

function drawParents(to: Drawing, report: NodeReport): Refusal | null {
  const id = nodeId(report.node)
  const parents = new Map<NodeId, Edge>()
  for (const { node, edge } of report.parents) {
    const from = parentOf(to, node)
    if (typeof from !== 'string') return from
    if (!parents.has(from)) parents.set(from, { from, kind: edge })
  }
  const fresh = to.nodes.get(id)
  const known = at(to, id)
  for (const { from } of known?.parents ?? []) parents.delete(from)
  const added = [...parents.values()]
  if (known === undefined || added.length === 0) return null
  if (fresh === undefined && known.kind !== 'JOIN') return refuse('node_conflict', `"${report.node}" has other parents`)
  if (fresh === undefined && known.stage.kind !== 'open') return refuse('node_closed', `"${report.node}" is ${known.stage.kind}`)
  to.edges += added.length
  const all = [...known.parents, ...added]
  if (fresh === undefined) to.grown.set(id, [...to.grown.get(id) ?? [], ...added])
  else to.nodes.set(id, { ...fresh, parents: all })
  to.drawn.set(id, { ...known, parents: all })
  return null
}

/** A parent by its name; a call that came without a node is named by its id, and becomes one. */
function parentOf(to: Drawing, name: string): NodeId | Refusal {
  const id = nodeId(name)
  if (at(to, id) !== undefined) return id
  const call = to.core.calls.get(name as CallId)
  const theirs = call === undefined ? undefined : to.core.programs.get(call.program)
  const mine = to.core.programs.get(to.program)
  if (call === undefined || theirs === undefined || theirs.tenant !== mine?.tenant) return refuse('unknown_parent', `"${name}" is neither a node nor a call of this program`)
  if (theirs.id !== mine.id) return refuse('foreign_parent', `"${name}" is a call of another program`)
  if (call.node !== null) return call.node
  declare(to, { node: id, of: 'LLM', thread: call.thread, parents: [], join: null, serviceUs: null, call: call.id })
  return id
}

/** Looked at before anything is drawn: a report that says more than may ever be known costs no more than its size. */
function tooLong(to: Drawing, { nodes, outcomes }: Report): Refusal | null {
  const { nodesPerProgramMax, edgesPerProgramMax } = to.core.config
  const edges = nodes.reduce((sum, { parents }) => sum + parents.length, 0)
  if (Math.max(nodes.length, outcomes.length) > nodesPerProgramMax) return refuse('graph_full', `the report names ${Math.max(nodes.length, outcomes.length)} nodes, and nodesPerProgramMax is ${nodesPerProgramMax}`)
  return edges > edgesPerProgramMax ? refuse('graph_full', `the report names ${edges} parents, and edgesPerProgramMax is ${edgesPerProgramMax}`) : null
}

function tooMany(to: Drawing): Refusal | null {
  const { nodesPerProgramMax, edgesPerProgramMax } = to.core.config
  const nodes = (to.graph?.nodes.size ?? 0) + to.nodes.size
  if (to.nodes.size > 0 && nodes > nodesPerProgramMax) return refuse('graph_full', `it would have ${nodes} nodes, and nodesPerProgramMax is ${nodesPerProgramMax}`)
  if (to.edges > (to.graph?.edges ?? 0) && to.edges > edgesPerProgramMax) return refuse('graph_full', `it would have ${to.edges} edges, and edgesPerProgramMax is ${edgesPerProgramMax}`)
  return null
}

function circle(to: Drawing): Refusal | null {
  const node = cycleThrough(to.core, [...to.nodes.keys(), ...to.grown.keys()], (id) => at(to, id), null)
  return node === null ? null : refuse('graph_cycle', `"${node}" would wait for itself`)
}

/** A rule that can never be met, or a node that can never run: it is said now, not waited for. */
function unmeetable(to: Drawing, id: NodeId): Refusal | null {
  const node = at(to, id)
  if (node === undefined || node.stage.kind !== 'open') return null
  const needed = neededOf(node.join, node.parents.length)
  if (node.join !== null && !(Number.isSafeInteger(needed) && needed >= 1 && needed <= node.parents.length)) {
    return refuse('join_unmeetable', `"${id}" needs ${needed} of ${node.parents.length} parents`)
  }
  if (verdictOf(node, (parent) => at(to, parent)?.stage ?? OPEN) !== 'never') return null
  return node.join === null ? refuse('parent_failed', `"${id}": a parent of it has failed or was cancelled`)
    : refuse('join_unmeetable', `"${id}" needs ${needed} parents, and too many of its ${node.parents.length} have failed or were cancelled`)
}

const OPEN = { kind: 'open' } as const

// ---------------------------------------------------------------- outcomes

const STAGE_OF = { completed: 'committed', failed: 'failed', cancelled: 'cancelled' } as const

function drawOutcome(to: Drawing, { node: name, outcome, why }: OutcomeReport): Refusal | null {
  const id = nodeId(name)
  const node = at(to, id)
  if (node === undefined) return refuse('unknown_node', `there is no node "${name}"`)
  const { stage } = settled(to, node)
  if (stage.kind === STAGE_OF[outcome]) return null
  if (stage.kind !== 'open') return refuse('node_closed', `"${name}" is ${stage.kind}`)
  if (outcome === 'completed') {
    if (node.kind === 'JOIN') return refuse('node_conflict', `"${name}": a join commits by its rule`)
    if (node.kind === 'LLM') return refuse('node_conflict', `"${name}": it commits with its call`)
    if (verdictOf(node, (parent) => stageIn(to, parent)) !== 'met') return refuse('parents_open', `"${name}" waits for its parents`)
  }
  const end = { atUs: to.core.nowUs, why }
  to.drawn.set(id, { ...node, stage: outcome === 'completed' ? { kind: 'committed', atUs: end.atUs } : { kind: outcome, ...end } })
  to.outcomes.push({ node: id, outcome, why })
  return null
}

const stageIn = (to: Drawing, id: NodeId): Drawn['stage'] => {
  const node = at(to, id)
  return node === undefined ? OPEN : settled(to, node).stage
}

/** A join between two outcomes of one report commits as it will when they are taken one after another. */
const settled = (to: Drawing, node: Drawn): Pick<Drawn, 'stage'> =>
  (node.kind === 'JOIN' && node.stage.kind === 'open' && verdictOf(node, (parent) => at(to, parent)?.stage ?? OPEN) === 'met'
    ? { stage: { kind: 'committed', atUs: to.core.nowUs } } : node)
