/**
 * Owns the rule by which nodes commit: a join by its `all`, `any` or `partial(k)` over its parents, every other node once
 * all of them have committed. Decides nothing; says what can be said of a node from the stages of its parents.
 */
import type { Edge, JoinRule, NodeStage } from './graph-state.ts'
import type { NodeId } from '../ids.ts'

/** `met`: it may commit, or run; `never`: too many parents have ended without a commit. */
export type Verdict = 'met' | 'open' | 'never'

export function verdictOf(
  node: { readonly parents: readonly Edge[]; readonly join: JoinRule | null }, stageOf: (parent: NodeId) => NodeStage,
): Verdict {
  let committed = 0
  let open = 0
  for (const { from } of node.parents) {
    const { kind } = stageOf(from)
    if (kind === 'committed') committed += 1
    else if (kind === 'open') open += 1
  }
  return verdictBy(node.join, node.parents.length, committed, node.parents.length - committed - open)
}

/** The same from counts: of so many parents, `committed` have, and `lost` have ended without. */
export function verdictBy(join: JoinRule | null, parents: number, committed: number, lost: number): Verdict {
  const needed = neededOf(join, parents)
  return committed >= needed ? 'met' : parents - lost >= needed ? 'open' : 'never'
}

/** How many parents must commit. */
export function neededOf(join: JoinRule | null, parents: number): number {
  switch (join?.need.kind) {
    case 'any': return 1
    case 'partial': return join.need.atLeast
    default: return parents
  }
}
