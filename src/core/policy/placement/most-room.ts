/**
 * What routers do on their own: a State on a device ties its call to that engine for good; any other call goes where there
 * is most room, in tokens, among engines that have a place for it, if any has; the engine that joined first wins a tie.
 * Keeps KV, whatever the queue there.
 */
import { luggageOf, wayTo } from '../../kv/continuation.ts'
import type { Site } from '../../site.ts'
import type { PlacementPolicy } from './placement.ts'

export const mostRoom: PlacementPolicy = {
  name: 'most-room',
  place(core, call, state, candidates) {
    const site = candidates.find(({ engine }) => engine.id === state?.device?.engine)
      ?? candidates.reduce((best, other) => (isRoomier(other, best) ? other : best))
    return { site, way: wayTo(core, call, luggageOf(core, call, state), site.engine) }
  },
  priced: () => [],
}

function isRoomier(one: Site, other: Site): boolean {
  const [hasPlace, otherHas] = [one.places > 0, other.places > 0]
  return hasPlace === otherHas ? roomOf(one) > roomOf(other) : hasPlace
}

/** Free tokens; of an engine that keeps its own counsel about memory, what its places would hold. */
function roomOf({ engine: { capabilities }, places, freeGranules }: Site): number {
  const { memory, contextTokens } = capabilities
  return memory === null ? Math.max(0, places) * contextTokens : freeGranules * memory.granule
}
