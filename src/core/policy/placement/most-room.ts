/**
 * What routers do on their own: a State on a device ties its call to that engine for good; any other call goes where
 * there is most room, the engine that joined first winning a tie. Keeps KV, whatever the queue there.
 */
import { luggageOf, wayTo } from '../../continuation.ts'
import type { Site } from '../../site.ts'
import type { PlacementPolicy } from './placement.ts'

export const mostRoom: PlacementPolicy = {
  name: 'most-room',
  place(core, call, state, candidates) {
    const site = candidates.find(({ engine }) => engine.id === state?.device?.engine)
      ?? candidates.reduce((best, other) => (roomOf(other) > roomOf(best) ? other : best))
    return { site, way: wayTo(core, call, luggageOf(core, call, state), site.engine) }
  },
  priced: () => [],
}

const roomOf = ({ engine, freeGranules }: Site): number =>
  engine.capabilities.memory === null ? engine.capabilities.runningMax - engine.running.size : freeGranules
