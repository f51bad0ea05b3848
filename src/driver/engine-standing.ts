/** Owns what is said of an engine to those who look: what the core knows of it, and where it knows nothing, its adapter. */
import type { Engine } from '../core/state.ts'
import type { EngineStanding } from './gateway.ts'
import type { EngineCondition } from './ports.ts'

/** `known` and `condition` are left out where there is none. */
export function standingOf(id: string, known?: Readonly<Engine>, condition?: EngineCondition): EngineStanding {
  const running = known?.running.size ?? 0
  const idle = known?.idle.size ?? 0
  const why = condition?.why ?? null
  if (known?.stage === 'joined') return { id, stage: joinedStage(known), why, running, idle }
  const stage = condition?.stage ?? known?.stage ?? 'starting'
  // The core has not heard of it yet.
  return { id, stage: stage === 'joined' ? 'starting' : stage, why, running, idle }
}

function joinedStage({ draining, running, sequencesUsed, moves }: Readonly<Engine>): EngineStanding['stage'] {
  if (draining !== true) return 'joined'
  return running.size + sequencesUsed + moves.size === 0 ? 'drained' : 'draining'
}
