/** Owns what an operator may set about the core's decisions. Every limit has a name, a default and a stated behaviour. */
import type { BandWeights } from './queue/bands.ts'
import type { Effect } from './effect.ts'
import { seconds, type Bytes, type Tokens, type Us } from './units.ts'

/** Each is a file of this name in `policy/order`. */
export const ORDER_NAMES = ['fcfs', 'fcfs-program', 'mlfq', 'plas', 'atlas', 'gittins'] as const
export type OrderName = (typeof ORDER_NAMES)[number]
export const RESIDENCY_NAMES = ['least-cost', 'lru-host', 'always-preserve', 'always-offload', 'always-discard'] as const
export type ResidencyName = (typeof RESIDENCY_NAMES)[number]
export const PLACEMENT_NAMES = ['least-seconds', 'most-room'] as const
export type PlacementName = (typeof PLACEMENT_NAMES)[number]
export type JointName = 'entracte' | 'engine-own'

export interface CoreConfig {
  /** `observe`: identity, trace and what would have been done are recorded; order and KV stay as the engine's own. */
  readonly mode: 'schedule' | 'observe'
  readonly order: OrderName
  readonly residency: ResidencyName
  readonly placement: PlacementName
  /** An order, a residency and a placement that agree, in place of the three above; null: they are chosen one by one. */
  readonly joint: JointName | null
  /** Default for a call that does not say: recompute replays origins, so that the tokens are the same. */
  readonly exactResume: boolean
  /** Host tier budget; at it, images are dropped cheapest regret first, then States are discarded. */
  readonly hostBytesMax: Bytes
  /** Output tokens a call is granted beyond its prompt; grows in such steps as it generates. */
  readonly grantTokens: Tokens
  /** Calls that are neither committed nor ended; at it a new call is refused (`queue_full`). */
  readonly callsOpenMax: number
  /** Of these, of one tenant; at it a new call of it is refused (`tenant_full`). */
  readonly tenantCallsOpenMax: number
  /** Calls of one program; at it a new one is refused (`program_full`). */
  readonly callsPerProgramMax: number
  /** Tool classes learned apart for each tenant; at it a new one is learned with the others as "other". */
  readonly toolClassesMax: number
  /** Kinds of program learned apart for each tenant; at it a new one is learned with the others as "other". */
  readonly kindsPerTenantMax: number
  /** Programs kept in memory; at it the longest closed are forgotten, and if none is, a new one is refused. */
  readonly programsMax: number
  /** Of these, awake at once beside those at work and those of long histories; beyond it the longest awake are kept as text: a third of the memory, and some microseconds to wake. */
  readonly programsAwakeMax: number
  /** Programs of one tenant that are not over; at it a new one of it is refused (`tenant_full`). */
  readonly tenantProgramsMax: number
  /** Programs from a sub-agent's up to its root; a parent that would make it longer is refused (`parent_conflict`). */
  readonly programDepthMax: number
  /** Nodes and edges of a program's declared graph, and its threads; beyond, a report is refused (`graph_full`). */
  readonly nodesPerProgramMax: number
  readonly edgesPerProgramMax: number
  readonly threadsPerProgramMax: number
  /** Reusable prefixes a session keeps; at it the oldest is dropped. */
  readonly sessionStatesMax: number
  /** What a class band gets beside the others that wait, in proportion; integers from 1. */
  readonly bandWeights: BandWeights
  /** What a tenant gets beside the others of its band that wait, in proportion; integers from 1, and 1 for who is not named. */
  readonly tenantWeights: Readonly<Record<string, number>>
  /** All of an engine's device memory held for a second costs a share this much, in millionths of an engine-second of work. */
  readonly deviceSecondMicro: number
  /** A ready call may take the place of a call of another tenant, or of a better band, once that is ahead by so much weighted service; of a worse band, once it is ahead at all. */
  readonly preemptGapUs: Us
  /** Idle States looked at when memory is wanted, the longest idle first; images on host likewise. At it the others stay. */
  readonly victimsMax: number
  /** Ready calls for which room is made in one look at a model; at it, a call starts only where nobody must give way. */
  readonly memoryWaitersMax: number
  /** Ready calls looked at in one dispatch of a model after the first that does not fit. */
  readonly dispatchWindow: number
  /** Engines that a call's placement looks at; of more, a part that its number picks, and the one that has its KV. */
  readonly placementEnginesMax: number
  /** A State leaves the device it is on only where its call is done sooner by this, the copy included. */
  readonly placementGainUs: Us
  /** A running call gives way only where that wins at least this: its time to its end, less what taking its State away costs. */
  readonly preemptGainUs: Us
  /** After a call of it gave way, a program is left alone for this. */
  readonly preemptionRestUs: Us
  /** A ready call that needs more than one granule and was passed over is kept memory after waiting for this. */
  readonly reserveAfterUs: Us
  /** Times a call may be preempted; at it, it runs to its end. */
  readonly preemptionsMax: number
  /** Attempts of a call; at it the call fails. */
  readonly attemptsMax: number
  /** A ready call goes up a level of its order for each such time it waits, to the top at most; 0: orders do not age. */
  readonly agingUs: Us
  /** Below so much confidence in what a program still needs, its deadline boosts nothing. */
  readonly boostConfidencePpmMin: number
  /** Of a tenant's work, what boosted calls may take; beyond it no boost is given. */
  readonly boostSharePpm: number
  /** Work of boosted calls that is given beyond the share. */
  readonly boostBurstUs: Us
  /** Calls of one tenant that have a boost at once; at it no more is given. */
  readonly boostsOpenMax: number
  /** A boost that was withheld for want of share is thought of again after this. */
  readonly boostRetryUs: Us
  /** Tools that a person answers: their interrupts are HUMAN, with a prior of their own. */
  readonly humanTools: readonly string[]
  /** What tools do to the world, by name; of others the engine's adapter says it, or they read. */
  readonly toolEffects: Readonly<Record<string, Effect>>
  /** A program of which nothing is open closes after this; until then a call goes on with it, and reopens an undeclared one that ended. */
  readonly programIdleUs: Us
  /** An interrupt nobody answers expires after this, and its program fails; so does a call that waits so long for its parents in a declared graph. */
  readonly interruptMaxUs: Us
  /** A reusable prefix nobody used for this long is dropped. */
  readonly sessionRetentionUs: Us
  /** mlfq, plas, atlas: quantum of the first level; each level's is twice that of the one above. */
  readonly levelQuantumUs: Us
  /** Their levels; the last has no end. */
  readonly levelCount: number
  /** They take to the top what has waited so many times as long as it was served. */
  readonly promoteRatio: number
  /** Prices of the cost model, in micro-units (1 unit = 1 engine-second): all of an engine's memory held for a second while nobody waits for it. */
  readonly idleMemorySecondMicro: number
  /** A mebibyte on host, for a second. */
  readonly hostMebibyteSecondMicro: number
}

