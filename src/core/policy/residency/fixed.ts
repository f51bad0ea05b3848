/** One answer always: for measurements of each path by itself, and for operators who know better. */
import type { KvChoice } from '../../fact.ts'
import { leastCost } from './least-cost.ts'
import type { ResidencyPolicy } from './residency.ts'

export const fixed = (choice: KvChoice): ResidencyPolicy => ({
  ...leastCost,
  name: `always-${choice}`,
  decide: () => ({
    choice,
    options: [{ choice, cost: 0, infeasible: null }],
    expectedWaitUs: 0,
    reconsiderAtUs: null,
    because: `the configuration says ${choice}, always`,
  }),
})
