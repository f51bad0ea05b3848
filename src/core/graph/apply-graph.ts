/**
 * Owns the writes to declared graphs and of the facts of threads; part of `apply.ts`. What the facts of calls and programs
 * mean for nodes is written here too, so that a node and its call never disagree: a call that commits commits its node.
 */
import { must } from '../assert.ts'
import type { Fact } from '../fact.ts'
import { freshThread } from '../fresh.ts'
import { openChildrenOf } from './graph-read.ts'
import type { DeclaredNode, Edge, Graph, GraphNode, NodeStage } from './graph-state.ts'
import type { CallId, NodeId, ProgramId } from '../ids.ts'
import { shareSpans } from '../kv/memory.ts'
import type { CallStage, CoreState, State } from '../state.ts'
import type { Us } from '../units.ts'

type Of<Kind extends Fact['kind']> = Extract<Fact, { kind: Kind }>

/** Facts that concern nothing but graphs and threads. */
export function applyGraph(core: CoreState, fact: Fact, atUs: Us): boolean {
  switch (fact.kind) {
    case 'graph.reported':
      report(core, fact, atUs)
      return true
    case 'node.committed':
    case 'thread.joined':
      close(core, fact.program, fact.node, { kind: 'committed', atUs })
      return true
    case 'node.failed':
      close(core, fact.program, fact.node, { kind: 'failed', atUs, why: fact.why })
      return true
    case 'node.cancelled':
      close(core, fact.program, fact.node, { kind: 'cancelled', atUs, why: fact.why })
      return true
    case 'thread.forked':
      fork(core, fact, atUs)
      return true
    case 'thread.cancelled':
      must(core.threads, fact.thread).cancelled = true
      return true
    default:
      return false
  }
}

/** What other facts mean for nodes; they are written in full elsewhere. */
export function applyToNodes(core: CoreState, fact: Fact, atUs: Us): void {
  switch (fact.kind) {
    case 'call.arrived': {
      if (fact.node === null) return
      const node = must(must(core.graphs, fact.program).nodes, fact.node)
      node.call = fact.call
      node.thread = fact.thread
      return
    }
    case 'call.completed': return closeOf(core, fact.call, { kind: 'committed', atUs })
    case 'call.failed': return closeOf(core, fact.call, { kind: 'failed', atUs, why: fact.why })
    case 'call.cancelled': return freeOf(core, fact.call)
    case 'program.completed':
    case 'program.cancelled':
    case 'program.failed': return closeAll(core, fact.program, { kind: 'cancelled', atUs, why: 'its program has ended' })
    case 'program.forgotten': return void core.graphs.delete(fact.program)
    default:
  }
}

// ---------------------------------------------------------------- nodes

function report(core: CoreState, fact: Of<'graph.reported'>, atUs: Us): void {
  let graph = core.graphs.get(fact.program)
  if (graph === undefined) core.graphs.set(fact.program, graph = { nodes: new Map(), edges: 0, open: 0, stated: false })
  for (const declared of fact.nodes) {
    const node = nodeFrom(core, declared, atUs)
    graph.nodes.set(node.id, node)
    if (node.stage.kind === 'open') graph.open += 1
  }
  for (const { node, parents } of fact.nodes) link(graph, node, parents)
  for (const { node, parents } of fact.grown) {
    const grown = must(graph.nodes, node)
    grown.parents = [...grown.parents, ...parents]
    link(graph, node, parents)
  }
  if (fact.nodes.some(({ serviceUs }) => serviceUs !== null)) graph.stated = true
  const told = [...fact.nodes, ...fact.grown].map(({ node }) => must(graph.nodes, node))
  if (told.length > FEW) weigh(graph)
  else reweigh(graph, [...told, ...told.flatMap((node) => parentsOf(graph, node))])
}

/** New nodes whose weight is found from below; with more, every node is weighed once. */
const FEW = 8

function nodeFrom(core: CoreState, { node, of, thread, parents, join, serviceUs, call }: DeclaredNode, atUs: Us): GraphNode {
  const found = call === null ? undefined : must(core.calls, call)
  if (found !== undefined) found.node = node
  const stage: NodeStage = found === undefined ? { kind: 'open' } : stageFrom(found.stage, atUs)
  return { id: node, kind: of, thread: found?.thread ?? thread, parents, children: [], join, serviceUs, call, stage, parentsCommitted: 0, parentsLost: 0, afterUs: 0 }
}

