/**
 * Adaptive thread-level attained service (Autellix, section 4.2.2, as built): one scalar a program, the longest path of
 * service through it. A call inherits it when it first becomes ready and, ended, makes it the larger of what it was and
 * inherited + own; no graph is needed, calls that run beside each other share a level, and a chain stands as under plas.
 * Sub-agents' calls belong to their root's paths. Inside a level, by call arrival.
 */
import { inheritedOf, programBalance } from '../../standing.ts'
import { levelOf } from './levels.ts'
import type { OrderPolicy } from './order.ts'

export const atlas: OrderPolicy = {
  name: 'atlas',
  key: (core, call) => ({ level: levelOf(core.config, call, inheritedOf(core, call).pathUs), tie: call.seq }),
  preempts: (ready, running) => ready.level < running.level,
  balance: programBalance,
}
