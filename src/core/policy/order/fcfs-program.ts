/**
 * The oldest program first: its calls, and its sub-agents', keep the place that its first call had. Right where programs are alike in size,
 * since taking turns makes all of them late; it also keeps the working set of KV small. Starves short programs behind
 * long ones where sizes are heavy-tailed.
 */
import { must } from '../../assert.ts'
import { rootOf } from '../../graph/lineage.ts'
import type { OrderPolicy } from './order.ts'

export const fcfsProgram: OrderPolicy = {
  name: 'fcfs-program',
  key: (core, call) => ({ level: 0, tie: rootOf(core, must(core.programs, call.program)).seq }),
  preempts: (ready, running) => ready.tie < running.tie,
}
