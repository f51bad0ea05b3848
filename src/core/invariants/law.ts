/** Owns how a broken law shows itself, and what the laws of "never again" and "never less" must remember between two looks. */
import { InvariantError } from '../assert.ts'
import type { ProgramId } from '../ids.ts'
import type { Us } from '../units.ts'

/** Of one core and its successors over restarts: what was seen when it was last looked at. */
export interface Seen {
  readonly programs: Map<ProgramId, SeenProgram>
  reign: number
  /** A limit that was lowered is reached by draining: what is above it must not grow. */
  openCalls: number
  programsKept: number
}

interface SeenProgram {
  /** Of its arrival: a name may be used again. */
  readonly seq: number
  readonly attainedUs: Us
  readonly retriedUs: Us
  readonly recomputedUs: Us
  readonly epoch: number
}

export const nothingSeen = (): Seen => ({ programs: new Map(), reign: 0, openCalls: 0, programsKept: 0 })

/** Throws InvariantError with the number of the law. `what` is called only where it is broken. */
export function law(number: number, holds: boolean, what: () => string): void {
  if (!holds) throw new InvariantError(number, what())
}
