/**
 * What routers do on their own: a State on a device ties its call to that engine for good; any other call goes where
 * there is most room, the engine that joined first winning a tie. Keeps KV, whatever the queue there.
 */
import { luggageOf, wayTo } from '../../continuation.ts'
import { granulesFree } from '../../kv-read.ts'
import type { Engine } from '../../state.ts'
import type { PlacementPolicy } from './placement.ts'

export const mostRoom: PlacementPolicy = {
  name: 'most-room',
  place(core, call, state, candidates) {
    const engine = candidates.find(({ id }) => id === state?.device?.engine)
      ?? candidates.reduce((best, other) => (roomOf(other) > roomOf(best) ? other : best))
    return { engine, way: wayTo(core, call, luggageOf(core, call, state), engine) }
  },
  priced: () => [],
}

const roomOf = (engine: Engine): number =>
  engine.capabilities.memory === null ? engine.capabilities.runningMax - engine.running.size : granulesFree(engine)
