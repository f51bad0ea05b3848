/**
 * The small worlds that are explored whole, or to a depth: quick in the suite for mutants, usual in the tests, deep by
 * `npm run small-worlds -- --deep`. In each, one fault of any kind at any moment, unless it says none.
 */
import { ONE_LANE, type SmallWorld } from './small-world.ts'
import { BLOCKS } from './world.ts'

type Level = 'quick' | 'usual' | 'deep'
interface Depths { readonly depths: Readonly<Record<Level, number>> }

/** Deeper than any history of its world: explored whole. */
const WHOLE = 99

const TWO_BLOCKS = { ...BLOCKS, runningMax: 2, memory: { cells: 256, granule: 16, sequences: 4 } }

const WORLDS: readonly (Omit<SmallWorld, 'depth'> & Depths)[] = [
  { name: '2 programs, 1 engine, no fault', programs: 2, engines: [ONE_LANE], faults: 0, depths: { quick: 12, usual: WHOLE, deep: WHOLE } },
  { name: '2 programs, 1 engine, 1 fault', programs: 2, engines: [ONE_LANE], faults: 1, depths: { quick: 6, usual: 11, deep: WHOLE } },
  { name: '2 programs, 1 engine, 1 fault, always offloading', programs: 2, engines: [ONE_LANE], faults: 1, depths: { quick: 6, usual: 12, deep: WHOLE }, config: { residency: 'always-offload' } },
  { name: '2 programs, 1 engine of blocks, 1 fault', programs: 2, engines: [TWO_BLOCKS], faults: 1, depths: { quick: 5, usual: 8, deep: WHOLE }, config: { residency: 'lru-host' } },
  { name: '2 programs, 1 engine that may come back with its device, 1 fault', programs: 2, engines: [{ ...ONE_LANE, inventory: true }], faults: 1, depths: { quick: 5, usual: 9, deep: WHOLE }, config: { residency: 'always-preserve' } },
  { name: '2 programs, 2 engines, 1 fault', programs: 2, engines: [ONE_LANE, ONE_LANE], faults: 1, depths: { quick: 4, usual: 7, deep: 16 } },
  { name: '3 programs, 2 engines, 1 fault', programs: 3, engines: [ONE_LANE, ONE_LANE], faults: 1, depths: { quick: 3, usual: 6, deep: 10 } },
  { name: '3 programs, 1 engine, no fault, by attained service', programs: 3, engines: [ONE_LANE], faults: 0, depths: { quick: 5, usual: 8, deep: WHOLE }, config: { order: 'plas', levelQuantumUs: 400 } },
]

export const smallWorlds = (level: Level): SmallWorld[] => WORLDS.map(({ depths, ...world }) => ({ ...world, depth: depths[level] }))
