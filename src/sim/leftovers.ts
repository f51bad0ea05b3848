/**
 * Owns what may not be left when all was healed and everybody has gone: agents under way, open calls, KV on any tier,
 * timers of what is over, images and bodies nobody can ask for. Keeps invariants 9 and 11 to the last byte. The file of an
 * image that an engine wrote when it was long declared dead is nobody's: it goes at the next start.
 */
import type { Runner } from './agent.ts'
import type { ControlPlane } from './control.ts'
import type { Engine } from './engine.ts'

interface Healed {
  readonly agents: readonly Runner[]
  readonly control: ControlPlane
  readonly engines: readonly Engine[]
}

/** One line for each sort of thing. */
export function leftovers({ agents, control, engines }: Healed): string[] {
  const left: string[] = []
  const say = (what: string, names: readonly string[]): void => {
    if (names.length > 0) left.push(`${names.length} ${what} (${names.slice(0, 3).join(', ')})`)
  }
  say('agents under way', agents.filter(({ outcome }) => outcome === null).map(({ place }) => place))
  const life = control.current
  if (life === null) return [...left, 'no control plane']
  const { core } = life.driver
  say('open calls', [...core.calls.values()].filter(({ stage }) => !OVER.has(stage.kind)).map(({ id, stage }) => `${id} is ${stage.kind}`))
  say('States', [...core.states.values()].map(({ id, owner, residence }) => `${id} of ${owner.kind} is ${residence.kind}`))
  say('moves', [...core.moves.keys()])
  say('Segments', [...core.segments.keys()])
  say('timers', [...core.timers.keys()])
  say('engines that did not join again', [...core.engines.values()].filter(({ stage }) => stage === 'lost').map(({ id }) => id))
  say('engines with memory taken', [...core.engines.values()].filter((engine) => engine.ownedGranules + engine.reservedGranules + engine.sequencesUsed > 0).map(({ id }) => id))
  if (core.host.ownedBytes + core.host.reservedBytes > 0) left.push(`${core.host.ownedBytes + core.host.reservedBytes} bytes of host memory`)
  if (core.openCalls !== 0) left.push(`${core.openCalls} calls counted as open`)
  for (const engine of engines) if (!engine.isEmpty) left.push(`${engine.id} itself holds ${engine.holds}`)
  say('bodies', life.store.kept)
  return left
}

const OVER: ReadonlySet<string> = new Set(['committed', 'cancelled', 'failed'])
