/**
 * Owns the question whether a program would wait for itself: a node waits for its parents, a call for the calls before it
 * in its thread, and a node is its call. Reads only; what is over is waited for by nobody and is not looked at.
 */
import type { Edge, NodeStage } from './graph-state.ts'
import type { CallId, NodeId } from '../ids.ts'
import { isOver } from '../call-read.ts'
import type { CoreState } from '../state.ts'

/** Of a node that is there, or would be. */
interface Waiting {
  readonly parents: readonly Edge[]
  readonly call: CallId | null
  readonly stage: NodeStage
}

/** What a call that arrives would wait for, beside the parents of its node. */
interface Arriving {
  readonly node: NodeId
  readonly behind: CallId
}

/** A node that would wait for itself, of those reached from `starts`; null where none would. Each thing is looked at once. */
export function cycleThrough(
  core: Readonly<CoreState>, starts: Iterable<NodeId>, nodeAt: (id: NodeId) => Waiting | undefined, arriving: Arriving | null,
): NodeId | null {
  const seen = new Map<string, 'entered' | 'left'>()
  const stack: Thing[] = []
  for (const node of starts) {
    stack.push({ node })
    for (let thing = stack.at(-1); thing !== undefined; thing = stack.at(-1)) {
      const key = keyOf(thing)
      if (seen.has(key)) {
        seen.set(key, 'left')
        stack.pop()
        continue
      }
      seen.set(key, 'entered')
      for (const next of waitsFor(core, thing, nodeAt, arriving)) {
        const before = seen.get(keyOf(next))
        if (before === 'entered') return 'node' in next ? next.node : node
        if (before === undefined) stack.push(next)
      }
    }
  }
  return null
}

type Thing = { readonly node: NodeId } | { readonly call: CallId }

const keyOf = (thing: Thing): string => ('node' in thing ? `n ${thing.node}` : `c ${thing.call}`)

function waitsFor(
  core: Readonly<CoreState>, thing: Thing, nodeAt: (id: NodeId) => Waiting | undefined, arriving: Arriving | null,
): Thing[] {
  if ('call' in thing) {
    const call = core.calls.get(thing.call)
    if (call === undefined || isOver(call)) return []
    const before = call.parents.map((parent) => ({ call: parent }))
    return call.node === null ? before : [...before, { node: call.node }]
  }
  const node = nodeAt(thing.node)
  if (node === undefined || node.stage.kind !== 'open') return []
  const things: Thing[] = node.parents.map(({ from }) => ({ node: from }))
  if (arriving?.node === thing.node) things.push({ call: arriving.behind })
  const call = node.call === null ? undefined : core.calls.get(node.call)
  for (const parent of call?.parents ?? []) things.push({ call: parent })
  return things
}
