/**
 * Owns the levels that mlfq, plas and atlas share (Autellix, Algorithm 1). Level i spans service of
 * `levelQuantumUs * 2^i`, which is also its quantum: a running call that has used it up goes one down. The last of
 * `levelCount` levels is open. A promoted call starts again from the top with what it is served since; its ledger stays.
 */
import { attainedUs } from '../../account.ts'
import type { CoreConfig } from '../../config.ts'
import type { Call } from '../../state.ts'
import type { Us } from '../../units.ts'

type Levels = Pick<CoreConfig, 'levelQuantumUs' | 'levelCount'>

/** Where a call that enters with `startUs` of service stands after what it has been served itself. */
export function levelOf(levels: Levels, call: Readonly<Call>, startUs: Us): number {
  const ownUs = attainedUs(call.ledger)
  const { promotedAtUs } = call.standing
  return promotedAtUs === null ? down(levels, down(levels, 0, startUs), ownUs) : down(levels, 0, ownUs - promotedAtUs)
}

/** A quantum is used up whole before the next level's begins. */
function down({ levelQuantumUs, levelCount }: Levels, from: number, servedUs: Us): number {
  let level = from
  let leftUs = servedUs
  for (let quantumUs = levelQuantumUs * 2 ** from; leftUs >= quantumUs && level < levelCount - 1; quantumUs *= 2) {
    leftUs -= quantumUs
    level += 1
  }
  return level
}
