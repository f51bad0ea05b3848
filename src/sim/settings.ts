/**
 * Owns what a run is made from: everything that decides it, resolved before it begins and printed first, so that the run
 * can be had again from what was printed. What a seed leaves open is drawn from it.
 */
import { CORE_DEFAULTS, ORDER_NAMES, PLACEMENT_NAMES, RESIDENCY_NAMES, type CoreConfig } from '../core/config.ts'
import { seconds, type Us } from '../core/units.ts'
import { Chance } from './chance.ts'
import { allFaults, type FaultPlan } from './faults.ts'
import type { PlanSize } from './plan.ts'
import { lanes, paged, type Shape } from './shape.ts'
import { HUMAN_TOOLS, TOOL_EFFECTS } from './tool.ts'

export type EngineKind = Shape['kind']

export interface Settings {
  readonly seed: number
  /** Turns of the control plane that decide something, before everything is healed. */
  readonly steps: number
  readonly faults: FaultPlan
  readonly engines: readonly EngineKind[]
  /** Only these agents come; null: all. */
  readonly agents: readonly number[] | null
  /** Agents under way at once. */
  readonly agentsAtOnce: number
  readonly size: PlanSize
  readonly core: Partial<CoreConfig>
  readonly storeFailure: 'pass' | 'refuse'
  readonly snapshotEveryFacts: number
  readonly checkEveryTurns: number
  /** What can finish must have, so long after everything was healed. */
  readonly healUs: Us
}

interface Wishes {
  readonly seed: number
  readonly steps: number
  readonly faults?: FaultPlan
  readonly order?: CoreConfig['order']
  readonly residency?: CoreConfig['residency']
  readonly engines?: readonly EngineKind[]
}

const ENGINE_SETS: readonly [readonly EngineKind[], ...(readonly EngineKind[])[]] = [['lanes'], ['paged'], ['lanes', 'lanes'], ['paged', 'paged'], ['lanes', 'paged']]

export function settingsOf({ seed, steps, faults = allFaults(), order, residency, engines }: Wishes): Settings {
  const chance = new Chance(seed, 'settings')
  const drawn = {
    engines: chance.pick(ENGINE_SETS), order: drawnOf(chance, ORDER_NAMES), residency: drawnOf(chance, RESIDENCY_NAMES),
    agentsAtOnce: chance.between(4, 14), storeFailure: chance.pick(['pass', 'refuse'] as const),
    placement: drawnOf(chance, PLACEMENT_NAMES), hostImages: chance.between(1, 20), snapshotEveryFacts: chance.pick([0, 400, 2_000]), grantTokens: chance.pick([4, 16, 64]),
  }
  const times = drawnTimes(chance)
  // Not drawn, so that older seeds are what they were. Whoever sleeps decides nothing.
  const programsAwakeMax = seed % 8 === 0 ? 0 : seed % 8 === 4 ? 4 : CORE_DEFAULTS.programsAwakeMax
  return {
    seed, steps, faults, engines: engines ?? drawn.engines, agents: null, agentsAtOnce: drawn.agentsAtOnce,
    size: { callsMax: 6, givenMax: 80, saysMax: 40, waitMaxUs: seconds(8) },
    core: {
      order: order ?? drawn.order, residency: residency ?? drawn.residency, placement: drawn.placement, programsAwakeMax, hostBytesMax: drawn.hostImages * 100_000, grantTokens: drawn.grantTokens,
      ...times, callsOpenMax: 40, programsMax: 60, tenantCallsOpenMax: 25, tenantProgramsMax: 30, programIdleUs: seconds(20), interruptMaxUs: seconds(40), sessionRetentionUs: seconds(40), sessionStatesMax: 2,
      toolEffects: TOOL_EFFECTS, humanTools: HUMAN_TOOLS,
    },
    storeFailure: drawn.storeFailure, snapshotEveryFacts: drawn.snapshotEveryFacts, checkEveryTurns: 1, healUs: seconds(1_800),
  }
}

/** What bends an order, and how soon: what takes minutes in earnest happens here within a run. */
const drawnTimes = (chance: Chance): Partial<CoreConfig> => ({
  agingUs: chance.pick([0, seconds(1), seconds(5), seconds(300)]), reserveAfterUs: chance.pick([200_000, seconds(2), seconds(10)]),
  promoteRatio: chance.pick([1, 5, 100]), levelQuantumUs: chance.pick([50_000, 400_000, seconds(1)]), preemptGapUs: chance.pick([100_000, seconds(1), seconds(10)]),
  preemptionRestUs: chance.pick([0, seconds(1)]), boostConfidencePpmMin: chance.pick([0, 300_000, 600_000]), tenantWeights: chance.pick([{}, { a: 3 }]),
  joint: chance.pick([null, null, null, null, null, null, null, null, 'entracte', 'engine-own']), exactResume: !chance.hit(100_000),
})

const drawnOf = <T>(chance: Chance, list: readonly T[]): T => list[chance.below(list.length)] as T

export const coreConfigOf = (settings: Settings): CoreConfig => ({ ...CORE_DEFAULTS, ...settings.core })

export function shapeOf(kind: EngineKind): Shape {
  return kind === 'lanes' ? lanes({ contextTokens: 640, states: 4, runningMax: 4 }) : paged({ contextTokens: 640, states: 3, runningMax: 8 })
}
