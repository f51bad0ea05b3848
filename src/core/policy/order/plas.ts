/**
 * Program-level attained service (Autellix, section 4.2.1): the service of a program's completed calls sets the queue
 * level of a new call, and the running call's own service demotes it from there. Level i spans service up to
 * `plasQuantumUs * (2^(i+1) - 1)`; inside a level, by call arrival. Right where sizes are heavy-tailed, wrong where they
 * are alike. Reads resident service, the paper's definition; recomputing what we evicted ages nobody.
 */
import { attainedUs } from '../../account.ts'
import { must } from '../../assert.ts'
import type { Us } from '../../units.ts'
import type { OrderPolicy } from './order.ts'

export const plas: OrderPolicy = {
  name: 'plas',
  key: (core, call) => ({
    level: levelOf(attainedUs(must(core.programs, call.program).ledger), core.config.plasQuantumUs, core.config.plasLevels),
    tie: call.seq,
  }),
  preempts: (ready, running) => ready.level < running.level,
}

function levelOf(servedUs: Us, quantumUs: Us, levels: number): number {
  let level = 0
  let upToUs = quantumUs
  let widthUs = quantumUs
  while (servedUs >= upToUs && level < levels - 1) {
    level += 1
    widthUs *= 2
    upToUs += widthUs
  }
  return level
}
