/**
 * Owns joint policies: an order, a residency and a placement that were made for each other, under one name. Each of the
 * three may be chosen alone; where they must agree (whose KV may be lost depends on who goes first, and where a call goes
 * on whose KV is where) one name is safer than three.
 */
import type { CoreConfig, JointName } from '../config.ts'
import type { CoreState } from '../state.ts'

type JointPolicy = Pick<CoreConfig, 'order' | 'residency' | 'placement'>

const JOINTS: Readonly<Record<JointName, JointPolicy>> = {
  /** Whole programs: who is soonest done for what it costs goes first, its KV is lost only where that pays, and it runs where it is done soonest. */
  'entracte': { order: 'gittins', residency: 'least-cost', placement: 'least-seconds' },
  /** What engines and their routers do by themselves. */
  'engine-own': { order: 'fcfs', residency: 'lru-host', placement: 'most-room' },
}

/** What is in force. Observing changes nothing: all stays as the engines' own. */
export const policyNames = (core: Readonly<CoreState>): JointPolicy =>
  core.config.mode === 'observe' ? JOINTS['engine-own'] : chosenNames(core)

/** What would be in force if we acted, whatever the mode. */
export const chosenNames = ({ config }: Readonly<CoreState>): JointPolicy => (config.joint === null ? config : JOINTS[config.joint])
