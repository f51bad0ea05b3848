/**
 * Owns what a runtime reports of its program's graph: forks, nodes, what became of those that run elsewhere, a parent
 * learnt late. A report that contradicts what is committed is refused by name and changes nothing. What follows for the
 * rest of the graph is decided in `graph-follow.ts`, from the facts.
 */
import type { Deciding } from '../deciding.ts'
import { fork } from './fork.ts'
import { planReport, type GraphPlan, type Refusal } from './graph-check.ts'
import { programId, type CallId, type ProgramId } from '../ids.ts'
import type { ReportGraph } from '../input.ts'
import { parentRefusal } from './lineage.ts'

export function reportGraph(d: Deciding, input: ReportGraph): void {
  const id = programId(input.tenant, input.program)
  const refuse = ({ code, why }: Refusal): void =>
    d.emit({ kind: 'program.refused', tenant: input.tenant, program: input.program, code, why })
  const program = d.core.programs.get(id)
  if (program === undefined) return refuse({ code: 'unknown_program', why: 'there is no such program' })
  if (program.stage.kind === 'cancelled') return refuse({ code: 'program_cancelled', why: 'it was cancelled before' })
  if (program.stage.kind !== 'open') return refuse({ code: 'program_ended', why: `it has ${program.stage.kind}` })
  if (input.epoch !== null && input.epoch !== program.epoch) {
    return refuse({ code: 'stale_epoch', why: `the program's epoch is ${program.epoch}, the report says ${input.epoch}` })
  }
  const parent = input.parent === null ? null : programId(input.tenant, input.parent)
  const unlinked = parent === null ? null : parentRefusal(d.core, id, parent)
  if (unlinked !== null) return refuse(unlinked)
  const plan = planReport(d.core, id, input)
  if ('code' in plan) return refuse(plan)
  if (parent !== null && program.parent !== parent) d.emit({ kind: 'program.linked', program: id, session: null, parent })
  takeReport(d, id, plan, null)
}

/** `graph.reported` comes even where nothing is new: it says that the report was heard. `by`: the call that brought it along. */
export function takeReport(d: Deciding, program: ProgramId, plan: GraphPlan, by: CallId | null): void {
  for (const { thread, from } of plan.forks) fork(d, program, thread, from)
  d.emit({ kind: 'graph.reported', program, by, nodes: plan.nodes, grown: plan.grown })
  for (const { node, outcome, why } of plan.outcomes) {
    if (outcome === 'completed') d.emit({ kind: 'node.committed', program, node })
    else d.emit({ kind: outcome === 'failed' ? 'node.failed' : 'node.cancelled', program, node, why })
  }
}
