/**
 * Owns what one end means for the rest of a declared graph, whatever brought it about: the facts of a step are followed
 * until nothing more comes of them. A child whose parents have committed becomes READY; a join fires when its rule is met,
 * once; what can no longer run is cancelled, and where a join says so, the branches that it needs no more (invariants 2, 6
 * and 9).
 */
import { must } from '../assert.ts'
import { isOver } from '../call-read.ts'
import { fail, giveUp } from '../call.ts'
import { endThread, quieten } from '../cancel.ts'
import type { Deciding } from '../deciding.ts'
import type { Fact, Logged } from '../fact.ts'
import { openChildrenOf, verdictOn } from './graph-read.ts'
import type { Graph, GraphNode } from './graph-state.ts'
import type { NodeId, ProgramId, ThreadId } from '../ids.ts'
import { decideIdle } from '../kv/kv.ts'
import { closeLater, endIfDone } from '../program.ts'
import { readyIfDue } from '../ready.ts'
import type { Call } from '../state.ts'

/** `facts` is the step's own list: what is emitted here is followed too. */
export function followGraphs(d: Deciding, facts: readonly Logged[]): void {
  if (d.core.graphs.size === 0) return
  const lost: Lost = new Map()
  const reported = new Set<ProgramId>()
  for (let at = 0; at < facts.length || lost.size > 0;) {
    const fact = facts[at]?.fact
    if (fact === undefined) endLost(d, lost)
    else {
      follow(d, fact, lost)
      if (fact.kind === 'graph.reported') reported.add(fact.program)
      at += 1
    }
  }
  for (const id of reported) closeLater(d, must(d.core.programs, id))
}

/** Threads that a branch ran in which its join needs no more, and why. */
type Lost = Map<ThreadId, string>

function follow(d: Deciding, fact: Fact, lost: Lost): void {
  switch (fact.kind) {
    case 'graph.reported':
      for (const node of [...fact.nodes, ...fact.grown]) look(d, fact.program, node.node, lost)
      return
    case 'call.completed':
    case 'call.failed': {
      const { program, node } = must(d.core.calls, fact.call)
      return node === null ? undefined : lookAtChildren(d, program, node, lost)
    }
    case 'node.failed':
    case 'node.cancelled':
      endCallOf(d, nodeAt(d, fact.program, fact.node), fact.why, lost)
      return lookAtChildren(d, fact.program, fact.node, lost)
    case 'node.committed':
    case 'thread.joined': return lookAtChildren(d, fact.program, fact.node, lost)
    default:
  }
}

const nodeAt = (d: Deciding, program: ProgramId, node: NodeId): GraphNode => must(must(d.core.graphs, program).nodes, node)

function lookAtChildren(d: Deciding, program: ProgramId, node: NodeId, lost: Lost): void {
  for (const child of nodeAt(d, program, node).children) look(d, program, child, lost)
}

/** Whether an open node can run or commit now, or never. */
function look(d: Deciding, program: ProgramId, id: NodeId, lost: Lost): void {
  const node = nodeAt(d, program, id)
  const verdict = node.stage.kind === 'open' && must(d.core.programs, program).stage.kind === 'open' ? verdictOn(node) : 'open'
  if (verdict === 'open') return
  if (node.join !== null) return decideJoin(d, program, node, verdict, lost)
  const call = node.call === null ? undefined : must(d.core.calls, node.call)
  if (verdict === 'met') return call === undefined ? undefined : readyIfDue(d, call)
  const why = 'a node that it needs has failed or was cancelled'
  if (call !== undefined && !isOver(call)) fail(d, call, 'parent_failed', why)
  else d.emit({ kind: 'node.cancelled', program, node: id, why })
}

function decideJoin(d: Deciding, program: ProgramId, node: GraphNode, verdict: 'met' | 'never', lost: Lost): void {
  const { nodes } = must(d.core.graphs, program)
  const parents = node.parents.map(({ from }) => must(nodes, from))
  const committed = parents.filter(({ stage }) => stage.kind === 'committed').map(({ id }) => id)
  if (verdict === 'met') d.emit({ kind: 'thread.joined', program, node: node.id, committed })
  else d.emit({ kind: 'node.failed', program, node: node.id, why: `${committed.length} of its ${parents.length} parents have committed, and its rule can no longer be met` })
  if (node.join?.siblings !== 'cancel') return
  const why = verdict === 'met' ? `the join ${node.id} has fired without it` : `the join ${node.id} can no longer fire`
  cancelBranches(d, program, parents, why, lost)
}

/** The branches, and what is open above them and serves nothing else. */
function cancelBranches(d: Deciding, program: ProgramId, branches: readonly GraphNode[], why: string, lost: Lost): void {
  const graph = must(d.core.graphs, program)
  const stack = [...branches].reverse()
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    if (node.stage.kind !== 'open' || openChildrenOf(graph, node).length > 0) continue
    d.emit({ kind: 'node.cancelled', program, node: node.id, why })
    for (const thread of threadsOf(graph, node)) lost.set(thread, why)
    stack.push(...node.parents.map(({ from }) => must(graph.nodes, from)))
  }
}

/** Where it runs; while that is not known, where what it continues ran, if it continues one thread alone. */
function threadsOf(graph: Graph, node: GraphNode): readonly ThreadId[] {
  if (node.thread !== null) return [node.thread]
  const above = new Set(node.parents.map(({ from }) => must(graph.nodes, from)).filter(({ children }) => children.length === 1).map(({ thread }) => thread))
  const [only] = above
  return above.size === 1 && only != null ? [only] : []
}

/** The KV of a lost thread most likely goes: a copy that is begun before that is known would be for nothing. */
function endCallOf(d: Deciding, node: GraphNode, why: string, lost: Lost): void {
  const call: Call | undefined = node.call === null ? undefined : must(d.core.calls, node.call)
  if (call !== undefined && !isOver(call)) giveUp(d, call, why, lost.has(call.thread))
}

/**
 * A thread that a losing branch ran in, once nothing open is left in it: one that was forked for the branch ends for good;
 * of another only the wait and the KV go, since its runtime may have more to do in it.
 */
function endLost(d: Deciding, lost: Lost): void {
  const threads = [...lost]
  lost.clear()
  for (const [id, why] of threads) {
    const thread = d.core.threads.get(id)
    if (thread === undefined || thread.cancelled || must(d.core.programs, thread.program).stage.kind !== 'open') continue
    const nodes = [...must(d.core.graphs, thread.program).nodes.values()]
    const isNeeded = nodes.some((node) => node.thread === id && node.stage.kind === 'open')
    if (isNeeded || (thread.forkedFrom === null && thread.active !== null)) {
      if (thread.state !== null) decideIdle(d, thread.state)
      continue
    }
    if (thread.forkedFrom !== null) endThread(d, id, why)
    else quieten(d, id)
    endIfDone(d, must(d.core.programs, thread.program))
  }
}