function stageFrom(stage: CallStage, atUs: Us): NodeStage {
  switch (stage.kind) {
    case 'committed': return { kind: 'committed', atUs: stage.atUs }
    case 'failed': return { kind: 'failed', atUs: stage.atUs, why: stage.why }
    case 'cancelled': return { kind: 'cancelled', atUs, why: 'its call was given up' }
    default: return { kind: 'open' }
  }
}

function link(graph: Graph, child: NodeId, parents: readonly Edge[]): void {
  const node = must(graph.nodes, child)
  for (const { from } of parents) {
    const parent = must(graph.nodes, from)
    parent.children.push(child)
    count(node, parent.stage)
  }
  graph.edges += parents.length
}

function count(node: GraphNode, parent: NodeStage): void {
  if (parent.kind === 'committed') node.parentsCommitted += 1
  else if (parent.kind !== 'open') node.parentsLost += 1
}

/** A node ends once; a call that ends after its node changes nothing of it. */
function close(core: CoreState, program: ProgramId, id: NodeId, stage: NodeStage): void {
  const graph = must(core.graphs, program)
  const node = must(graph.nodes, id)
  if (node.stage.kind !== 'open') return
  node.stage = stage
  graph.open -= 1
  for (const child of node.children) count(must(graph.nodes, child), stage)
  reweigh(graph, parentsOf(graph, node))
}

function closeOf(core: CoreState, id: CallId, stage: NodeStage): void {
  const call = must(core.calls, id)
  if (call.node !== null) close(core, call.program, call.node, stage)
}

/** Its client left: nothing was decided about the node, and another call may be it. */
function freeOf(core: CoreState, id: CallId): void {
  const call = must(core.calls, id)
  const node = call.node === null ? undefined : must(must(core.graphs, call.program).nodes, call.node)
  if (node?.call === id && node.stage.kind === 'open') node.call = null
}

function closeAll(core: CoreState, program: ProgramId, stage: NodeStage): void {
  const graph = core.graphs.get(program)
  if (graph === undefined) return
  for (const node of graph.nodes.values()) if (node.stage.kind === 'open') node.stage = stage
  graph.open = 0
}

/** The longest stated way from each open node to the end of what is known; each node is looked at once. */
function weigh(graph: Graph): void {
  if (!graph.stated) return
  const weighed = new Set<NodeId>()
  for (const start of graph.nodes.values()) {
    const stack = start.stage.kind === 'open' ? [start] : []
    for (let node = stack.at(-1); node !== undefined; node = stack.at(-1)) {
      const children = weighed.has(node.id) ? [] : openChildrenOf(graph, node)
      const first = children.filter(({ id }) => !weighed.has(id))
      if (first.length > 0) stack.push(...first)
      else {
        if (!weighed.has(node.id)) node.afterUs = longest(children)
        weighed.add(node.id)
        stack.pop()
      }
    }
  }
}

/** What follows these has changed: so may the way from them to the end, and then from what is above them. */
function reweigh(graph: Graph, nodes: readonly GraphNode[]): void {
  const queue = new Set(graph.stated ? nodes : [])
  for (const node of queue) {
    queue.delete(node)
    const afterUs = node.stage.kind === 'open' ? longest(openChildrenOf(graph, node)) : node.afterUs
    if (afterUs === node.afterUs) continue
    node.afterUs = afterUs
    for (const parent of parentsOf(graph, node)) queue.add(parent)
  }
}

const parentsOf = (graph: Graph, node: GraphNode): GraphNode[] => node.parents.map(({ from }) => must(graph.nodes, from))

const longest = (children: readonly GraphNode[]): Us =>
  children.reduce((most, child) => Math.max(most, child.afterUs + (child.serviceUs ?? 0)), 0)

// ---------------------------------------------------------------- threads

/** The new thread continues what its parent has committed: the same Segments, once more referred to, and a tail of its own. */
function fork(core: CoreState, fact: Of<'thread.forked'>, atUs: Us): void {
  const program = must(core.programs, fact.program)
  program.threads = [...program.threads, fact.thread]
  core.threads.set(fact.thread, freshThread({ id: fact.thread, program: fact.program, forkedFrom: fact.from, active: null, state: fact.state }))
  const source = fact.state === null ? null : must(core.threads, fact.from).state
  if (fact.state === null || source === null) return
  const from = must(core.states, source)
  const state: State = {
    id: fact.state, tenant: from.tenant, model: from.model, owner: { kind: 'thread', thread: fact.thread },
    residence: { kind: 'gone' }, spans: [], tail: { prefilled: 0, decoded: 0 }, device: null, host: null, record: null,
    lastUsedUs: atUs, idleSinceUs: atUs,
  }
  shareSpans(core, from, state)
  core.states.set(state.id, state)
}
