/**
 * Owns the chain of parent programs: who is the root that a sub-agent's service folds to, whose deadline it shares, and
 * which parent a program cannot have. A parent is of the same tenant by construction of its id, and is in memory as long as a child of it is.
 */
import { must } from '../assert.ts'
import { rawOf, type ProgramId } from '../ids.ts'
import type { CoreState, Program } from '../state.ts'
import type { Us } from '../units.ts'

/** The top of its chain; itself where it has no parent. At most `programDepthMax` steps. */
export function rootOf(core: Readonly<CoreState>, program: Readonly<Program>): Readonly<Program> {
  let root = program
  while (root.parent !== null) root = must(core.programs, root.parent)
  return root
}

/** A sub-agent is part of what its parents owe: the soonest deadline of its chain, in monotonic microseconds; null: none has one. */
export function deadlineOf(core: Readonly<CoreState>, program: Readonly<Program>): Us | null {
  let soonestUs = program.deadlineUs
  for (let at = program; at.parent !== null;) {
    at = must(core.programs, at.parent)
    if (at.deadlineUs !== null) soonestUs = Math.min(at.deadlineUs, soonestUs ?? at.deadlineUs)
  }
  return soonestUs
}

/** Why `parent` cannot be the parent of `child`, which need not exist yet; null where it can, or is. */
export function parentRefusal(core: Readonly<CoreState>, child: ProgramId, parent: ProgramId): { code: string; why: string } | null {
  const above = core.programs.get(parent)
  const given = core.programs.get(child)
  const has = given?.parent ?? null
  const conflict = (why: string): { code: string; why: string } => ({ code: 'parent_conflict', why })
  if (above === undefined) return { code: 'unknown_program', why: `its parent "${rawOf(parent)}" is not known` }
  if (has === parent) return null
  if (has !== null) return conflict(`its parent is "${rawOf(has)}"`)
  if (above.stage.kind === 'cancelled') return { code: 'program_cancelled', why: `its parent "${rawOf(parent)}" was cancelled` }
  const chain = chainOf(core, above)
  if (chain.some(({ id }) => id === child)) return conflict(`"${rawOf(parent)}" is a sub-agent of it`)
  const depth = chain.length + (given === undefined ? 1 : heightOf(core, given))
  if (depth > core.config.programDepthMax) return conflict(`the chain would be ${depth} programs long, and programDepthMax is ${core.config.programDepthMax}`)
  return null
}

export function subProgramsOf(core: Readonly<CoreState>, program: Readonly<Program>): Program[] {
  return program.children.map((child) => must(core.programs, child))
}

function chainOf(core: Readonly<CoreState>, program: Program): Program[] {
  const chain = [program]
  for (let at = program; at.parent !== null; chain.push(at)) at = must(core.programs, at.parent)
  return chain
}

/** Programs from it down to its furthest sub-agent. */
const heightOf = (core: Readonly<CoreState>, program: Readonly<Program>): number =>
  1 + Math.max(0, ...subProgramsOf(core, program).map((child) => heightOf(core, child)))
