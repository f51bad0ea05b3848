/** Owns the questions asked of declared graphs, by policies and by the core alike. Reads only. */
import { must } from '../assert.ts'
import type { Graph, GraphNode } from './graph-state.ts'
import type { NodeId, ProgramId } from '../ids.ts'
import { verdictBy, type Verdict } from './join.ts'
import { deadlineOf } from './lineage.ts'
import type { Call, CoreState } from '../state.ts'
import type { Us } from '../units.ts'

/** The node that a call is; null where its program reports no graph, or the call is none of it. */
export const nodeOf = (core: Readonly<CoreState>, call: Readonly<Call>): GraphNode | null =>
  call.node === null ? null : core.graphs.get(call.program)?.nodes.get(call.node) ?? null

export const verdictOn = ({ join, parents, parentsCommitted, parentsLost }: Readonly<GraphNode>): Verdict =>
  verdictBy(join, parents.length, parentsCommitted, parentsLost)

/** Whether what the call waits for in its program's graph has committed; true where it is no part of one. */
export function areParentsCommitted(core: Readonly<CoreState>, call: Readonly<Call>): boolean {
  const node = nodeOf(core, call)
  return node === null || verdictOn(node) === 'met'
}

/**
 * When a call should end at the latest for its program to keep its deadline (seed section 19): the deadline less the
 * service that is said to follow the call on the longest way through the declared graph; for a sub-agent, the soonest
 * deadline of its chain. Null: there is no deadline.
 * Absolute, in monotonic microseconds. Steps that are unknown, or do not say, count nothing: it is never too early.
 */
export function latestFinishUs(core: Readonly<CoreState>, call: Readonly<Call>): Us | null {
  const deadlineUs = deadlineOf(core, must(core.programs, call.program))
  return deadlineUs === null ? null : deadlineUs - (nodeOf(core, call)?.afterUs ?? 0)
}

/** Whether a step of the program is under way, or to come, as far as its graph says. */
export const hasOpenNodes = (core: Readonly<CoreState>, program: ProgramId): boolean => (core.graphs.get(program)?.open ?? 0) > 0

/** Open nodes that wait for this one, directly. */
export const openChildrenOf = (graph: Readonly<Graph>, node: Readonly<GraphNode>): GraphNode[] =>
  node.children.map((id: NodeId) => must(graph.nodes, id)).filter(({ stage }) => stage.kind === 'open')