export const CORE_DEFAULTS: CoreConfig = {
  mode: 'schedule',
  order: 'gittins',
  residency: 'least-cost',
  placement: 'least-seconds',
  joint: null,
  exactResume: true,
  hostBytesMax: 1 << 30,
  grantTokens: 256,
  callsOpenMax: 1_000,
  tenantCallsOpenMax: 500,
  callsPerProgramMax: 10_000,
  toolClassesMax: 1_000,
  kindsPerTenantMax: 64,
  programsMax: 20_000,
  programsAwakeMax: 800,
  tenantProgramsMax: 10_000,
  programDepthMax: 16,
  nodesPerProgramMax: 4_096,
  edgesPerProgramMax: 16_384,
  threadsPerProgramMax: 4_096,
  sessionStatesMax: 4,
  bandWeights: { interactive: 16, default: 4, batch: 1 },
  tenantWeights: {},
  deviceSecondMicro: 1_000_000,
  preemptGapUs: seconds(10),
  victimsMax: 16,
  memoryWaitersMax: 8,
  dispatchWindow: 32,
  placementEnginesMax: 16,
  placementGainUs: 100_000,
  preemptGainUs: 10_000,
  preemptionRestUs: seconds(1),
  reserveAfterUs: seconds(10),
  preemptionsMax: 2,
  attemptsMax: 4,
  agingUs: seconds(300),
  boostConfidencePpmMin: 600_000,
  boostSharePpm: 250_000,
  boostBurstUs: seconds(5),
  boostsOpenMax: 4,
  boostRetryUs: seconds(1),
  humanTools: [],
  toolEffects: {},
  programIdleUs: seconds(300),
  interruptMaxUs: seconds(3_600),
  sessionRetentionUs: seconds(3_600),
  levelQuantumUs: seconds(1),
  levelCount: 12,
  promoteRatio: 100,
  idleMemorySecondMicro: 800,
  hostMebibyteSecondMicro: 10,
}
