/**
 * Owns the laws of declared graphs and forked threads: a node and its call agree (1), READY and joins keep their rule and
 * nothing stands still that could go on (2), what was cancelled stays so (6) and holds no KV (9), edges and shared records
 * are counted (11).
 */
import { must } from '../assert.ts'
import { isOver } from '../call-read.ts'
import type { Graph, GraphNode } from '../graph/graph-state.ts'
import type { CallId, ProgramId } from '../ids.ts'
import { neededOf } from '../graph/join.ts'
import type { CoreState } from '../state.ts'
import { law } from './law.ts'

export function checkGraphs(core: Readonly<CoreState>): void {
  for (const [id, graph] of core.graphs) {
    for (const node of graph.nodes.values()) checkNode(core, id, graph, node)
    const open = [...graph.nodes.values()].filter(({ stage }) => stage.kind === 'open').length
    law(11, open === graph.open, () => `${id} counts ${graph.open} open nodes and has ${open}`)
    const edges = checkEdges(graph)
    law(11, edges === graph.edges, () => `${id} counts ${graph.edges} edges and has ${edges}`)
  }
  for (const thread of core.threads.values()) {
    if (!thread.cancelled) continue
    law(6, thread.active === null && thread.waiting.length === 0, () => `${thread.id} was cancelled and has a call`)
    law(9, thread.state === null && thread.interrupt === null, () => `${thread.id} was cancelled and holds KV or waits`)
  }
  checkRecords(core)
}

/** A parent knows its children. Returns how many edges there are. */
function checkEdges(graph: Readonly<Graph>): number {
  const known = new Map([...graph.nodes.values()].map(({ id, children }) => [id, new Set(children)]))
  let edges = 0
  for (const { id, parents } of graph.nodes.values()) {
    edges += parents.length
    for (const { from } of parents) law(2, must(known, from).has(id), () => `${from} does not know ${id}`)
  }
  return edges
}

function checkNode(core: Readonly<CoreState>, program: ProgramId, graph: Readonly<Graph>, node: GraphNode): void {
  const call = node.call === null ? undefined : core.calls.get(node.call)
  const { kind } = node.stage
  const committed = node.parents.filter(({ from }) => must(graph.nodes, from).stage.kind === 'committed').length
  const open = node.parents.filter(({ from }) => must(graph.nodes, from).stage.kind === 'open').length
  const isMet = committed >= neededOf(node.join, node.parents.length)
  law(2, kind !== 'committed' || isMet, () => `${node.id} has committed with ${committed} of ${node.parents.length} parents`)
  if (kind === 'open') {
    law(2, node.parentsCommitted === committed && node.parentsLost === node.parents.length - committed - open, () => `${node.id} counts ${node.parentsCommitted} parents committed and ${node.parentsLost} lost`)
    const isOpen = must(core.programs, program).stage.kind === 'open'
    law(6, isOpen, () => `${node.id} is open in a program that is not`)
    law(2, committed + open >= neededOf(node.join, node.parents.length), () => `${node.id} waits for what can never be`)
    law(2, node.join === null || !isMet, () => `${node.id} could have fired`)
  }
  const follows = node.children.map((id) => must(graph.nodes, id)).filter(({ stage }) => stage.kind === 'open')
  const afterUs = graph.stated ? Math.max(0, ...follows.map((child) => child.afterUs + (child.serviceUs ?? 0))) : 0
  law(0, kind !== 'open' || node.afterUs === afterUs, () => `${node.id} says that ${node.afterUs} us follow it, and ${afterUs} do`)
  if (call === undefined) return
  const runs = call.stage.kind === 'ready' || call.stage.kind === 'resuming' || call.stage.kind === 'running' || call.stage.kind === 'pausing'
  law(2, !runs || isMet, () => `${call.id} is ${call.stage.kind} before the parents of ${node.id}`)
  law(1, (kind === 'committed') === (call.stage.kind === 'committed'), () => `${node.id} is ${kind} and its call ${call.stage.kind}`)
  law(6, kind === 'open' || isOver(call), () => `${node.id} is ${kind} and its call ${call.stage.kind}`)
}

function checkRecords(core: Readonly<CoreState>): void {
  const counts = new Map<CallId, number>()
  for (const { record } of core.states.values()) if (record !== null) counts.set(record, (counts.get(record) ?? 0) + 1)
  for (const [record, count] of counts) law(11, (core.sharedRecords.get(record) ?? 0) === count - 1, () => `the record of ${record} is continued by ${count} States`)
  for (const record of core.sharedRecords.keys()) law(11, counts.has(record), () => `the record of ${record} is kept for nobody`)
}
