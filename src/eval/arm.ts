/**
 * Owns the arms that are compared: which order and which residency, in the same budgets, and the configuration of a
 * server that is one of them. Leaves starting it to whoever may know the server.
 */
import { availableParallelism } from 'node:os'
import type { OrderName, ResidencyName } from '../core/config.ts'
import type { MixEngine } from './mix.ts'

export interface Arm {
  readonly name: string
  readonly order: OrderName
  readonly residency: ResidencyName
  /** Whether recompute replays origins; engines as they are today recompute plainly. */
  readonly exactResume: boolean
  /** Where the host tier's files are; left out: in memory where the machine has such a place. */
  readonly images?: 'memory' | 'disk'
}

/** As engines work today: calls in order of arrival, the least recently used KV copied to host and dropped there. */
export const ENGINES_TODAY: Arm = { name: 'fcfs + lru-host', order: 'fcfs', residency: 'lru-host', exactResume: false }

/** What `entracte serve` does unless told otherwise. */
export const ENTRACTE: Arm = { name: 'gittins + least-cost', order: 'gittins', residency: 'least-cost', exactResume: true }

export const ORDERS: readonly OrderName[] = ['fcfs', 'fcfs-program', 'plas', 'gittins']

export function armOf(order: OrderName, residency: ResidencyName, exactResume = residency !== 'lru-host'): Arm {
  const plain = residency !== 'lru-host' && !exactResume ? ', plain' : ''
  return { name: `${order} + ${residency}${plain}`, order, residency, exactResume }
}

/** Both are made for one run and removed after it. */
interface Folders {
  readonly dataDir: string
  readonly imagesDir: string
}

/** A processor is left to the agents and the door, so that the engine is as fast in one arm as in another. */
const THREADS = Math.max(1, availableParallelism() - 1)

/** What a configuration file would say; a free port of loopback. */
export const serverConfig = (arm: Arm, engine: MixEngine, model: string, folders: Folders): Readonly<Record<string, unknown>> => ({
  listen: { host: '127.0.0.1', port: 0 },
  dataDir: folders.dataDir,
  imagesDir: folders.imagesDir,
  logLevel: 'silent',
  engines: [{ id: 'local', kind: 'embedded', model, lanes: engine.lanes, laneTokens: engine.laneTokens, threads: THREADS }],
  core: { order: arm.order, residency: arm.residency, exactResume: arm.exactResume, hostMiBMax: engine.hostMiB },
})
