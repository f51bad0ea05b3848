/** Owns saying beforehand what a program will need and how long a wait will be, as facts: what is said can be held against what came. */
import { must } from '../assert.ts'
import type { Deciding } from '../deciding.ts'
import type { InterruptId, ProgramId } from '../ids.ts'
import { survivalOf, waitInterval, waitKindOf, WAITS_ENOUGH } from './wait.ts'
import { sizeInterval } from './work.ts'

/** It has just started. */
export function expectProgram(d: Deciding, id: ProgramId): void {
  const interval = sizeInterval(d.core, must(d.core.programs, id))
  if (interval !== null) d.emit({ kind: 'program.predicted', program: id, ...interval })
}

/** It has just started. */
export function expectWait(d: Deciding, id: InterruptId): void {
  const interrupt = must(d.core.interrupts, id)
  const { tenant } = must(d.core.programs, interrupt.program)
  const survival = survivalOf(d.core, tenant, interrupt.toolClass, waitKindOf(interrupt), d.nowUs)
  if (survival.seen >= WAITS_ENOUGH) d.emit({ kind: 'interrupt.predicted', interrupt: id, ...waitInterval(survival) })
}
