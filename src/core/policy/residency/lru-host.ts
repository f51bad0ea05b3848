/**
 * What engines do on their own: idle KV stays on device until somebody needs the room, then the least recently used is
 * copied to host, where again the least recently used gives way.
 */
import { hostStates, idleStates } from '../../kv/kv-read.ts'
import type { State } from '../../state.ts'
import type { ResidencyPolicy } from './residency.ts'

const leastRecent = (a: State, b: State): number => a.lastUsedUs - b.lastUsedUs || (a.id < b.id ? -1 : 1)

export const lruHost: ResidencyPolicy = {
  name: 'lru-host',
  decide: () => ({
    choice: 'preserve',
    options: [{ choice: 'preserve', cost: 0, infeasible: null }],
    expectedWaitUs: 0,
    reconsiderAtUs: null,
    because: 'idle KV is kept until it is evicted',
  }),
  victims: (core, engine) => idleStates(core, engine).sort(leastRecent).map((state) => ({ state, choice: 'offload', regret: 0 })),
  mayLoseFrom: () => 0,
  hostVictims: (core) => hostStates(core).sort(leastRecent).map((state) => ({ state, regret: 0 })),
}
