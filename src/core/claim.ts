/**
 * Owns which node of its program's graph a call that arrives is. A node may be declared before, and is then claimed once;
 * or the call brings it along, with its parents. A claim that contradicts the graph is refused, and so is the call.
 */
import { must } from './assert.ts'
import { cycleThrough } from './graph/graph-cycle.ts'
import { planReport, type GraphPlan, type Refusal } from './graph/graph-check.ts'
import { nodeId, type CallId, type NodeId, type ProgramId, type ThreadId } from './ids.ts'
import type { Submit } from './input.ts'
import type { CoreState } from './state.ts'

export interface Claim {
  readonly node: NodeId
  /** Null where the node was declared before. */
  readonly plan: GraphPlan | null
}

/** Null where the call claims none. Only a call that names its program is part of a graph. */
export function claimOf(core: Readonly<CoreState>, input: Submit, program: ProgramId, thread: ThreadId): Claim | Refusal | null {
  const { claims, call } = input
  if (claims.program === null || (claims.node === null && claims.parents.length === 0)) return null
  const name = claims.node ?? call
  const node = nodeId(name)
  const refuse = (code: string, why: string): Refusal => ({ code, why: `node "${name}" ${why}` })
  const found = core.graphs.get(program)?.nodes.get(node)
  if (found === undefined) return bringAlong(core, input, program, name)
  if (found.kind !== 'LLM') return refuse('node_conflict', `is a ${found.kind}, and a call is an LLM node`)
  if (found.stage.kind !== 'open') return refuse('node_closed', `is ${found.stage.kind}`)
  if (found.call !== null) return refuse('node_closed', `is the call ${found.call}`)
  if (found.thread !== null && found.thread !== thread) return refuse('node_conflict', 'was declared for another thread')
  const more = claims.parents.filter((parent) => !found.parents.some(({ from }) => isNamed(core, program, from, parent)))
  if (more.length > 0) return refuse('node_conflict', `was declared without the parent "${more[0] ?? ''}"`)
  const behind = lastOpenOf(core, thread)
  const circle = behind !== null && cycleThrough(core, [node], (id) => core.graphs.get(program)?.nodes.get(id), { node, behind }) !== null
  return circle ? refuse('graph_cycle', `would wait for ${behind}, before it in its thread, which waits for it`) : { node, plan: null }
}

/** Nobody waits yet for a node that is new, so no circle can come of it. */
function bringAlong(core: Readonly<CoreState>, input: Submit, program: ProgramId, name: string): Claim | Refusal {
  const parents = input.claims.parents.map((parent) => ({ node: parent, edge: 'data' as const }))
  const declared = { node: name, kind: 'LLM' as const, thread: null, parents, join: null, serviceUs: null }
  const plan = planReport(core, program, { forks: [], nodes: [declared], outcomes: [] })
  return 'code' in plan ? plan : { node: nodeId(name), plan }
}

function isNamed(core: Readonly<CoreState>, program: ProgramId, node: NodeId, name: string): boolean {
  const call = core.calls.get(name as CallId)
  return node === nodeId(name) || (call?.program === program && call.node === node)
}

/** The thread that a declared node names, for a call that names none. */
export function threadOfNode(core: Readonly<CoreState>, program: ProgramId, name: string | null): ThreadId | null {
  return name === null ? null : core.graphs.get(program)?.nodes.get(nodeId(name))?.thread ?? null
}

/** The call that a new one of this thread would wait for. */
export function lastOpenOf(core: Readonly<CoreState>, id: ThreadId): CallId | null {
  const thread = core.threads.get(id)
  return thread === undefined ? null : thread.waiting.at(-1) ?? thread.active
}

/** Why no call may come to this thread; null where one may. */
export function threadRefusal(core: Readonly<CoreState>, id: ThreadId): Refusal | null {
  const cancelled = core.threads.has(id) && must(core.threads, id).cancelled
  return cancelled ? { code: 'thread_cancelled', why: 'the thread was cancelled' } : null
}
