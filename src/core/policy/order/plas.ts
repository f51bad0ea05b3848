/**
 * Program-level attained service (Autellix, section 4.2.1): the service of the program's ended calls, its sub-agents'
 * summed in, sets the level a call starts at, and its own service takes it down from there; waiting long for what it was
 * served takes the program's calls to the top. Inside a level, by call arrival. Right where sizes are heavy-tailed,
 * wrong where they are alike. Reads resident service, the paper's; recomputing what we evicted ages nobody.
 */
import { inheritedOf, programBalance } from '../../standing.ts'
import { levelOf } from './levels.ts'
import type { OrderPolicy } from './order.ts'

export const plas: OrderPolicy = {
  name: 'plas',
  key: (core, call) => ({ level: levelOf(core.config, call, inheritedOf(core, call).doneUs), tie: call.seq }),
  preempts: (ready, running) => ready.level < running.level,
  balance: programBalance,
}
