/** First come, first served, call by call: what engines do. A call that returns from a tool goes to the end. */
import type { OrderPolicy } from './order.ts'

export const fcfs: OrderPolicy = {
  name: 'fcfs',
  key: (_core, call) => ({ level: 0, tie: call.seq }),
  preempts: () => false,
}
