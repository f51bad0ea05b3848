/**
 * Multi-level feedback queues call by call, as a baseline: every call starts at the top, its own service takes it down,
 * its own waiting takes it up again, and its program is forgotten. Inside a level, by call arrival.
 */
import { attainedUs } from '../../account.ts'
import { callWaitedUs } from '../../standing.ts'
import { levelOf } from './levels.ts'
import type { OrderPolicy } from './order.ts'

export const mlfq: OrderPolicy = {
  name: 'mlfq',
  key: (core, call) => ({ level: levelOf(core.config, call, 0), tie: call.seq }),
  preempts: (ready, running) => ready.level < running.level,
  balance: (_core, call, nowUs) => ({ waitedUs: callWaitedUs(call, nowUs), servedUs: attainedUs(call.ledger) }),
}
